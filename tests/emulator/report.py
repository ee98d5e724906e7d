"""`python -m tests.emulator.report`: run typical programs on the emulated driver, update docs/gpu.md.

Instructions are those of PTX, executed by threads and by warps on an sm_90. Bytes are sectors of 32
bytes. The model beside them is that of `ndd.kernel_report`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.emulator.emulator import Counters, Emulator, start

EMULATOR: Emulator = start((90, 90))

import numpy as np  # noqa: E402

import ndd  # noqa: E402
from ndd.tools.roofline import Executed, KernelFigures, KernelReport  # noqa: E402
from tests.gpu.report import PAGE, replaced, row_name  # noqa: E402

BEGIN, END = "<!-- executed: begin -->", "<!-- executed: end -->"
SHAPES = ((375, 500), (333, 500), (500, 375), (400, 400))
_MEAN, _STD = [123.7, 116.3, 103.5], [58.4, 57.1, 57.4]


def _normalised(x: Any) -> Any:
    mirror = ndd.batch([1, 0, 1, 0])
    return ndd.crop_mirror_normalize(x, mirror=mirror, mean=_MEAN, std=_STD, dtype=ndd.float16)


def _colours(x: Any) -> Any:
    return ndd.color_twist(x, hue=20.0, saturation=1.2, contrast=0.9, brightness=1.1)


def _cropped(x: Any) -> Any:
    return ndd.random_resized_crop(x, size=[224, 224], rng=ndd.random.RNG(3))


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "classification: crop, resize 224², flip, normalise": lambda x: _normalised(_cropped(x)),
    "SSL: crop, resize 224², colours, blur, flip, normalise": lambda x: _normalised(
        ndd.gaussian_blur(_colours(_cropped(x)), sigma=1.0)
    ),
    "the same, blur of σ = 0.3, 0.9, 1.4, 2": lambda x: _normalised(
        ndd.gaussian_blur(_colours(_cropped(x)), sigma=ndd.batch([0.3, 0.9, 1.4, 2.0]))
    ),
    "detection: resize 512², colours, flip, normalise": lambda x: _normalised(
        _colours(ndd.resize(x, size=[512, 512]))
    ),
}


def images() -> Any:
    rng = np.random.default_rng(5)
    pictures = [rng.integers(0, 256, (*s, 3), dtype=np.uint8) for s in SHAPES]
    return ndd.batch(pictures, layout="HWC", device="gpu").evaluate()


def executed(counters: Counters) -> Executed:
    """Counts of the emulator, in the terms of a report."""
    return Executed(
        counters.thread_instructions,
        counters.warp_instructions,
        32 * counters.sectors,
        32 * counters.unique_sectors,
    )


def report_on(program: Callable[[Any], Any], x: Any) -> tuple[int, KernelReport]:
    """The bytes of a program's inputs and outputs, and a report of its kernels, with what they did
    when they ran."""
    with ndd.EvalMode.deferred:
        report = ndd.kernel_report(program(x), gpu="H100")
        with EMULATOR.counting() as launches:
            out = program(x).evaluate()
            np.asarray(out.tensors[0].cpu())  # waits
    assert not EMULATOR.fault, EMULATOR.fault
    least = sum(int(t.nbytes) for t in (*x.tensors, *out.tensors))
    return least, report.beside([executed(c) for c in _by_group(launches)])


def _by_group(launches: list[tuple[str, Counters]]) -> Iterator[Counters]:
    """The counts of each group's kernel, with those of the small kernel that prepared it."""
    before = Counters()
    for name, counters in launches:
        if name.startswith("load"):
            continue
        for field, _ in Counters._fields_:
            setattr(counters, field, getattr(counters, field) + getattr(before, field))
        is_table = name.startswith(("taps_", "marks_"))
        before = counters if is_table else Counters()
        if not is_table:
            yield counters


def together(kernels: Sequence[KernelFigures]) -> Executed:
    """What all kernels of a program did."""
    return Executed(*map(sum, zip(*(dataclasses.astuple(k.executed) for k in kernels))))


def _row(name: str, kernel: str, counts: Executed, least: int, ridge: float) -> str:
    issued = 32 * counts.warp_instructions / max(counts.touched_bytes, 1)
    bound = "instructions" if issued > ridge else "memory"
    cells = [
        name,
        kernel,
        f"{counts.thread_instructions / least:.1f}",
        f"{counts.active_lanes:.0%}",
        f"{least / 1e6:.2f}",
        f"{counts.touched_bytes / 1e6:.2f} ({counts.touched_bytes / least:.2f} ×)",
        f"{counts.requested_bytes / 1e6:.2f}",
        bound,
    ]
    return "| " + " | ".join(cells) + " |"


def rows() -> Iterator[str]:
    yield (
        "| program | kernel | instructions per byte | lanes active | least MB | MB touched "
        "| MB asked for by warps | bound by |"
    )
    yield "|---|---|--:|--:|--:|--:|--:|---|"
    x = images()
    for name, program in PROGRAMS.items():
        least, report = report_on(program, x)
        print(report, flush=True)
        kernels, ridge = report.kernels, report.kernels[0].gpu.ridge
        yield _row(name, "all kernels", together(kernels), least, ridge)
        for kernel in kernels:
            assert kernel.executed is not None
            moved = kernel.read_bytes + kernel.written_bytes
            yield _row("", f"`{row_name(kernel.name)}`", kernel.executed, moved, ridge)


def main() -> None:
    os.environ.pop("NDD_GPU", None)
    table = "\n".join(rows())
    PAGE.write_text(replaced(PAGE.read_text(), BEGIN, END, table))
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
