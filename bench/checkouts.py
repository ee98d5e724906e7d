"""`python -m bench.checkouts OTHER` compares this checkout with another one, in turns, in a table.

It is for changes that must not cost time: every workload runs in one process per checkout, and the
two are measured alternately. A ratio above 1 means that this checkout is slower. A ratio within the
spreads of the two sides means nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from . import photos

HERE = Path(__file__).parents[1]
ROUNDS = 9
# Each program defines `once()`, which does a fraction of a second of work.
_LOOP = """
    import itertools, ndd
    ndd.set_num_threads(2)
    files = {files!r}
    reader = ndd.readers.File(files=files, labels=[k % 8 for k in range(len(files))])
    def epochs():
        while True:
            for jpegs, labels in reader.next_epoch(batch_size={batch}):
                x = ndd.decoders.image(jpegs)
                {body}
                yield x.torch(), labels.torch()
    loop = epochs()
    def once():
        for _ in range({batches}):
            next(loop)
"""
_NORMALISE = "mean=[124.0, 116.0, 104.0], std=[58.0, 57.0, 57.0]"
_EVAL = f"x = ndd.crop_mirror_normalize(ndd.resize(x, size=[224, 224]), {_NORMALISE})"
_TRAIN = (
    "x = ndd.crop_mirror_normalize(ndd.random_resized_crop(x, size=[224, 224]), "
    f"mirror=ndd.random.coin_flip(batch_size={{batch}}), {_NORMALISE})"
)
_IMAGES = """
    import numpy as np, ndd
    ndd.set_num_threads({threads})
    rng = np.random.default_rng(0)
    batch = ndd.batch([rng.integers(0, 256, {shape}, dtype=np.uint8) for _ in range({count})],
                      layout="HWC")
    def once():
        with ndd.EvalMode.{mode}:
            for _ in range({times}):
                {body}
"""


def _images(
    body: str, count: int = 16, shape: str = "(400, 500, 3)", times: int = 4, threads: int = 1,
    mode: str = "deferred",
) -> str:  # fmt: skip
    return _IMAGES.format(
        body=body, count=count, shape=shape, times=times, threads=threads, mode=mode
    )


def programs() -> dict[str, str]:
    """Source of all workloads."""
    files = photos.photos()
    # A sample is a whole epoch. Else samples would begin with batches made in advance or without,
    # in turns, and so would the turns of the two sides: always the same side would seem slower.
    found = {
        "decode + .torch() of crops, batch 64": _LOOP.format(
            files=files, batch=64, batches=len(files) // 64, body="x = ndd.crop(x, crop=[224, 224])"
        ),
    }
    for batch, batches in ((64, len(files) // 64), (8, len(files) // 8)):
        for name, body in (("eval", _EVAL), ("train", _TRAIN.format(batch=batch))):
            found[f"{name}, 2 threads, batch {batch}"] = _LOOP.format(
                files=files, batch=batch, batches=batches, body=body
            )
    twist = "x = ndd.color_twist(batch, hue=20.0, saturation=1.3); "
    resize = "x = ndd.resize(batch, size=[224, 224]); "
    normalise = f"ndd.crop_mirror_normalize(x, {_NORMALISE}).evaluate()"
    found |= {
        "colour twist + normalise": _images(twist + normalise),
        "resize 224² + normalise": _images(resize + normalise),
        "rotate 25°": _images("ndd.rotate(batch, angle=25.0).evaluate()", times=2),
        "pad + flip + brightness": _images(
            "ndd.brightness(ndd.flip(ndd.pad(batch, align=[64, 64, 1])), brightness=1.5).evaluate()"
        ),
        "pointwise chain": _images(
            "ndd.cast(ndd.math.sqrt(ndd.cast(batch, dtype=ndd.float32) * 1.5 + 2.0), "
            "dtype=ndd.float16).evaluate()"
        ),
    }
    for mode in ("deferred", "eager", "sync_cpu"):
        for op, call in (
            ("brightness", "ndd.brightness(batch, brightness=1.5)"),
            ("x + 1", "(batch + 1)"),
            ("flip", "ndd.flip(batch)"),
        ):
            found[f"one call of {op} on 8 × 4×4×3, {mode}"] = _images(
                f"{call}.evaluate()", 8, "(4, 4, 3)", 2000 if op != "flip" else 400, 1, mode
            )
    return found


_WORKER = """
import sys, time
{program}
once(); once()
print("ready", flush=True)
for line in sys.stdin:
    start = time.perf_counter()
    once()
    print(time.perf_counter() - start, flush=True)
"""


class Side:
    """One workload in a process of one checkout."""

    def __init__(self, checkout: Path, program: str) -> None:
        code = _WORKER.format(program=textwrap.dedent(program))
        env = {**os.environ, "PYTHONPATH": str(checkout), "OMP_WAIT_POLICY": "PASSIVE"}
        env["NDD_TIERS"] = "0"  # the steady state is compared: wait for fused kernels
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], cwd=checkout, env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._answer() == "ready"

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError("a workload has failed; its error is above")
        return line

    def seconds(self) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return float(self._answer())


def compared(other: Path, program: str, rounds: int) -> tuple[list[float], list[float]]:
    """Samples of this checkout and of the other one, taken in turns."""
    with ExitStack() as stack:
        sides = [stack.enter_context(Side(path, program)) for path in (HERE, other)]
        samples: tuple[list[float], list[float]] = ([], [])
        for r in range(rounds):
            for k in (0, 1) if r % 2 else (1, 0):
                samples[k].append(sides[k].seconds())
    return samples


def spread(samples: list[float]) -> float:
    """The range of the middle half of the samples, relative to the median."""
    ordered = sorted(samples)
    quarter = len(ordered) // 4
    return (ordered[-1 - quarter] - ordered[quarter]) / median(ordered)


def main(arguments: list[str]) -> int:
    other, rounds = Path(arguments[0]).resolve(), int((arguments[1:] or [ROUNDS])[0])
    print(
        f"| workload | {other.name} | here | here / {other.name} | spreads |\n|---|--:|--:|--:|--:|"
    )
    for name, program in programs().items():
        mine, theirs = compared(other, program, rounds)
        ratio = median(m / t for m, t in zip(mine, theirs, strict=True))
        spreads = f"{spread(theirs):.0%}, {spread(mine):.0%}"
        print(
            f"| {name} | {median(theirs) * 1e3:.1f} ms | {median(mine) * 1e3:.1f} ms | {ratio:.3f} "
            f"| {spreads} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
