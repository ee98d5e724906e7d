"""Damaged sound files: `python -m tests.faults.sounds flac 1 1000` decodes 1000 of them.

Every file gives samples or a ValueError. Bytes are changed, cut, repeated or set to extreme values, most of them in
the header, where lengths and rates are. What a header claims must not decide how much memory is taken. Half of the
FLAC files use all that the format allows; damage to the only frame of the others is followed by the right checksum,
so that the decoder does not stop at it.
"""

from __future__ import annotations

import io
import resource
import time
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import ndd
from tests.decoders.flac_writer import Writer, with_checksum
from tests.faults.child import Resources, main, numbers, size_limit

WHATS = {
    "wav": ("WAV", "PCM_16"), "flac": ("FLAC", None), "vorbis": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"), "mp3": ("MP3", None), "all": (),
}  # fmt: skip
KINDS = [kind for kind in WHATS if kind != "all"]
MOST_MEMORY = 1 << 30
MOST_SECONDS = 10.0  # of CPU time


@cache
def original(kind: str, seed: int) -> bytes:
    import soundfile

    rng = np.random.default_rng(seed)
    if kind == "flac" and seed % 2:
        return Writer(rng).file(int(rng.integers(1, 4)))
    n, channels = int(rng.integers(1, 3000)), int(rng.integers(1, 3))
    tone = np.sin(np.arange(n) * rng.uniform(0.01, 1))[:, None] * rng.uniform(0.1, 1, channels)
    file = io.BytesIO()
    form, subtype = WHATS[kind]
    soundfile.write(file, tone, 48000, format=form, subtype=subtype)
    return file.getvalue()


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """A file with one to three mutations."""
    found = np.frombuffer(data, np.uint8).copy()
    for _ in range(size_limit(int(rng.integers(1, 4)))):
        if not len(found):
            break
        near = int(rng.integers(0, min(len(found), 64 if rng.random() < 0.6 else len(found))))
        how = int(rng.integers(0, 5))
        if how == 0:
            found[near] = rng.integers(0, 256)
        elif how == 1:
            found[near : near + 4] = rng.choice([0, 255, 127, 128])
        elif how == 2:
            found = found[: near + 1]
        elif how == 3:
            found[near] ^= 1 << rng.integers(0, 8)
        else:
            found = np.concatenate([found[:near], found[: near // 2], found[near:]])
    return found.tobytes()


def with_frame_checksum(data: bytes) -> bytes:
    """A FLAC file whose only frame has the checksum that it should have."""
    at = data.find(b"\xff\xf8")
    return data if at < 0 else data[:at] + with_checksum(data[at:])


def decoded(data: bytes, number: int) -> str:
    """What becomes of a file in one of several calls."""
    options: dict[str, Any] = {
        "downmix": bool(number % 2),
        "on_error": "fill" if number % 3 == 0 else "raise",
    }
    if number % 4 == 0:
        options["sample_rate"] = 16000.0
    before = len(ndd.decoders.errors)
    try:
        samples, rate = ndd.decoders.audio(ndd.tensor(np.frombuffer(data, np.uint8)), **options)
        array = np.asarray(samples)
        assert array.ndim == 2 - options["downmix"] and rate.item() > 0
    except ValueError:
        return "refused"
    return "decoded" if len(ndd.decoders.errors) == before else "filled"


def attack(what: str, seed: int, count: int) -> dict[str, Any]:
    kinds = KINDS if what == "all" else [what]
    for number in range(12):  # kernels and libraries are loaded before memory is limited
        decoded(original(kinds[number % len(kinds)], 0), number)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MOST_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    counts: Counter[str] = Counter(tried=0)
    memory = Resources()
    for number in numbers(count):
        rng = np.random.default_rng([seed, number])
        kind, which = kinds[number % len(kinds)], int(rng.integers(50))
        data = mutated(original(kind, which), rng)
        if kind == "flac" and which % 2 == 0:
            data = with_frame_checksum(data)
        begin = time.process_time()
        counts[decoded(data, number)] += 1
        seconds = time.process_time() - begin
        assert seconds < MOST_SECONDS, f"case {number} took {seconds:.1f} s"
        counts["tried"] += 1
    memory.check()
    return dict(counts)


if __name__ == "__main__":
    main(attack)
