"""Sequences of frames as samples of a reader: a table of clips enters, nodes of videos leave.

A sample is not decoded when it is read: the output is a node of videos, so that what follows
decides which frames are decoded, and works on them one by one.
"""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..codecs.video.decoded_videos import Clip, Videos
from ..codecs.video.index_cache import index_of_file, mapped_file
from ..codecs.video.library import av_module
from ..core import convert
from ..fusion.graph import build
from ..fusion.graph.node import Node
from ..fusion.graph.shapes import Array
from ..kernels.ir import dtypes as dt
from ..runtime.device import device as as_device
from . import listing
from .epoch import Sample, Samples
from .reader import Reader
from .record_samples import filled, listed, paths_of
from .stores.byte_files import is_url, read_whole
from .stores.video_clips import Clips, Entry, Ranges, Steps, read_file_list

EXTRAS = {"label": (dt.int32, True), "frame": (dt.int32, True), "frames": (dt.int32, True),
          "times": (dt.float64, True)}  # fmt: skip
# Files in a folder that are videos.
SUFFIXES = (".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".flv", ".mpg", ".mpeg", ".ts",
            ".ivf", ".ogv", ".wmv", ".3gp")  # fmt: skip


class VideoSamples:
    """Sequences of frames, as samples of a reader."""

    def __init__(
        self, where: str, clips: Clips, extras: Sequence[str], fill: Sequence[int], is_lazy: bool
    ) -> None:
        self._where, self._clips, self._extras = where, clips, tuple(extras)
        self._fill, self._is_lazy = fill, is_lazy
        self.fingerprint = clips.fingerprint

    def __len__(self) -> int:
        return len(self._clips)

    def name(self, index: int) -> str:
        return os.fsdecode(self._clips.path(index))

    def read(self, index: int) -> Sample:
        """A clip and the outputs beside it; the frames themselves only if errors must show now."""
        path, frames = self._clips.path(index), self._clips.frames(index)
        video = index_of_file(path)
        clip: Any = Clip(video, partial(mapped_file, path), frames, os.fsdecode(path))
        if not self._is_lazy:
            pixels = np.empty((len(frames), video.height, video.width, 3), np.uint8)
            Videos([clip], self._fill, _raise).decode(0, pixels)
            clip = pixels
        return (clip, *self._known(index, frames, video.seconds()))

    def _known(self, index: int, frames: Array, seconds: Array) -> Sample:
        """All outputs but the video."""
        made: dict[str, Callable[[], Array]] = {
            "label": lambda: np.array([self._clips.label(index)], np.int32),
            "frame": lambda: frames[:1].astype(np.int32),
            "frames": lambda: frames.astype(np.int32),
            "times": lambda: np.where(frames < 0, -1.0, seconds[frames]) if len(seconds)
            else np.full(len(frames), -1.0),
        }  # fmt: skip
        return tuple(made[kind]() for kind in self._extras)

    def fill(self, index: int, data: Any = None) -> Sample:
        """No frames; label, frame numbers and times are known."""
        frames = self._clips.frames(index)
        empty = np.zeros((0, 1, 1, 3), np.uint8)
        known = self._known(index, frames, np.zeros(0))
        return filled(self._where, (empty, *known), data)


def _raise(_: int, error: ValueError) -> None:
    raise error


