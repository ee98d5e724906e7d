"""Loading loops beside all peers: decode, ResNet-50, SSL; scaling, memory, stalls."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from . import peers, photos
from .contest import Measure, Missing, Process, Result, contest, seconds_per_image
from .harness import Row, rotated, show
from .peers import Contestant, Job

# Peers that `--quick` keeps.
QUICK = (
    "ndd", "oracle dynamic", "oracle dynamic, fused decode", "torchvision + DataLoader",
    "OpenCV + threads", "decode only: simplejpeg", "simplejpeg",
)  # fmt: skip
SCALED = ("ndd", "oracle dynamic", "OpenCV + threads")
CONSUMER_SECONDS = 0.020
# Pixels per side: (files, batch size). A decoded batch of the last entry has 400 MB.
SIZES = {64: (256, 64), 128: (256, 64), 256: (256, 64), 512: (128, 64), 1024: (32, 32),
         2048: (8, 8), 4096: (4, 8)}  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """Options of a run: its length and its contestants."""

    rounds: int = 7
    quick: bool = False
    peers: tuple[str, ...] = ()  # parts of names; () for all

    def of(self, contestants: Mapping[str, Contestant]) -> dict[str, Contestant]:
        """The contestants that take part; ours and the oracle's always do."""
        return {
            n: c
            for n, c in contestants.items()
            if n in QUICK[:2]
            or ((not self.quick or n in QUICK) and (not self.peers or _has(n, self.peers)))
        }

    @property
    def loop_rounds(self) -> int:
        """Rounds of the loops that most claims are about; no single round must decide a claim."""
        return self.rounds if self.quick else 2 * self.rounds

    @property
    def images(self) -> int:
        """Images per timed sample; 512 take at least 0.3 s."""
        return 256 if self.quick else 512


def _has(name: str, parts: Iterable[str]) -> bool:
    return any(p.lower() in name.lower() for p in parts)


def decode(settings: Settings) -> list[Row]:
    job = Job(photos.photos())
    return _timed("decode only", settings.of(peers.DECODE), job, settings)


def evaluate(settings: Settings) -> list[Row]:
    return _loop("ResNet-50 eval", peers.EVAL, settings, mean=0.02, deviation=0.1)


def train(settings: Settings) -> list[Row]:
    # crops are random: the mean of 64 of them scatters by 0.1
    return _loop("ResNet-50 train", peers.TRAIN, settings, mean=0.4, deviation=0.1)


def ssl(settings: Settings) -> list[Row]:
    """Augment decoded 224×224 images."""
    job = Job([], images=str(photos.small_images()), blur=True)
    name = "SSL: colour twist, blur, flip, normalise"
    # peers blend in RGB or HSV, around the mean of the image or grey: similar, not equal
    return _timed(name, settings.of(peers.SSL), job, settings, mean=0.3, deviation=0.25)


def _loop(name: str, who: Any, settings: Settings, mean: float, deviation: float) -> list[Row]:
    job = Job(photos.photos())
    return _timed(name, settings.of(who), job, settings, mean, deviation, is_loop=True)


def _timed(
    name: str,
    who: Mapping[str, Contestant],
    job: Job,
    settings: Settings,
    mean: float = 0.0,
    deviation: float = 0.0,
    is_loop: bool = False,
) -> list[Row]:
    """Time per image of every contestant that does the same work as we do."""
    print(f"\n{name}: {', '.join(who)}", flush=True)
    workload = f"{name}, {job.threads} threads, batch {job.batch}"
    measure = Measure(workload, seconds_per_image(settings.images))
    result = contest(who, job, settings.loop_rounds if is_loop else settings.rounds, measure)
    odd = disagreements(result, mean, deviation) if mean else {}
    for peer, reason in odd.items():
        print(f"  {peer} does something else and does not count: {reason}")
    rows = [r for r in result.rows if r.name not in odd]
    show(rows, "oracle dynamic")
    if is_loop:
        peaks = [
            Row(f"peak memory, {name}", n, m, "MB")
            for n, m in result.memory.items()
            if not n.startswith("decode only")
        ]
        show(peaks, "oracle dynamic", 1, "MB")
        rows += peaks
    return rows


def disagreements(result: Result, mean: float, deviation: float) -> dict[str, str]:
    """Contestants whose batches differ in shape, type, memory order, mean or deviation, and why."""
    facts = {n: f for n, f in result.facts.items() if "shape" in f}
    if not facts:
        return {}
    usual = _usual(facts)
    odd = {}
    for name, f in facts.items():
        if (f["shape"], f["dtype"]) != (usual["shape"], "float32") or not f["contiguous"]:
            odd[name] = f"{f['dtype']} {f['shape']}, contiguous: {f['contiguous']}"
        elif abs(f["mean"] - usual["mean"]) > mean:
            odd[name] = f"mean {f['mean']:.3f}, not {usual['mean']:.3f}"
        elif abs(f["deviation"] / usual["deviation"] - 1) > deviation:
            odd[name] = f"standard deviation {f['deviation']:.3f}, not {usual['deviation']:.3f}"
    return odd


