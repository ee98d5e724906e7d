"""All generators of faults, for the runner (fuzz.py)."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Generator:
    """`attack(what, …)` of a module, and what one child of it gets."""

    module: str
    what: str
    count: int  # cases of one child, at most; it also ends when its time is used up
    seconds: float = 12.0  # time of one child, without its start; less in short runs
    weight: float = 1.0  # share of the time among all generators
    unit: str = "tried"  # which of the counts that `attack` returns is the number of cases
    size: int = 1  # the most mutations, calls or arguments that a case has
    megabytes: int = 3000  # resident memory of a child; more is a failure
    variables: tuple[tuple[str, str], ...] = field(default=())

    @property
    def name(self) -> str:
        return self.module if self.what == "all" else f"{self.module}.{self.what}"


# Address space is limited there. glibc takes 64 MB of it for the malloc of every few threads, and LLVM ends
# the process when it finds none.
_FEW_ARENAS = (("MALLOC_ARENA_MAX", "2"),)
_FOUR_THREADS = (("NDD_NUM_THREADS", "4"),)

GENERATORS: tuple[Generator, ...] = (
    Generator("pictures", "all", 1_000_000, seconds=20, weight=4, size=3),
    Generator("op_calls", "all", 10_000, seconds=15, weight=2, size=20, variables=_FEW_ARENAS),
    Generator("written_programs", "reference", 1_000_000, seconds=15, weight=2, size=10),
    Generator("written_programs", "compiled", 1_000_000, seconds=15, size=6),
    Generator("written_programs", "loops", 1_000_000, seconds=15, size=6),
    *(
        Generator("interrupts", what, 100_000, weight=0.3, unit="interrupts", variables=_FOUR_THREADS)
        for what in ("decode", "python_decode", "eager", "pointwise", "reader", "opened_and_left", "isolated", "video", "tiers")
    ),
    Generator("forks", "cold", 8, weight=0.3, unit="forks"),
    *(Generator("forks", what, 10_000, weight=0.3, unit="forks") for what in ("decode", "eager", "epoch", "tiers")),
    *(Generator("exits", what, 1000, weight=0.2, unit="exits") for what in ("decode", "png", "eager", "reader", "video", "isolated", "tiers")),
    *(Generator("kills", what, 100_000, weight=0.3, unit="kills") for what in ("checkpoint", "cache", "outputs", "kernels")),
    Generator("caches", "all", 100_000, weight=0.3, size=4),
    *(Generator("crowds", what, 100_000, weight=0.3) for what in ("values", "readers")),
    *(Generator("records", what, 1_000_000, weight=0.2, size=8) for what in ("npy", "checkpoint", "listing", "tree", "blocks")),
    Generator("containers", "all", 1_000_000, weight=0.6, size=3),
    Generator("killed_readers", "all", 100_000, weight=0.5, unit="kills"),
    Generator("sounds", "all", 1_000_000, weight=0.3, size=3),
    Generator("videos", "all", 1_000_000, weight=0.4, size=3),
    *(Generator("shared_epochs", what, 10_000, weight=0.3, unit="epochs") for what in ("decode", "labels_only")),
)  # fmt: skip


def named(name: str) -> Generator:
    """A generator by `module` or `module.what`."""
    for generator in GENERATORS:
        if name in (generator.name, f"{generator.module}.{generator.what}"):
            return generator
    known = ", ".join(g.name for g in GENERATORS)
    raise ValueError(f"there is no generator {name!r}; there are {known}")
