"""`experimental.readers.Video`: video files enter, batches of sequences of frames leave."""

from __future__ import annotations

from typing import Any

from ..codecs.video.selection import PAD_MODES
from ..fusion.graph.node import Node
from ..kernels.ir.dtypes import DALIImageType
from .stores.video_clips import Ranges, rounded
from .video_samples import VideoReader, in_ycbcr


class ExperimentalVideo(VideoReader):
    """Reads sequences of frames from video files.

    >>> import av, ndd, numpy, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "clip.avi"
    >>> with av.open(path, "w") as file:
    ...     stream = file.add_stream("mjpeg", rate=25, width=32, height=16, pix_fmt="yuvj420p")
    ...     for level in (0, 100, 200, 250):
    ...         pixels = numpy.full((16, 32, 3), level, numpy.uint8)
    ...         file.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, "rgb24")))
    ...     file.mux(stream.encode())
    >>> reader = ndd.experimental.readers.Video(
    ...     filenames=path, labels=[7], sequence_length=2, enable_timestamps=True
    ... )
    >>> for videos, labels, times in reader.next_epoch(batch_size=2):
    ...     print(videos.shape, labels.torch().tolist(), times.torch().tolist())
    [(2, 16, 32, 3), (2, 16, 32, 3)] [[7], [7]] [[0.0, 0.04], [0.08, 0.12]]

    Outputs are the frames (FHWC), and if they are wanted, in this order: the label [1], if there
    are labels; the number of the first frame [1] or of each frame; the time of each frame in
    seconds. Padded frames have number and time -1. Frames are decoded when they are used: an op
    that follows works on each frame as soon as it is decoded, and frames that a slice leaves out
    are not decoded.

    An index of each file is made once and kept on disk (in ``NDD_CACHE_DIR``). With a GPU as
    `device`, outputs are there; NVDEC decodes if PyNvVideoCodec is installed.

    Parameters
    ----------
    filenames : path or list of path
        The files.
    labels : list of int
        Labels of `filenames`.
    file_root : path
        A folder with a folder for each label.
    file_list : path
        A file with lines ``file label [start [end]]``; paths are relative to its folder. The end is
        not read.
    file_list_format : "timestamps" | "frames"
        Whether starts and ends are seconds or frame numbers; negative ones count from the end.
    file_list_rounding : str
        Which frame a time between two frames means: "start_down_end_up", "start_up_end_down",
        "all_up" or "all_down".
    file_list_include_end : bool
        Accepted for compatibility; it has no effect, as upstream.
    sequence_length : int
        Frames of each sequence.
    stride : int
        Distance between the frames of a sequence.
    step : int
        Distance between sequences; if negative, each begins where the one before ends.
    pad_mode : str
        What to do about the last sequence if frames are missing: "none" leaves it out, "constant"
        uses `fill_value`; "edge", "reflect_1001" and "reflect_101" repeat frames.
    fill_value : int or list of int
        Colour of padded frames.
    uniform_sample : bool
        Read one sequence per file, evenly spread over it; `stride`, `step` and `pad_mode` have no
        effect.
    enable_frame_num : "none" | "scalar" | "sequence"
        Which frame numbers to yield.
    enable_timestamps : bool
        Whether to yield times.
    image_type : DALIImageType
        RGB or YCbCr.
    read_ahead, dont_use_mmap, skip_cached_images, tensor_init_bytes, num_inputs
        Accepted for compatibility; they have no effect.
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
        file_list_format: str | None = "timestamps",
        file_list_include_end: bool | None = True,
        file_list_rounding: str | None = "start_down_end_up",
        stride: int | None = 1,
        step: int | None = -1,
        pad_mode: str | None = "none",
        fill_value: Any = 0,
        uniform_sample: bool | None = False,
        enable_frame_num: Any = "none",
        enable_timestamps: bool | None = False,
        image_type: Any = None,
        read_ahead: bool | None = False,
        dont_use_mmap: bool | None = False,
        skip_cached_images: bool | None = False,
        tensor_init_bytes: int | None = 1048576,
        **options: Any,
    ) -> None:
        where = "experimental.readers.Video"
        if file_list_format not in (None, "timestamps", "frames"):
            raise ValueError(
                f"{where}: `file_list_format` must be 'timestamps' or 'frames', got "
                f"{file_list_format!r}"
            )
        if pad_mode is not None and pad_mode not in PAD_MODES:
            raise ValueError(
                f"{where}: `pad_mode` must be one of {', '.join(PAD_MODES)}, got {pad_mode!r}"
            )
        self._is_frames = file_list_format == "frames"
        self._rounding = _named(where, rounded, file_list_rounding or "start_down_end_up")
        self._take_videos(where, filenames, labels, file_root, file_list)
        self._take_extras(where, enable_frame_num, enable_timestamps)
        self._take_steps(where, sequence_length, stride, step, pad_mode or "none",
                         is_spaced=True, is_uniform=bool(uniform_sample))  # fmt: skip
        from ..ops.video.video_decoder import colour

        given = fill_value if isinstance(fill_value, (list, tuple)) else [fill_value or 0]
        self._fill_value = _named(where, colour, given)
        self._is_ycbcr = takes_ycbcr(where, image_type)
        super().__init__(max_batch_size, name, self._place(device), **options)

    def _ranges(self) -> Ranges:
        if self._is_frames:
            return Ranges(True, *self._rounding)
        return Ranges(False, *self._rounding)

    def _finished(self, node: Node) -> Node:
        return in_ycbcr(self._where, node) if self._is_ycbcr else node


def _named(where: str, function: Any, value: Any) -> Any:
    """The result of a check; an error names the reader."""
    try:
        return function(value)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def takes_ycbcr(where: str, image_type: Any) -> bool:
    """Whether frames shall be YCbCr."""
    found = DALIImageType.RGB if image_type is None else DALIImageType(image_type)
    if found not in (DALIImageType.RGB, DALIImageType.YCbCr):
        raise ValueError(f"{where}: `image_type` must be RGB or YCbCr, got {found.name}")
    return found is DALIImageType.YCbCr
