"""Our claims, as ratios within one run: each is met, not met or not measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from . import op_goals
from .harness import Row, ratio
from .peers import TRAIN

OURS = ("ndd", "ndd deferred", "ndd capture")


class NotMeasuredError(Exception):
    """The run has no rows for this goal, or (with a reason) none that can decide it."""


@dataclass(frozen=True)
class Goal:
    """A claim, the number that was measured and whether it suffices."""

    claim: str
    measured: str
    met: bool | None

    @property
    def verdict(self) -> str:
        return {True: "met", False: "**not met**", None: "not measured"}[self.met]


class Table:
    """Rows, looked up by the beginning of their workload's name."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = list(rows)

    def all(self, workload: str) -> dict[str, Row]:
        found = {r.name: r for r in self.rows if r.workload.startswith(workload)}
        if not found:
            raise NotMeasuredError
        return found

    def one(self, workload: str, name: str) -> Row:
        found = self.all(workload)
        if name not in found:
            raise NotMeasuredError
        return found[name]

    def faster(self, workload: str, name: str, than: str) -> float:
        return ratio(self.one(workload, name), self.one(workload, than))


def goals(rows: Iterable[Row]) -> list[Goal]:
    """Test every claim with the rows of one run."""
    table = Table(rows)
    return [_goal(claim, test, table) for claim, test in _CLAIMS.items()]


Test = Callable[[Table], tuple[str, bool]]


def _goal(claim: str, test: Test, table: Table) -> Goal:
    try:
        measured, met = test(table)
    except NotMeasuredError as reason:
        return Goal(claim, str(reason), None)
    return Goal(claim, measured, met)


def _faster(workload: str, than: tuple[str, ...], factor: float) -> Test:
    """We are `factor` times as fast as the fastest of `than`."""

    def test(table: Table) -> tuple[str, bool]:
        measured = [n for n in than if n in table.all(workload)]
        if not measured:
            raise NotMeasuredError
        least, name = min((table.faster(workload, "ndd", n), n) for n in measured)
        return f"{least:.2f}× {name}", least >= factor

    return test


def _ahead(workload: str) -> Test:
    """We are faster than every peer that does the same work."""

    def test(table: Table) -> tuple[str, bool]:
        ours = (*OURS, "ndd isolated")
        peers = [
            n for n in table.all(workload) if n not in ours and not n.startswith("decode only")
        ]
        if not peers:
            raise NotMeasuredError
        least, name = min((table.faster(workload, "ndd", n), n) for n in peers)
        return f"{least:.2f}× {name}, the next best", least > 1

    return test


def _alike(workload: str) -> Test:
    """The times of eager, deferred and capture are within 5 %."""

    def test(table: Table) -> tuple[str, bool]:
        factors = {n: table.faster(workload, "ndd", n) for n in OURS[1:]}
        text = ", ".join(f"{n.removeprefix('ndd ')} {f:.3f}" for n, f in factors.items())
        worst = max(max(f, 1 / f) for f in factors.values())
        return f"time against eager: {text}", worst <= 1.05

    return test


def _no_more(workload: str) -> Test:
    """We use no more than the oracle."""

    def test(table: Table) -> tuple[str, bool]:
        ours, theirs = (table.one(workload, n).value for n in ("ndd", "oracle dynamic"))
        return f"{ours:.0f} and {theirs:.0f} MB", ours <= theirs

    return test


def _below(workload: str, name: str, limit: float, unit: str) -> Test:
    def test(table: Table) -> tuple[str, bool]:
        value = table.one(workload, name).value
        return f"{value:.2f} {unit}", value < limit

    return test


def _stall(table: Table) -> tuple[str, bool]:
    waiting = table.one("stall, consumer of 20 ms, batch 8", "ndd").value
    making = table.one("time of a batch of 8", "ndd").value
    text = f"{waiting:.1f} % (a batch of 8 takes {making * 1e3:.1f} ms to make)"
    if making >= 0.020:
        raise NotMeasuredError(f"{text}: too slow a machine")
    return text, waiting < 2


def _threads(table: Table) -> tuple[str, bool]:
    factors = [
        table.faster(f"threads, ResNet-50 {w}", "ndd, 2 threads", "ndd, 1 threads")
        for w in ("eval", "train")
    ]
    return f"eval {factors[0]:.2f}×, train {factors[1]:.2f}×", min(factors) >= 1.8


def _calls(table: Table) -> tuple[str, bool]:
    worst = max(table.all("op calls").values(), key=lambda r: r.value)
    return f"{worst.value:.1f} % ({worst.name})", worst.value < 5


def _op_claims() -> dict[str, Test]:
    """Single ops against the oracle and other libraries (bench/op_goals.py)."""
    claims: dict[str, Test] = {}
    for what, workload, peer, least in op_goals.claims():
        other = {"oracle": "the oracle", "opencv": "OpenCV", "pillow": "Pillow"}.get(peer, peer)
        bound = f"≥ {least:g}× {other}" if least > 1 else f"no slower than {other}"
        if least < 1:
            bound = f"at most {1 / least:g}× the time of a {peer}"
        claims[f"8. {what} {bound}"] = _faster(workload, (peer,), least)
    return claims


_EVAL, _TRAIN, _SSL = "ResNet-50 eval", "ResNet-50 train", "SSL: colour twist, blur"
_VARIANTS = tuple(n for n in TRAIN if n.startswith("oracle"))
_BINDINGS = ("decode only: simplejpeg", "decode only: OpenCV")
_CLAIMS: dict[str, Test] = {
    "1. eval ≥ 2.2× the oracle's dynamic mode": _faster(_EVAL, ("oracle dynamic",), 2.2),
    "1. eval ahead of every other peer": _ahead(_EVAL),
    "1. eval ≥ 0.85 of the fastest decode-only rate": _faster(_EVAL, _BINDINGS, 0.85),
    "2. train ≥ 2.0× the oracle's same program": _faster(_TRAIN, ("oracle dynamic",), 2.0),
    "2. train ≥ 1.7× the oracle's best variant": _faster(_TRAIN, _VARIANTS, 1.7),
    "2. train ahead of every other peer": _ahead(_TRAIN),
    "3. eval: eager, deferred, capture within 5 %": _alike(_EVAL),
    "3. train: eager, deferred, capture within 5 %": _alike(_TRAIN),
    "4. peak memory of eval ≤ the oracle's": _no_more(f"peak memory, {_EVAL}"),
    "4. peak memory of train ≤ the oracle's": _no_more(f"peak memory, {_TRAIN}"),
    "4. RSS slope < 1 MB/min (`bench soak`)": _below("soak", "ndd", 1.0, "MB/min"),
    "5. stall < 2 % with a consumer of 20 ms": _stall,
    "6. 2 threads ≥ 1.8× 1 thread": _threads,
    "6. no op call above 5 % of a batch of 64": _calls,
    "7. SSL ≥ 7× the oracle's dynamic mode": _faster(_SSL, ("oracle dynamic",), 7.0),
    "7. SSL ≥ 2.5× OpenCV with threads": _faster(_SSL, ("OpenCV + threads",), 2.5),
    **_op_claims(),
    "first batch < 5 s with an empty kernel cache": _below(
        "time to the first batch", "ndd, empty kernel cache", 5.0, "s"
    ),
    "first batch < 1 s with a warm kernel cache": _below(
        "time to the first batch", "ndd, warm kernel cache", 1.0, "s"
    ),
}
