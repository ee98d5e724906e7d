"""`readers.VideoResize`: video files enter, batches of resized sequences leave."""

from __future__ import annotations

from typing import Any

from ..core.batch import Batch
from ..core.schema import OPS
from ..core.suggestions import unexpected, with_options_of
from ..core.tensor import Tensor
from ..fusion.graph.node import Node
from ..kernels.common import forks
from .video import Video

# Arguments of `resize` that a call may give, one for each sample.
PER_SAMPLE = ("interp_type", "mag_filter", "min_filter", "resize_longer", "resize_shorter",
              "resize_x", "resize_y", "resize_z", "roi_end", "roi_start", "size")  # fmt: skip


class VideoResize(Video):
    """Reads sequences of frames from video files, and resizes them.

    >>> import av, ndd, numpy, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "clip.avi"
    >>> with av.open(path, "w") as file:
    ...     stream = file.add_stream("mjpeg", rate=25, width=32, height=16, pix_fmt="yuvj420p")
    ...     for level in (0, 100):
    ...         pixels = numpy.full((16, 32, 3), level, numpy.uint8)
    ...         file.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, "rgb24")))
    ...     file.mux(stream.encode())
    >>> reader = ndd.readers.VideoResize(filenames=path, sequence_length=2, resize_shorter=8)
    >>> for (videos,) in reader.next_epoch(batch_size=1):
    ...     print(videos.shape)
    [(2, 8, 16, 3)]

    Its arguments are those of `ndd.readers.Video` and of `ndd.resize`, which see. A call of the
    reader may give those that `ndd.resize` takes per sample: ``reader(batch_size=2, size=sizes)``.

    Parameters
    ----------
    size, resize_x, resize_y, resize_z, resize_shorter, resize_longer, mode, max_size
        The size of the frames, as in `ndd.resize`.
    interp_type, min_filter, mag_filter, antialias, subpixel_scale
        How to interpolate, as in `ndd.resize`.
    roi_start, roi_end, roi_relative
        The part of the frames to use, as in `ndd.resize`.
    minibatch_size, temp_buffer_hint
        Accepted for compatibility; they have no effect.
    **options
        Arguments of `ndd.readers.Video` and of all readers.
    """

    def __init__(
        self,
        max_batch_size: int | None = None,
        name: str | None = None,
        device: Any = "cpu",
        num_inputs: int | None = None,
        *,
        antialias: bool | None = True,
        interp_type: Any = None,
        mag_filter: Any = None,
        max_size: Any = None,
        min_filter: Any = None,
        minibatch_size: int | None = 32,
        mode: str | None = None,
        resize_longer: Any = None,
        resize_shorter: Any = None,
        resize_x: Any = None,
        resize_y: Any = None,
        resize_z: Any = None,
        roi_end: Any = None,
        roi_relative: bool | None = False,
        roi_start: Any = None,
        size: Any = None,
        subpixel_scale: bool | None = True,
        temp_buffer_hint: int | None = 0,
        **options: Any,
    ) -> None:
        self._resize = {
            "antialias": antialias is None or antialias, "interp_type": interp_type,
            "mag_filter": mag_filter, "max_size": max_size, "min_filter": min_filter, "mode": mode,
            "resize_longer": resize_longer, "resize_shorter": resize_shorter,
            "resize_x": resize_x, "resize_y": resize_y, "resize_z": resize_z,
            "roi_end": roi_end, "roi_relative": bool(roi_relative), "roi_start": roi_start,
            "size": size, "subpixel_scale": subpixel_scale is None or subpixel_scale,
        }  # fmt: skip
        self._given: dict[str, Any] = {}  # arguments of the current call
        self._calling = forks.lock()
        super().__init__(max_batch_size, name, device, num_inputs, **options)

    # Show the arguments of `Video`, too.
    __init__ = with_options_of(Video.__init__, __init__, "readers.VideoResize")

    def __call__(self, *, batch_size: int | None = None, **arguments: Any) -> Any:
        """The next tuple of Batch or Tensor, resized by these arguments of `ndd.resize`."""
        unknown = [k for k in arguments if k not in PER_SAMPLE]
        if unknown:
            raise unexpected("readers.VideoResize", unknown, dict.fromkeys(PER_SAMPLE))
        with self._calling:
            self._given = arguments
            try:
                return super().__call__(batch_size=batch_size)
            finally:
                self._given = {}

    def _converted(self, node: Node) -> Node:
        from ..core.call import _build

        op = OPS["resize"]
        given = {**self._resize, **self._given, "dtype": self._dtype}
        choices = [given.get(p.name) if given.get(p.name) is not None else p.default
                   for p in op.others]  # fmt: skip
        x = (Batch if node.batch else Tensor)._of(node)
        y: Node = _build(op, [x], [*choices, None, None])
        return super()._converted(y)
