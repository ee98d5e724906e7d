"""Clips of video files: lists of files, ranges and steps enter, a table of sequences leaves."""

from __future__ import annotations

import math
import os
import warnings
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from ...codecs.video.index_cache import Known, index_of_file, known
from ...codecs.video.selection import padded
from ...fusion.graph.shapes import Array

Failed = Callable[[str, int, Exception], None]


class Entry(NamedTuple):
    """A file, or a part of one: its label, and where it starts and ends, as the list tells."""

    path: bytes
    label: int
    start: float | None = None
    end: float | None = None


class Steps(NamedTuple):
    """How sequences are laid over a video."""

    length: int
    stride: int
    step: int
    pad_mode: str  # "none": only complete sequences
    is_uniform: bool = False  # one sequence per video, evenly spread

    def starts(self, begin: int, end: int) -> list[int]:
        """The first frames of all sequences of the frames [begin, end)."""
        if end <= begin:
            return []
        if self.is_uniform:
            return [begin]
        span = self.length * self.stride
        found = list(range(begin, end - span + 1, self.step))
        if self.pad_mode != "none":
            following = found[-1] + self.step if found else begin
            found += [following] if following < end else []
        return found

    def frames(self, start: int, begin: int, end: int, count: int) -> Array:
        """The frames of a sequence in a video of `count` frames; -1 for those that are filled."""
        if self.is_uniform:
            places = begin + np.linspace(0, end - begin - 1, self.length)
            return np.floor(places + 0.5).astype(np.int64)
        wanted = start + self.stride * np.arange(self.length)
        # Padding begins where the range ends: the last frame of the range is the edge.
        return padded(wanted, min(end, count), self.pad_mode)


class Ranges(NamedTuple):
    """How the start and the end of an entry become frames."""

    is_frames: bool
    round_start: Callable[[float], int]
    round_end: Callable[[float], int]
    by_rate: bool = False  # seconds times the frame rate, as upstream's older readers count

    def of(self, entry: Entry, about: Known) -> tuple[int, int]:
        """The frames [begin, end) of an entry."""
        count = about.frames
        if entry.start is None:
            return 0, count
        if self.is_frames:
            begin = self._counted(self.round_start(entry.start), count)
            end = count if entry.end is None else self._counted(self.round_end(entry.end), count)
        elif self.by_rate:
            begin = self.round_start(entry.start * about.fps)
            end = count if entry.end is None else self.round_end(entry.end * about.fps)
        else:
            times = index_of_file(entry.path).seconds()
            begin = _place(times, entry.start, self.round_start)
            end = count if entry.end is None else _place(times, entry.end, self.round_end)
        return max(begin, 0), min(end, count)

    def _counted(self, number: int, count: int) -> int:
        return number + count if number < 0 else number


def _place(times: Array, seconds: float, rounding: Callable[[float], int]) -> int:
    """The frame at a time: the last one that is not later, or the first one that is not earlier."""
    if rounding is math.floor:
        return max(int(np.searchsorted(times, seconds, side="right")) - 1, 0)
    return int(np.searchsorted(times, seconds, side="left"))


class Clips:
    """All sequences of a data set; a million of them take 24 MB."""

    def __init__(self, entries: Sequence[Entry], steps: Steps, ranges: Ranges) -> None:
        self.entries, self.steps, self._ranges = list(entries), steps, ranges
        self.entry = np.zeros(0, np.int64)  # of each sequence
        self.start = np.zeros(0, np.int64)  # its first frame
        self.range = np.zeros((len(entries), 2), np.int64)
        self.counts = np.zeros(len(entries), np.int64)  # frames of each file

    def find(self, failed: Failed) -> None:
        """Index all files, several at a time, and list their sequences."""
        # Most of the work is FFmpeg's or the disk's, which do not hold the interpreter.
        with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
            found = list(threads.map(_known_or_error, [e.path for e in self.entries], chunksize=16))
        owners: list[Array] = []
        starts: list[Array] = []
        for k, (entry, about) in enumerate(zip(self.entries, found, strict=True)):
            if isinstance(about, Exception):
                failed(os.fsdecode(entry.path), k, about)
                continue
            begin, end = self._ranges.of(entry, about)
            own = self.steps.starts(begin, end)
            if not own and end <= begin:
                name = os.fsdecode(entry.path)
                warnings.warn(f"{name!r} has no frames from {begin} to {end}", stacklevel=2)
            self.range[k], self.counts[k] = (begin, end), about.frames
            starts.append(np.array(own, np.int64))
            owners.append(np.full(len(own), k))
        if starts:
            self.start, self.entry = np.concatenate(starts), np.concatenate(owners)

    def __len__(self) -> int:
        return len(self.start)

    def path(self, index: int) -> bytes:
        return self.entries[int(self.entry[index])].path

    def label(self, index: int) -> int:
        return self.entries[int(self.entry[index])].label

    def frames(self, index: int) -> Array:
        """The numbers of the frames of a sequence."""
        k = int(self.entry[index])
        begin, end = self.range[k].tolist()
        return self.steps.frames(int(self.start[index]), begin, end, int(self.counts[k]))

    def fingerprint(self) -> str:
        """Short text that differs between different sets of sequences."""
        total = zlib.crc32(self.start.tobytes(), zlib.crc32(self.entry.tobytes()))
        for entry in self.entries:
            total = zlib.crc32(os.path.basename(entry.path), total)  # noqa: PTH119  (bytes)
        return f"{len(self)}-{total:08x}"


def _known_or_error(path: bytes) -> Known | Exception:
    try:
        return known(path)
    except (OSError, ValueError) as error:
        return error


def read_file_list(path: str, content: bytes) -> list[Entry]:
    """Lines with a file, a label and, if given, a start and an end."""
    folder = os.fsencode(path.rpartition("/")[0])
    found: list[Entry] = []
    for number, line in enumerate(content.splitlines(), 1):
        parts = line.split()
        if not parts:
            continue
        try:
            name, label, *rest = parts
            bounds = [float(r) for r in rest]
            if len(bounds) > 2 or not all(map(math.isfinite, bounds)):
                raise ValueError
            entry = Entry(os.path.join(folder, name), int(label), *bounds)  # noqa: PTH118  (bytes)
        except ValueError:
            raise ValueError(
                f"line {number} of {path!r} must be a file, a label and at most a start and an "
                f"end, got {os.fsdecode(line)[:200]!r}"
            ) from None
        if entry.end is not None and entry.start == entry.end:
            warnings.warn(f"line {number} of {path!r} is an empty range", stacklevel=2)
            continue
        found.append(entry)
    return found


def rounded(mode: Any) -> tuple[Callable[[float], int], Callable[[float], int]]:
    """Functions for starts and ends."""
    up, down = math.ceil, math.floor
    modes = {"start_down_end_up": (down, up), "start_up_end_down": (up, down),
             "all_up": (up, up), "all_down": (down, down)}  # fmt: skip
    if mode not in modes:
        raise ValueError(f"`file_list_rounding` must be one of {', '.join(modes)}, got {mode!r}")
    return modes[mode]
