"""Damaged sound files: `python -m tests.faults.sounds KIND SEED COUNT` decodes mutated files.

Every file gives samples or a ValueError; it prints how many of each there were. Bytes are changed,
cut, repeated or set to extreme values, most of them in the header, where lengths and rates are.
"""

from __future__ import annotations

import io
import resource
import sys

import numpy as np

import ndd

KINDS = {"wav": ("WAV", "PCM_16"), "flac": ("FLAC", None), "vorbis": ("OGG", "VORBIS"),
         "opus": ("OGG", "OPUS"), "mp3": ("MP3", None)}  # fmt: skip
MAX_GROWTH = 1 << 30  # bytes


def original(kind: str, seed: int) -> np.ndarray:
    import soundfile

    rng = np.random.default_rng(seed)
    n, channels = int(rng.integers(1, 3000)), int(rng.integers(1, 3))
    tone = np.sin(np.arange(n) * rng.uniform(0.01, 1))[:, None] * rng.uniform(0.1, 1, channels)
    file = io.BytesIO()
    soundfile.write(file, tone, 48000, format=KINDS[kind][0], subtype=KINDS[kind][1])
    return np.frombuffer(file.getvalue(), np.uint8)


def mutated(data: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    data = data.copy()
    for _ in range(int(rng.integers(1, 4))):
        near = int(rng.integers(0, min(len(data), 64 if rng.random() < 0.6 else len(data)) or 1))
        how = int(rng.integers(0, 5))
        if not len(data):
            break
        if how == 0:
            data[near] = rng.integers(0, 256)
        elif how == 1:
            data[near : near + 4] = rng.choice([0, 255, 127, 128])
        elif how == 2:
            data = data[: near + 1]
        elif how == 3:
            data[near] ^= 1 << rng.integers(0, 8)
        else:
            data = np.concatenate([data[:near], data[: near // 2], data[near:]])
    return data


def main(kind: str, seed: int, count: int) -> None:
    decoded = refused = 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for k in range(seed, seed + count):
        rng = np.random.default_rng(k)
        data = mutated(original(kind, k % 50), rng)
        print(k, file=sys.stderr, flush=True)  # the last number is the file that ended the process
        try:
            samples, rate = ndd.decoders.audio(ndd.tensor(data), downmix=bool(k % 2))
            np.asarray(samples), rate.item()
            decoded += 1
        except ValueError:
            refused += 1
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        assert grown < MAX_GROWTH, f"file {k} took {grown >> 20} MB"
    print(f"{kind}: {decoded} decoded, {refused} refused")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
