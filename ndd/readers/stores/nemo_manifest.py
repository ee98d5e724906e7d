"""Manifests of speech: lines of JSON enter, a compact list of utterances leaves."""

from __future__ import annotations

import itertools
import json
import math
import os
import warnings
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...fusion.graph.shapes import Array
from ..names import Names
from .byte_files import read_whole
from .remote import RemoteOptions

_CHUNK = 1 << 12  # lines that exist as Python objects at a time


class DurationLimits(NamedTuple):
    """The shortest and the longest duration, in seconds; none if not positive."""

    shortest: float
    longest: float

    def fit(self, duration: float) -> bool:
        """Whether an utterance is to be read. An unknown duration is -1."""
        if self.longest > 0 and duration > self.longest:
            return False
        return not (self.shortest > 0 and duration < self.shortest)


class _Utterance(NamedTuple):
    file: bytes
    text: bytes
    offset: float
    duration: float


class Utterances:
    """All utterances of some manifests: files, parts of them and texts.

    The numbers of a million utterances take 24 MB, and their files and texts little more than
    their bytes.
    """

    def __init__(self) -> None:
        self._files, self._texts = Names(), Names()
        self._seconds = [np.zeros((0, 2))]
        self._numbers = [np.zeros(0, np.int64)]

    def add(self, found: Sequence[_Utterance], first: int) -> None:
        """Append utterances of a manifest, which are counted from `first` on."""
        self._files.add([u.file for u in found])
        self._texts.add([u.text for u in found])
        self._seconds.append(np.array([(u.offset, u.duration) for u in found]).reshape(-1, 2))
        self._numbers.append(np.arange(first, first + len(found), dtype=np.int64))

    def finish(self) -> None:
        """No more utterances will come."""
        self._files.finish()
        self._texts.finish()
        self.seconds: Array = np.concatenate(self._seconds)  # offset and duration of each
        self.numbers: Array = np.concatenate(self._numbers)
        self._seconds, self._numbers = [], []
        # Computed here because saving a state must not take longer for a larger data set.
        found = zlib.crc32(self.seconds.tobytes(), self._files.checksum ^ self._texts.checksum)
        self._fingerprint = f"{found:08x}"

    def __len__(self) -> int:
        return len(self.numbers)

    def path(self, index: int) -> bytes:
        """The path of the sound file, as the manifest gives it."""
        return self._files[index]

    def text(self, index: int) -> Array:
        """The transcript, in UTF-8."""
        return np.frombuffer(self._texts[index], np.uint8)

    def fingerprint(self) -> str:
        """A checksum of everything, as text."""
        return self._fingerprint

    def span(self, index: int, frames: int, rate: int) -> tuple[int, int]:
        """The first frame of an utterance, and how many there are, of a file with `frames`."""
        offset, duration = self.seconds[index].tolist()
        first = int(min(max(offset, 0.0) * rate, frames + 1))
        if first > frames:
            raise ValueError(
                f"`offset` is {offset} s in the manifest, but the sound has only "
                f"{frames / rate} s ({frames} samples at {rate} Hz)"
            )
        left = frames - first
        return first, left if duration < 0 else int(min(duration * rate, left))


def read_manifests(
    paths: Sequence[str], limits: DurationLimits, remote: RemoteOptions
) -> Utterances:
    """The utterances of manifests whose durations are within the limits."""
    found = Utterances()
    for path in paths:
        lines = enumerate(read_whole(path, remote).split(b"\n"), 1)
        skipped: list[str] = []
        # Utterances are counted in each manifest, without those that are left out, as upstream.
        count = 0
        while chunk := list(itertools.islice(lines, _CHUNK)):
            kept = _usable(chunk, limits, skipped)
            found.add(kept, count)
            count += len(kept)
        if skipped:
            _warn(path, skipped)
    found.finish()
    return found


def _usable(
    lines: Sequence[tuple[int, bytes]], limits: DurationLimits, skipped: list[str]
) -> list[_Utterance]:
    """The utterances of some lines; says which lines cannot be used."""
    found: list[_Utterance] = []
    for number, line in lines:
        if not line.strip():
            continue
        try:
            utterance = _parsed(line)
        except ValueError as error:
            skipped.append(f"line {number}: {error}")
            continue
        if limits.fit(utterance.duration):
            found.append(utterance)
    return found


def _warn(path: str, skipped: Sequence[str]) -> None:
    more = f"; and {len(skipped) - 3} more" if len(skipped) > 3 else ""
    warnings.warn(
        f"readers.NemoAsr: {len(skipped)} line(s) of {path!r} are left out: "
        f"{'; '.join(skipped[:3])}{more}",
        stacklevel=2,
    )


def _parsed(line: bytes) -> _Utterance:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a JSON object ({error})") from None
    if not isinstance(entry, dict):
        raise ValueError(f"not a JSON object, but {_shown(entry)}")
    file = entry.get("audio_filepath")
    if not isinstance(file, str) or not file:
        raise ValueError(f"`audio_filepath` must be a path, got {_shown(file)}")
    text = entry.get("text")
    if text is not None and not isinstance(text, str):
        raise ValueError(f"`text` must be a string, got {_shown(text)}")
    offset, duration = (_seconds(entry, name) for name in ("offset", "duration"))
    return _Utterance(
        os.fsencode(file), (text or "").encode(errors="replace"),
        0.0 if offset is None else offset, -1.0 if duration is None else duration,
    )  # fmt: skip


def _seconds(entry: dict[str, Any], name: str) -> float | None:
    given = entry.get(name)
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not _is_finite(given):
        raise ValueError(f"`{name}` must be a number of seconds, got {_shown(given)}")
    return float(given)


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer that no float can hold
        return False


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
