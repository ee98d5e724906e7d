"""Damaged video files: `python -m tests.faults.videos mp4 1 1000` decodes 1000 of them.

Every file gives frames or a ValueError that names the sample, and the frame if the container is readable. Bytes are
changed, cut, repeated or set to extreme values, in headers, tables and pictures. What a header claims must not decide
how much memory is taken.
"""

from __future__ import annotations

import resource
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import ndd
from ndd.kernels.common.buffers import POOL
from tests.decoders.clips import CLIPS, encoded
from tests.faults.child import Resources, main, numbers, size_limit

KINDS = {
    "mp4": ("h264-open.mp4", "hevc.mp4", "mpeg4.mp4", "mjpeg.mp4", "vp9.mp4"),
    "mkv": ("h264.mkv", "vp8.webm", "vp9.webm", "av1.mkv"),
    "avi": ("h264.avi", "mpeg4.avi", "mjpeg.avi"),
    "ts": ("h264.ts",),
}
WHATS = {**KINDS, "all": tuple(name for names in KINDS.values() for name in names)}
assert set(WHATS["all"]) <= CLIPS.keys()
FRAMES = 6
MOST_MEMORY = 1 << 30
MOST_SECONDS = 10.0  # of CPU time
# Where containers keep the tables of their packets.
_TABLES = (b"stsz", b"stts", b"stsc", b"stco", b"ctts", b"stss", b"stsd", b"avcC", b"mdhd", b"elst",
           b"idx1", b"strf", b"strh", b"avih", b"movi")  # fmt: skip


def mutated(data: Any, rng: np.random.Generator) -> Any:
    """A file with one to three mutations."""
    found = data.copy()
    for _ in range(size_limit(int(rng.integers(1, 4)))):
        if not len(found):
            break
        near, how = _place(found, rng), int(rng.integers(0, 6))
        if how == 0:
            found[near] = rng.integers(0, 256)
        elif how == 1:
            found[near : near + 4] = rng.choice([0, 255, 127, 128])
        elif how == 2:
            found = found[: near + 1]
        elif how == 3:
            found[near] ^= 1 << rng.integers(0, 8)
        elif how == 4:
            found = np.concatenate([found[:near], found[: near // 2], found[near:]])
        else:
            noise = rng.integers(0, 256, int(rng.integers(1, 200)))
            found[near : near + len(noise)] = noise[: len(found) - near]
    return found


def _place(data: Any, rng: np.random.Generator) -> int:
    """A position: in a table, in the first bytes, or anywhere."""
    content = data.tobytes()
    tables = [at for name in _TABLES if (at := content.find(name)) >= 0]
    if tables and rng.random() < 0.4:
        return min(int(rng.choice(tables)) + int(rng.integers(0, 40)), len(data) - 1)
    limit = 256 if rng.random() < 0.3 else len(data)
    return int(rng.integers(0, min(len(data), limit)))


def decoded(data: Any, number: int) -> str:
    """What becomes of a file in one of several calls."""
    options: dict[str, Any] = {"on_error": "fill" if number % 3 == 0 else "raise"}
    if number % 2:
        options |= {"start_frame": 1, "sequence_length": 4, "stride": 2, "pad_mode": "edge"}
    before = len(ndd.decoders.errors)
    try:
        video = ndd.decoders.video(ndd.tensor(data), **options)
        if number % 5 == 0 and video.shape[0]:
            video = ndd.resize(video, size=[8, 8])
        array = np.asarray(video)
        assert array.ndim == 4 and array.shape[3] == 3
    except ValueError as error:
        text = str(error)
        assert "sample 0" in text or "start_frame" in text, text
        return "refused: a frame" if "frame " in text else "refused"
    return "decoded" if len(ndd.decoders.errors) == before else "filled"


def attack(what: str, seed: int, count: int) -> dict[str, Any]:
    names = WHATS[what]
    for number in range(12):  # kernels and libraries are loaded before memory is limited
        decoded(encoded(names[number % len(names)], FRAMES), number)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MOST_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    counts: Counter[str] = Counter(tried=0)
    POOL.set_limit(16 << 20)  # so that growth shows
    memory = Resources()
    for number in numbers(count):
        rng = np.random.default_rng([seed, number])
        data = mutated(encoded(names[number % len(names)], FRAMES), rng)
        begin = time.process_time()
        counts[decoded(data, number)] += 1
        seconds = time.process_time() - begin
        assert seconds < MOST_SECONDS, f"case {number} took {seconds:.1f} s"
        counts["tried"] += 1
    memory.check()
    return dict(counts)


if __name__ == "__main__":
    main(attack)
