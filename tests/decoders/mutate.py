"""Decode damaged files: `python -m tests.decoders.mutate COUNT`. Prints one line of JSON.

Every format gets its share of inverted bytes, truncations and runs of random bytes. From 20,000
files on, every byte of a small file of every format is inverted, too. Half of the batches are
resampled as they are decoded.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator

import numpy as np

import ndd
from tests.decoders.fixtures import as_bytes, files

# Files that take different parsers and decoders; the others are variants of these.
CHOSEN = ("jpeg", "jpeg_progressive", "jpeg_exif6", "jpeg_cmyk", "png", "png_palette", "png_16",
          "bmp", "tiff", "tiff_deflate", "webp", "webp_lossless", "jp2", "pnm")  # fmt: skip
# The smallest of each format: every byte of these is inverted.
SMALL = ("jpeg_grey", "jpeg_progressive", "png_1bit", "png_palette", "bmp_grey", "tiff_grey", "webp",
         "jp2_grey", "pnm_1bit", "pnm_text")  # fmt: skip
EVERY_BYTE = 20_000
BATCH = 16


def mutations(data: bytes, count: int, seed: int) -> Iterator[bytes]:
    rng = np.random.default_rng(seed)
    size = len(data)
    for k in range(count):
        bad = bytearray(data)
        kind = k % 4
        if kind < 2:  # offsets cover the file evenly, and the header densely
            span = min(size, 700) if kind == 0 else size
            at = (k // 4) * 7919 % span
            bad[at] ^= int(rng.choice([0xFF, 0x01, 0x80, 0x10]))
        elif kind == 2:
            bad = bad[: int(rng.integers(0, size))]
        else:
            at, run = int(rng.integers(0, size)), int(rng.integers(1, 24))
            bad[at : at + run] = rng.bytes(run)
        yield bytes(bad)


def inversions(data: bytes) -> Iterator[bytes]:
    """The file with one byte inverted, for every byte."""
    for at in range(len(data)):
        yield data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


def damaged(total: int) -> Iterator[tuple[str, list[bytes]]]:
    """Names of files with damaged versions of them, at least `total` in all."""
    whole = {name: list(inversions(files()[name])) for name in SMALL if total >= EVERY_BYTE}
    yield from whole.items()
    share = -(-(total - sum(map(len, whole.values()))) // len(CHOSEN))
    for number, name in enumerate(CHOSEN):
        yield name, list(mutations(files()[name], share, number))


def main(total: int) -> None:
    counts = {"decoded": 0, "refused": 0}
    ndd.decoders.set_max_pixels(1 << 22)  # more would only take longer
    good = as_bytes(files()["png"])
    start_kb = 0
    for number, (_, bad_files) in enumerate(damaged(total)):
        batch: list[bytes] = []
        for k, bad in enumerate(bad_files):
            if k % 8 == 0:  # alone: the error names the sample
                try:
                    ndd.decoders.image(ndd.tensor(as_bytes(bad))).evaluate()
                    counts["decoded"] += 1
                except ValueError as error:
                    assert "decoders.image: sample 0" in str(error), error
                    counts["refused"] += 1
            else:
                batch.append(bad)
            if len(batch) == BATCH or k == len(bad_files) - 1:
                encoded = ndd.batch([good, *map(as_bytes, batch)])
                ndd.decoders.errors.clear()
                with ndd.EvalMode.deferred:
                    x = ndd.decoders.image(encoded, on_error="fill")
                    if k // BATCH % 2:  # only regions, by the native loop where possible
                        x = ndd.random_resized_crop(x, size=[9, 8])
                    x.evaluate()
                assert x.batch_size == len(batch) + 1
                failed = len(ndd.decoders.errors)
                counts["refused"] += failed
                counts["decoded"] += len(batch) - failed
                batch = []
            if number == 1 and k == 0:
                start_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        np.testing.assert_array_equal(
            ndd.decoders.image(ndd.tensor(good)), ndd.decoders.image(ndd.batch([good])).tensors[0]
        )
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start_kb
    print(json.dumps({**counts, "grown_mb": grown_kb >> 10}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
