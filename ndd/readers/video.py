"""`readers.Video`: video files enter, batches of sequences of frames leave."""

from __future__ import annotations

import math
from typing import Any

from ..fusion.graph import build
from ..fusion.graph.node import Node
from ..kernels.ir import dtypes as dt
from ..kernels.ir import expr as ex
from ..kernels.ir.dtypes import DType
from ..kernels.ir.expr import Expr
from .experimental_video import takes_ycbcr
from .stores.video_clips import Ranges
from .video_samples import VideoReader, in_ycbcr

_TYPES = (dt.uint8, dt.float32)


class Video(VideoReader):
    """Reads sequences of frames from video files.

    >>> import av, ndd, numpy, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "clip.avi"
    >>> with av.open(path, "w") as file:
    ...     stream = file.add_stream("mjpeg", rate=25, width=32, height=16, pix_fmt="yuvj420p")
    ...     for level in (0, 100, 200):
    ...         pixels = numpy.full((16, 32, 3), level, numpy.uint8)
    ...         file.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, "rgb24")))
    ...     file.mux(stream.encode())
    >>> reader = ndd.readers.Video(filenames=path, sequence_length=2, pad_sequences=True)
    >>> for (videos,) in reader.next_epoch(batch_size=2):
    ...     print(videos.shape, [v[1, 0, 0, 0].item() for v in videos.tensors])
    [(2, 16, 32, 3), (2, 16, 32, 3)] [100, 0]

    It differs from `ndd.experimental.readers.Video` in its arguments. Upstream's works on a GPU
    only; this one decodes on the CPU, too. With a GPU as `device`, outputs are there, and NVDEC
    decodes if PyNvVideoCodec is installed.

    Parameters
    ----------
    filenames : path or list of path
        The files.
    labels : list of int
        Labels of `filenames`; an empty list stands for 0, 1, 2 …
    file_root : path
        A folder with a folder for each label.
    file_list : path
        A file with lines ``file label [start [end]]``; paths are relative to its folder. The end is
        not read.
    file_list_frame_num : bool
        Whether starts and ends are frame numbers, not seconds. Negative ones count from the end.
    file_list_include_preceding_frame : bool
        Round starts in seconds down and ends up, not the other way.
    sequence_length : int
        Frames of each sequence.
    stride : int
        Distance between the frames of a sequence.
    step : int
        Distance between sequences; `sequence_length` if negative.
    pad_sequences : bool
        Whether the last sequence may have black frames, with number and time -1; else it is left
        out if frames are missing.
    enable_frame_num : "none" | "scalar" | "sequence"
        Which frame numbers to yield.
    enable_timestamps : bool
        Whether to yield times.
    image_type : DALIImageType
        RGB or YCbCr.
    dtype : DType
        Element type: uint8 or float32.
    normalized : bool
        Scale float32 from 0 … 255 to 0 … 1.
    channels : int
        Number of channels; it must be 3.
    skip_vfr_check, additional_decode_surfaces, read_ahead, dont_use_mmap, skip_cached_images,
    tensor_init_bytes, num_inputs
        Accepted for compatibility; they have no effect. Variable frame rates are no problem.
    **options
        Arguments of all readers, see `ndd.readers.Reader`.
    """

    def __init__(
        self,
        max_batch_size: int | None = None,
        name: str | None = None,
        device: Any = "cpu",
        num_inputs: int | None = None,
        *,
        sequence_length: int | None = None,
        filenames: Any = None,
        labels: Any = None,
        file_root: Any = None,
        file_list: Any = None,
        file_list_frame_num: bool | None = False,
        file_list_include_preceding_frame: bool | None = False,
        stride: int | None = 1,
        step: int | None = -1,
        pad_sequences: bool | None = False,
        enable_frame_num: Any = "none",
        enable_timestamps: bool | None = False,
        image_type: Any = None,
        dtype: Any = None,
        normalized: bool | None = False,
        channels: int | None = 3,
        additional_decode_surfaces: int | None = 2,
        skip_vfr_check: bool | None = False,
        read_ahead: bool | None = False,
        dont_use_mmap: bool | None = False,
        skip_cached_images: bool | None = False,
        tensor_init_bytes: int | None = 1048576,
        **options: Any,
    ) -> None:
        where = f"readers.{type(self).__name__}"
        if channels not in (None, 3):
            raise ValueError(f"{where}: `channels` must be 3, got {channels!r}")
        self._is_frames = bool(file_list_frame_num)
        self._is_wide = bool(file_list_include_preceding_frame)
        self._take_videos(where, filenames, labels, file_root, file_list)
        self._take_extras(where, enable_frame_num, enable_timestamps)
        self._take_steps(where, sequence_length, stride, step,
                         "constant" if pad_sequences else "none")  # fmt: skip
        self._is_ycbcr = takes_ycbcr(where, image_type)
        self._dtype = _frame_type(where, dtype)
        self._is_normalized = bool(normalized)
        if self._is_normalized and self._dtype is dt.uint8:
            raise ValueError(f"{where}: `normalized` needs dtype=float32, got uint8")
        super().__init__(max_batch_size, name, self._place(device), **options)

    def _ranges(self) -> Ranges:
        is_up = self._is_frames or not self._is_wide
        bounds = (math.ceil, math.floor) if is_up else (math.floor, math.ceil)
        return Ranges(self._is_frames, bounds[0], bounds[1], by_rate=True)

    def _finished(self, node: Node) -> Node:
        node = in_ycbcr(self._where, node) if self._is_ycbcr else node
        return self._converted(node)

    def _converted(self, node: Node) -> Node:
        """The frames in the wanted type."""
        if node.dtype is self._dtype and not self._is_normalized:
            return node
        scale = 1 / 255 if self._is_normalized else 1.0
        axes = tuple(range(node.rank))
        return build.pointwise(
            self._where, _scaled, [node], [axes], node.shapes, node.layout, (scale,)
        )


def _scaled(x: Expr, scale: float) -> Expr:
    return ex.cast(x, dt.float32) * ex.const(scale, dt.float32)


def _frame_type(where: str, given: Any) -> DType:
    found = dt.uint8 if given is None else dt.dtype(given)
    if found not in _TYPES:
        raise TypeError(f"{where}: `dtype` must be uint8 or float32, got {found}")
    return found
