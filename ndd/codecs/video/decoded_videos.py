"""Videos: the parameters of a node of decoded videos. Which frames of which files enter, pixels
leave; see `Decode` (fusion/kinds/opaque.py) for its methods."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...fusion.graph.shapes import Array
from .cursor import Cursor, cursor
from .selection import FILL
from .to_rgb import Converter
from .video_index import VideoIndex

# A run of frames is cut at key frames into parts for several threads, if a part decodes at least
# this many packets: seeking and waiting for pictures that are shown later cost a few.
MIN_PACKETS = 16
# A thread keeps its decoder, with several pictures, for the next video, unless they are larger than
# this: a damaged header may claim 2**28 pixels, and a decoder allocates what its header claims.
KEPT_PIXELS = 1 << 24


class Clip(NamedTuple):
    """The wanted frames of one video."""

    video: VideoIndex
    data: Callable[[], Array]  # the bytes of the file
    frames: Array  # numbers of frames, in any order; FILL for one that the video does not have
    name: str = ""


class Videos:
    """The videos of a batch; decodes frames of them, each in any thread."""

    def __init__(
        self,
        clips: Sequence[Clip],
        fill: Sequence[int],
        failed: Callable[[int, ValueError], None],
        window: tuple[Array, Array] | None = None,
    ) -> None:
        self.clips = clips
        self.fill = fill  # the colour of frames that a video does not have
        self.failed = failed  # takes a sample that cannot be decoded, and why
        self.window = window  # (first frame and row, how many of each) of every result
        self._threads = threading.local()

    def windowed(self, start: Array, size: Array) -> Videos:
        """The same videos, restricted to some frames and rows of each."""
        return Videos(self.clips, self.fill, self.failed, (start, size))

    def held(self, sample: int, shape: tuple[int, ...], dtype: Any) -> None:
        """Pixels never stay in memory of the decoder."""

    def native(self, *_: Any) -> None:
        """There is no native loop for videos."""

    def decode(self, sample: int, out: Array) -> None:
        """Write all frames of a video, or the wanted part of them."""
        first, top = (0, 0) if self.window is None else self.window[0][sample].tolist()
        numbers = np.arange(first, first + len(out))
        clip = self.clips[sample]
        self.expect(sample, numbers)
        for number in numbers[np.argsort(clip.frames[numbers], kind="stable")].tolist():
            self.decode_frame(sample, number, out[number - first], top)

    # -- single frames -------------------------------------------------------------------------

    def runs(self, samples: Array, frames: Array) -> list[tuple[int, int]]:
        """Runs of frames [begin, end) for one thread each, the longest first."""
        if not len(samples):
            return []
        keys, packets = np.zeros_like(samples), np.zeros_like(samples)
        for s in np.unique(samples).tolist():
            own, clip = samples == s, self.clips[s]
            wanted = clip.frames[frames[own]]
            known = np.maximum(wanted, 0)
            if clip.video.frames:
                keys[own] = np.where(wanted == FILL, -1, clip.video.frame_key[known])
                packets[own] = clip.video.frame_packet[known]
        cut = (np.diff(samples) != 0) | (np.diff(keys) != 0)
        bounds = [0, *(np.flatnonzero(cut) + 1).tolist(), len(samples)]
        runs: list[tuple[int, int, int]] = []
        for begin, end in itertools.pairwise(bounds):
            cost = int(packets[begin:end].max() - keys[begin:end].min()) + 1
            if runs and runs[-1][2] < MIN_PACKETS and samples[begin] == samples[begin - 1]:
                last, _, before = runs.pop()
                runs.append((last, end, before + cost))
            else:
                runs.append((begin, end, cost))
        runs.sort(key=lambda run: -run[2])
        return [(begin, end) for begin, end, _ in runs]

    def expect(self, sample: int, frames: Array) -> None:
        """Tell the decoder of this thread which frames it will be asked for."""
        self._threads.wanted = set(self.clips[sample].frames[frames].tolist())

    def decode_frame(self, sample: int, frame: int, out: Array, top: int = 0) -> None:
        """Write rows of one frame of a video, from `top` on."""
        clip = self.clips[sample]
        number = int(clip.frames[frame])
        if number == FILL:
            out[...] = self.fill
            return
        try:
            at = self._cursor(clip)
            _converter().write(at.picture(number), out, clip.video.stream, top)
        except (ValueError, OSError) as error:
            out[...] = 0
            self.failed(sample, error if isinstance(error, ValueError) else ValueError(str(error)))

    def _cursor(self, clip: Clip) -> Cursor:
        own = self._threads
        # The bytes of a file are fetched once for a run of frames.
        if getattr(own, "clip", None) is not clip:
            own.clip, own.data = clip, clip.data()
        if clip.video.width * clip.video.height <= KEPT_PIXELS:
            found = cursor(clip.video, own.data)
        else:
            held: Cursor | None = getattr(own, "cursor", None)
            if held is None or held.data is not own.data:
                held = own.cursor = Cursor(clip.video, own.data)
            found = held
        found.wanted = own.wanted
        return found


class _LocalConverter(threading.local):
    """One converter for each thread, made on first use: PyAV may not be installed."""

    converter: Converter | None = None


_local = _LocalConverter()


def _converter() -> Converter:
    if _local.converter is None:
        _local.converter = Converter()
    return _local.converter


def decode_sample(videos: Videos, sample: int, out: Array) -> None:
    """Decode one video of a batch into memory (see `Decode`)."""
    videos.decode(sample, out)
