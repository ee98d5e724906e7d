"""Runs loops for minutes and measures whether their memory grows.

`python -m bench soak --minutes 10` runs the ResNet-50 train loop; `python -m bench.soak 60 [REST]`
a loop with all kinds of kernels in turns of the four modes, broken files, failing calls and epochs
that are left.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import ndd

from . import peers, photos
from .contest import Process
from .harness import Row
from .peers import Job

WARM_SHARE = 0.2  # of the time, while pools and caches fill


def main(minutes: float, name: str = "ndd") -> list[Row]:
    """Slope of the resident memory in MB per minute, by least squares."""
    times, sizes = [], []
    with Process(peers.TRAIN[name], Job(photos.photos())) as process:
        process.wait()
        begin = time.perf_counter()
        while time.perf_counter() - begin < minutes * 60:
            process.ask(lead=0, batches=8)
            times.append((time.perf_counter() - begin) / 60)
            sizes.append(psutil.Process(process.pid).memory_info().rss / 2**20)
    first = int(len(times) * WARM_SHARE)
    slope = float(np.polyfit(times[first:], sizes[first:], 1)[0])
    print(
        f"{name}: {len(times) * 8 * 64} images in {minutes:g} minutes, RSS {sizes[first]:.1f} MB "
        f"after warming up, {sizes[-1]:.1f} MB at the end, slope {slope:+.3f} MB/min"
    )
    return [Row(f"soak, ResNet-50 train, {minutes:g} minutes", name, slope, "MB/min")]


# -- all kinds of work, with errors ---------------------------------------------------------------

EVERY = 5.0  # seconds between two measurements
BROKEN = 40  # of the files, one of this many is cut off


def mixed(minutes: float, rest: float = 0.0, note: Callable[[str], None] = print) -> float:
    """Read, decode, augment with all kinds of kernels, hand over to torch, and fail now and then.

    After each epoch it rests `rest` times as long as it worked, to leave the machine to others.
    """
    times: list[float] = []
    sizes: list[float] = []
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        files = _some_broken(photos.squares(96, 256), Path(folder))
        begin = time.perf_counter()
        for number in itertools.count():
            if time.perf_counter() - begin > minutes * 60:
                break
            mode = ("eager", "deferred", "sync_cpu", "sync_full")[number % 4]
            started = time.perf_counter()
            with ndd.EvalMode[mode]:
                count += _epoch(files, number)
            time.sleep(rest * (time.perf_counter() - started))
            now = (time.perf_counter() - begin) / 60
            if not times or now - times[-1] > EVERY / 60:
                times.append(now)
                sizes.append(_own_megabytes())
                resident = psutil.Process().memory_info().rss / 2**20
                note(f"{now:.2f} min, {count} images, {sizes[-1]:.1f} MB, RSS {resident:.1f} MB")
    first = int(len(times) * WARM_SHARE)
    slope = float(np.polyfit(times[first:], sizes[first:], 1)[0])
    note(
        f"mixed: {count} images in {minutes:g} minutes, {sizes[first]:.1f} MB after warming up, "
        f"{sizes[-1]:.1f} MB at the end, slope {slope:+.3f} MB/min"
    )
    return slope


def _own_megabytes() -> float:
    """Resident memory without files: pages of libraries come and go with the machine's load."""
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return sum(int(lines[key].split()[0]) for key in ("RssAnon", "RssShmem")) / 1024


def _some_broken(files: list[str], folder: Path) -> list[str]:
    """The files, with one of every `BROKEN` cut off."""
    found = []
    for k, file in enumerate(files):
        if k % BROKEN == 7:
            data = Path(file).read_bytes()
            file = str(folder / f"{k}.jpg")
            Path(file).write_bytes(data[: 20 + 37 * k % (len(data) - 20)])
        found.append(file)
    return found


def _epoch(files: list[str], number: int) -> int:
    """One epoch; every third with a file that is missing, every fifth is left in the middle."""
    ndd.decoders.errors.clear()
    names = [*files, "/nowhere.jpg"] if number % 3 == 0 else files
    reader = ndd.readers.File(
        files=names, random_shuffle=True, seed=number, on_error="skip"
    )  # fmt: skip
    rng = ndd.random.RNG(seed=number)
    count = 0
    for step, (jpegs, labels) in enumerate(reader.next_epoch(batch_size=16)):
        images = ndd.decoders.image(jpegs, on_error="fill", isolate=False)
        count += len(_augmented(images, rng, step).torch())
        labels.torch().add_(1)
        if step % 5 == 2:
            _fail(jpegs, images)
        if number % 5 == 4 and step == 3:
            break
    return count


def _augmented(images: Any, rng: Any, step: int) -> Any:
    """A chain of several kinds of kernels; the last one makes all samples equally large."""
    flips = ndd.random.coin_flip(batch_size=images.batch_size, rng=rng)
    angles = ndd.random.uniform(range=[-20, 20], batch_size=images.batch_size, rng=rng)
    x = ndd.flip(ndd.resize(images, size=[64 + step % 7, 72]), horizontal=flips)
    if step % 4 == 0:
        x = ndd.equalize(x)
    elif step % 4 == 1:
        x = ndd.rotate(ndd.color_twist(x, hue=20.0), angle=angles, keep_size=True)
    elif step % 4 == 2:
        x = ndd.experimental.median_blur(x, window_size=[3, 3])
    x = ndd.gaussian_blur(x, sigma=0.5 + step % 3)
    if step % 3 == 0:
        return ndd.normalize(x, axes=[0, 1], scale=64.0, shift=128.0)
    return ndd.crop_mirror_normalize(x, crop=[56, 56], mean=[120.0], std=[60.0])


def _fail(jpegs: Any, images: Any) -> None:
    """Calls that raise: at once, and when they run."""
    wrong: list[Callable[[], Any]] = [
        lambda: ndd.resize(images, size=[0, -1]),
        lambda: ndd.gaussian_blur(images, sigma="much"),
        lambda: images + ndd.tensor(np.zeros((3, 1, 7), np.float32)),
        lambda: ndd.decoders.image(ndd.cat(jpegs, jpegs).slice[5:]).evaluate(),
    ]
    for call in wrong:
        with contextlib.suppress(ValueError, TypeError):
            call().evaluate()


if __name__ == "__main__":
    mixed(*map(float, sys.argv[1:3]), note=lambda text: print(text, flush=True))
