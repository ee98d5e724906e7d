"""The demo: JPEG files become normalised batches, fused and op by op; prints the plan and speeds.

Everything that it prints was measured or read in the same run.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import ndd

from .photos import total_bytes, write_data_set
from .progress import progress

MEAN, STD = [123.7, 116.3, 103.5], [58.4, 57.1, 57.4]
FILES, BATCH_SIZE = 256, 64
VIEWS = 5  # of each picture on the contact sheet
CELL = 160  # pixels of a picture on the contact sheet


def augment(jpegs: ndd.Batch) -> tuple[ndd.Batch, ndd.Batch]:
    """Decode, random crop, colour, mirror, normalise: the result, and the images before the end."""
    n = jpegs.batch_size

    def draw(low: float, high: float) -> ndd.Batch:
        return ndd.random.uniform(range=[low, high], batch_size=n)

    x = ndd.decoders.image(jpegs)
    x = ndd.random_resized_crop(x, size=[224, 224])
    x = ndd.color_twist(x, brightness=draw(0.7, 1.3), hue=draw(-12, 12), saturation=draw(0.6, 1.5))
    x = ndd.flip(x, horizontal=ndd.random.coin_flip(batch_size=n))
    return ndd.crop_mirror_normalize(x, mean=MEAN, std=STD), x


def to_framework() -> tuple[str, Callable[[ndd.Batch], Any]]:
    """Who gets the batches, and how: torch if it is installed, else NumPy."""
    if importlib.util.find_spec("torch") is not None:
        return "torch", lambda x: x.torch()
    return "NumPy", lambda x: np.asarray(ndd.as_tensor(x))


def main(output: str = "demo.png", seconds: float = 3.0, photos: str | None = None) -> None:
    """Run the demo: `seconds` is how long each of the two programs is measured."""
    ndd.random.set_seed(1)  # the same windows, so the same bytes and the same pictures, every time
    with tempfile.TemporaryDirectory(prefix="ndd-demo-") as folder:
        root = Path(folder)
        about = write_data_set(root, FILES, photos)
        size = total_bytes(list(root.rglob("*.jpg"))) / 1e6
        print(f"{FILES} JPEG files, {size:.1f} MB: {about}")
        name, hand_over = to_framework()
        _first_batch(root, hand_over)
        print(f"\n{_plan(root)}\n")
        _compare(root, hand_over, name, seconds)
        path = Path(output)
        contact_sheet(root, path)
        print(f"each picture, and {VIEWS} views of it: {path.resolve()}")


def _reader(root: Path) -> ndd.readers.File:
    return ndd.readers.File(file_root=root, random_shuffle=True, seed=1)


def _first_batch(root: Path, hand_over: Callable[[ndd.Batch], Any]) -> None:
    start = time.perf_counter()
    jpegs, _ = _reader(root)(batch_size=BATCH_SIZE)
    hand_over(augment(jpegs)[0])
    took = time.perf_counter() - start
    print(
        f"first batch of {BATCH_SIZE} after {took:.2f} s; compiled kernels are kept for next time"
    )


def _plan(root: Path) -> Any:
    """What `ndd.explain` says about a batch."""
    with ndd.EvalMode.deferred:
        jpegs, _ = _reader(root)(batch_size=BATCH_SIZE)
        return ndd.explain(augment(jpegs)[0])


@contextmanager
def _fusion(on: bool) -> Iterator[None]:
    before = os.environ.get("NDD_FUSION")
    os.environ["NDD_FUSION"] = "1" if on else "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ["NDD_FUSION"]
        else:
            os.environ["NDD_FUSION"] = before


def _compare(root: Path, hand_over: Callable[[ndd.Batch], Any], name: str, seconds: float) -> None:
    """Measure whole epochs of both programs in turns, so that disturbances meet both."""
    readers = {True: _reader(root), False: _reader(root)}
    times: dict[bool, list[float]] = {True: [], False: []}
    for fused, reader in readers.items():  # not measured: compiles, and fills caches
        _epoch(reader, fused, hand_over)
    once = sum(_epoch(reader, fused, hand_over) for fused, reader in readers.items())
    rounds = max(1, round(2 * seconds / once))
    for _ in progress(range(rounds), rounds, "epochs, fused and op by op"):
        for fused, reader in readers.items():
            times[fused].append(_epoch(reader, fused, hand_over))
    fast, slow = (FILES / statistics.median(times[fused]) for fused in (True, False))
    print(
        f"from files to normalised float32 batches of {name}, {ndd.get_num_threads()} threads, "
        f"median of {rounds} epochs:\n"
        f"  fused      {fast:7,.0f} images/s\n"
        f"  op by op   {slow:7,.0f} images/s   (NDD_FUSION=0: every op stores its result)"
    )


def _epoch(reader: ndd.readers.File, fused: bool, hand_over: Callable[[ndd.Batch], Any]) -> float:
    """Seconds that an epoch takes."""
    with _fusion(fused):
        start = time.perf_counter()
        for jpegs, _ in reader.next_epoch(batch_size=BATCH_SIZE):
            hand_over(augment(jpegs)[0])
        return time.perf_counter() - start


def contact_sheet(root: Path, path: Path, cell: int = CELL) -> None:
    """A row for the first file of each folder: the picture, then views of it."""
    rows = []
    for file in sorted(root.glob("*/*.jpg"))[:: FILES // len(list(root.iterdir()))]:
        jpeg = np.fromfile(file, np.uint8)
        views = augment(ndd.batch([jpeg] * VIEWS))[1]
        whole = ndd.resize(ndd.imread(file), size=[cell, cell], mode="not_larger")
        rows += [np.asarray(whole), *map(np.asarray, ndd.resize(views, size=[cell, cell]))]
    ndd.show(rows, path, columns=1 + VIEWS)