def _usual(facts: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The batch to compare with: the oracle's or, without it, ours."""
    return next(facts[n] for n in ("oracle dynamic", "ndd", *facts) if n in facts)


def threads(settings: Settings) -> list[Row]:
    """Compare 1 with 2 threads, in the same rounds."""
    rows: list[Row] = []
    files = photos.photos()
    for name, who in (("eval", peers.EVAL), ("train", peers.TRAIN)):
        both = {f"{n}, {k} threads": who[n] for n in SCALED for k in (1, 2)}
        jobs = {f"{n}, {k} threads": Job(files, threads=k) for n in SCALED for k in (1, 2)}
        measure = Measure(f"threads, ResNet-50 {name}", seconds_per_image(settings.images))
        part = contest(both, jobs, settings.rounds, measure).rows
        show(part, "ndd, 1 threads")
        rows += part
    return rows


def batches(settings: Settings) -> list[Row]:
    rows: list[Row] = []
    for size in (1, 4, 16, 64, 256, 512):
        measure = Measure(f"batch {size}, ResNet-50 eval", seconds_per_image(settings.images))
        rows += _scaled(Job(photos.photos(), batch=size), settings, measure)
    return rows


def sizes(settings: Settings) -> list[Row]:
    rows: list[Row] = []
    for size, (count, batch) in SIZES.items():
        images = min(2048, max(16, settings.images * 500**2 // size**2))
        measure = Measure(f"images {size}×{size}, ResNet-50 eval", seconds_per_image(images))
        rows += _scaled(Job(photos.squares(size, count), batch=batch), settings, measure)
    return rows


def _scaled(job: Job, settings: Settings, measure: Measure) -> list[Row]:
    who = {n: peers.EVAL[n] for n in SCALED}
    rows = contest(who, job, max(3, settings.rounds // 2), measure).rows
    show(rows, "oracle dynamic")
    return rows


def stall(settings: Settings) -> list[Row]:
    """Share of its time that a consumer of 20 ms per batch waits for data.

    Two cores can make a batch of 8 in that time, but not one of 64. We also report the time of a
    batch without a consumer.
    """
    rows: list[Row] = []
    who = {n: c for n, c in settings.of(peers.EVAL).items() if not n.startswith("decode only")}
    for size in (8, 64):
        count = max(8, 512 // size)

        def waiting(process: Process, count: int = count) -> float:
            answer = process.run(count, CONSUMER_SECONDS)
            return 100 * answer["waited"] / answer["seconds"]

        def making(process: Process, count: int = count) -> float:
            return process.run(count)["seconds"] / count

        rows += contest(
            who, Job(photos.photos(), batch=size), max(3, settings.rounds // 2),
            Measure(f"stall, consumer of 20 ms, batch {size}", waiting, "%"),
            Measure(f"time of a batch of {size}", making),
        ).rows  # fmt: skip
        show([r for r in rows if r.workload.endswith(f"batch {size}")], "", 1, "%")
        show([r for r in rows if r.workload.endswith(f"batch of {size}")], "oracle dynamic")
    return rows


def first_batch(settings: Settings) -> list[Row]:
    """Time from the start of the interpreter to the first batch, without the import of torch."""
    who: dict[str, tuple[Contestant, str]] = {
        f"ndd, {cache} kernel cache": (peers.TRAIN["ndd"], cache) for cache in ("empty", "warm")
    }
    others = ("oracle dynamic", "oracle pipeline", "torchvision + DataLoader", "OpenCV + threads")
    who |= {n: (peers.TRAIN[n], "warm") for n in others if not settings.quick or n in QUICK}
    samples: dict[str, list[float]] = {name: [] for name in who}
    job = Job(photos.photos())
    with ExitStack() as stack:
        warm = stack.enter_context(tempfile.TemporaryDirectory())
        for r in range(-1, max(3, settings.rounds // 2)):  # the first round fills caches
            for name in rotated(list(who), r):
                contestant, cache = who[name]
                empty = stack.enter_context(tempfile.TemporaryDirectory())
                folder = {"NDD_CACHE_DIR": warm if cache == "warm" else empty}
                try:
                    with Process(contestant, job, folder) as process:
                        process.wait()
                        seconds = process.facts["seconds"] - process.facts["torch"]
                except Missing:
                    continue
                if r >= 0:
                    samples[name].append(seconds)
    rows = [
        Row.of("time to the first batch, ResNet-50 train", n, s) for n, s in samples.items() if s
    ]
    show(rows, "oracle dynamic", 1, "s")
    return rows