class VideoReader(Reader):
    """What the readers of videos have in common."""

    def _take_videos(
        self, where: str, filenames: Any, labels: Any, file_root: Any, file_list: Any
    ) -> None:
        """Keep the arguments that name the files; `_entries` uses them."""
        av_module()  # fails now, not in a thread, if it is missing
        self._where_made = where
        self._filenames = paths_of(where, "filenames", filenames) if filenames else []
        self._root = os.fsdecode(file_root) if file_root else ""
        self._file_list = os.fsdecode(file_list) if file_list else ""
        given = [bool(self._filenames), bool(self._root), bool(self._file_list)]
        if sum(given) != 1:
            raise ValueError(
                f"{where}: exactly one of `filenames`, `file_root` and `file_list` is needed, got "
                f"{sum(given)}"
            )
        if is_url(self._root) or any(map(is_url, self._filenames)):
            raise ValueError(f"{where}: videos are read from local files, got a URL")
        if labels is not None and not self._filenames:
            raise ValueError(f"{where}: `labels` need `filenames`")
        self._labels = None if labels is None else list(np.atleast_1d(labels))
        self._has_labels = not self._filenames or labels is not None

    def _take_steps(
        self, where: str, sequence_length: Any, stride: Any, step: Any, pad_mode: str,
        is_spaced: bool = False, is_uniform: bool = False,
    ) -> None:  # fmt: skip
        """Keep the arguments that lay sequences over videos. Without a `step`, a sequence begins
        `sequence_length` frames after the one before, or behind its last frame if `is_spaced`."""
        if sequence_length is None:
            raise TypeError(f"{where}: `sequence_length` is needed")
        self._where = where  # `_count` names it
        length = self._count(sequence_length, "sequence_length", None)
        stride = self._count(stride, "stride", 1)
        own = -1 if step is None else operator.index(step)
        if own == 0:
            raise ValueError(f"{where}: `step` must not be 0")
        if own < 0:
            own = length * stride if is_spaced else length
        self._steps = Steps(length, stride, own, pad_mode, is_uniform)

    def _take_extras(self, where: str, enable_frame_num: Any, enable_timestamps: Any) -> None:
        kinds = {None: "", "none": "", False: "", "scalar": "frame", True: "frame",
                 "sequence": "frames"}  # fmt: skip
        if enable_frame_num not in kinds:
            raise ValueError(
                f"{where}: `enable_frame_num` must be 'none', 'scalar' or 'sequence', got "
                f"{enable_frame_num!r}"
            )
        wanted = ["label" if self._has_labels else "", kinds[enable_frame_num],
                  "times" if enable_timestamps else ""]  # fmt: skip
        self._extras = [kind for kind in wanted if kind]
        self.outputs = [(dt.uint8, False, "FHWC"), *(EXTRAS[kind] for kind in self._extras)]

    def _entries(self) -> list[Entry]:
        if self._file_list:
            content = read_whole(self._file_list, self._remote)
            return read_file_list(self._file_list, content)
        if self._filenames:
            labels = self._labels or list(range(len(self._filenames)))
            if len(labels) != len(self._filenames):
                raise ValueError(
                    f"{len(labels)} labels were given for {len(self._filenames)} files"
                )
            return [
                Entry(os.fsencode(f), int(n)) for f, n in zip(self._filenames, labels, strict=True)
            ]
        fits = listing.matcher([f"*{s}" for s in SUFFIXES], case_sensitive=False)
        root = os.fsencode(self._root)
        found = listing.from_tree(root, fits, None)
        return [Entry(found.path(i), int(found.labels[i])) for i in range(len(found))]

    def _ranges(self) -> Ranges:
        """How a file list tells the parts of files."""
        raise NotImplementedError

    def _list(self) -> Samples:
        entries = listed(self._where, self._entries)
        clips = Clips(entries, self._steps, self._ranges())
        listed(self._where, lambda: clips.find(self._unusable))
        return VideoSamples(
            self._where, clips, self._extras, self._fill_value, self._on_error == "raise"
        )

    def _unusable(self, path: str, number: int, cause: Exception) -> None:
        """A file that cannot be indexed is an error, or it is left out."""
        entry = self.errors.add(path, number, cause)
        if self._on_error == "raise":
            raise ValueError(f"cannot read {path!r}: {getattr(cause, 'strerror', None) or cause}")
        del entry
        warnings.warn(f"{self._where}: {path!r} is left out: {cause}", stacklevel=2)

    _fill_value: Sequence[int] = (0, 0, 0)
    _ordinal: int | None = None  # of the GPU that gets the outputs

    def _place(self, device: Any) -> str:
        """Keep the device of the outputs; files are read on the CPU."""
        place = as_device(device)
        self._ordinal = None if place is None or place.device_type == "cpu" else place.device_id
        return "cpu"

    def _output(self, k: int, arrays: list[Any], batch: bool, name: Callable[[int], str]) -> Node:
        if k or not arrays or not isinstance(arrays[0], Clip):
            node = super()._output(k, arrays, batch, name)
            return node if self._ordinal is None else build.transfer(node, self._ordinal)
        from ..ops.video.video_decoder import decoded

        names = [clip.name for clip in arrays]

        def failed(s: int, error: ValueError) -> None:
            raise ValueError(f"sample {s} ({names[s]}): {error}") from None

        nothing = [np.zeros(0, np.uint8)] * len(arrays)
        x = convert.wrap_arrays(nothing, dt.uint8, None, batch, external=False)
        videos = Videos(arrays, self._fill_value, failed)
        return self._finished(decoded(self._where, x, videos, self._ordinal))

    def _finished(self, node: Node) -> Node:
        """What a reader does to its videos."""
        return node


def in_ycbcr(where: str, x: Node) -> Node:
    """RGB as YCbCr."""
    from ..codecs.image.decode import ycbcr

    axes = tuple(range(x.rank))
    return build.pointwise(where, ycbcr, [x], [axes], x.shapes, x.layout, (dt.uint8,))
