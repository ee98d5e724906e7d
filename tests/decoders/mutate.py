"""Decode damaged files: `python -m tests.decoders.mutate COUNT`. Prints one line of JSON.

Every format gets its share: each byte of a file inverted, truncations, runs of random bytes. Half
of the batches are resampled as they are decoded.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator

import numpy as np

import ndd
from tests.decoders.fixtures import as_bytes, files

# Files that differ in their parsers and decoders; the others are variants of these.
CHOSEN = ("jpeg", "jpeg_progressive", "jpeg_exif6", "jpeg_cmyk", "png", "png_palette", "png_16",
          "bmp", "tiff", "tiff_deflate", "webp", "webp_lossless", "jp2", "pnm")  # fmt: skip
BATCH = 16


def mutations(data: bytes, count: int, seed: int) -> Iterator[bytes]:
    rng = np.random.default_rng(seed)
    size = len(data)
    for k in range(count):
        bad = bytearray(data)
        kind = k % 4
        if kind < 2:  # bytes at offsets that cover the file evenly, the header above all
            span = min(size, 700) if kind == 0 else size
            at = (k // 4) * 7919 % span
            bad[at] ^= int(rng.choice([0xFF, 0x01, 0x80, 0x10]))
        elif kind == 2:
            bad = bad[: int(rng.integers(0, size))]
        else:
            at, run = int(rng.integers(0, size)), int(rng.integers(1, 24))
            bad[at : at + run] = rng.bytes(run)
        yield bytes(bad)


def main(total: int) -> None:
    share = -(-total // len(CHOSEN))
    counts = {"decoded": 0, "refused": 0}
    ndd.decoders.set_max_pixels(1 << 22)  # more would only take time
    good = as_bytes(files()["png"])
    start_kb = 0
    for number, name in enumerate(CHOSEN):
        batch: list[bytes] = []
        for k, bad in enumerate(mutations(files()[name], share, number)):
            if k % 8 == 0:  # by itself: an error, which names the sample
                try:
                    ndd.decoders.image(ndd.tensor(as_bytes(bad))).evaluate()
                    counts["decoded"] += 1
                except ValueError as error:
                    assert "decoders.image: sample 0" in str(error), error
                    counts["refused"] += 1
            else:
                batch.append(bad)
            if len(batch) == BATCH or k == share - 1:
                encoded = ndd.batch([good, *map(as_bytes, batch)])
                ndd.decoders.errors.clear()
                with ndd.EvalMode.deferred:
                    x = ndd.decoders.image(encoded, on_error="fill")
                    if k // BATCH % 2:  # in parts, by the loop that is native where it can be
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
