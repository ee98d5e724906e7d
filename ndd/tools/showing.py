"""`ndd.show(x, "out.png")` and notebooks: images in a Tensor or a Batch enter, a picture leaves."""

from __future__ import annotations

import base64
import html
import math
from pathlib import Path
from typing import Any

from ..core.batch import Batch
from ..core.handle import Handle, executor_of, lock_of
from ..core.tensor import Tensor
from ..kernels.ir.dtypes import uint8
from . import picture
from .outputs import write_output
from .picture import Array

THUMBNAIL_PX = 128
MAX_THUMBNAILS = 16  # in a notebook
MAX_FRAMES = 8  # in a row


class Picture:
    """An RGB image, which notebooks show: `array` has the pixels, `save(path)` writes a PNG."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def png(self) -> bytes:
        """The bytes of a PNG file."""
        return picture.png(self.array)

    _repr_png_ = png

    def save(self, path: str | Path) -> None:
        """Write a PNG file."""
        write_output(path, self.png())

    def __repr__(self) -> str:
        height, width, _ = self.array.shape
        return f"Picture({height}×{width})"


def show(
    images: Any,
    path: str | Path | None = None,
    *,
    columns: int | None = None,
    size: int | None = None,
) -> Picture:
    """A grid of images as one picture, written to a PNG file if a path is given.

    >>> import ndd
    >>> ndd.show(ndd.zeros(shape=[32, 48, 3], layout="HWC", batch_size=4))
    Picture(68×100)

    Parameters
    ----------
    images : Batch, Tensor, array or list of arrays
        Images of any size, HWC, CHW or HW, with 1 to 4 channels, or sequences of them (FHWC …),
        which fill a row each. Floats in 0…1 are scaled to 0…255. If there are negative values or
        values above 255, the range of values is stretched from black to white.
    path : str or Path, optional
        A PNG file to write.
    columns : int, optional
        Images per row. The default makes about a square, or a row for each sequence.
    size : int, optional
        Shrink images until no side is longer than this.
    """
    samples, layout = _samples(images)
    if not samples:
        raise ValueError("show: a batch without samples has nothing to show")
    for i, sample in enumerate(samples):
        if picture.image_layout(sample.shape, layout) is None:
            raise ValueError(
                f"show: sample {i} of shape {sample.shape} and layout {layout!r} is no image: "
                f"wanted HWC, CHW or HW with 1 to 4 channels, or a sequence of these"
            )
    if columns is not None and columns < 1:
        raise ValueError(f"show: `columns` must be positive, got {columns}")
    found, length = _frames(samples, layout)
    shown = Picture(_sheet(found, columns or _columns(len(found), length), size))
    if path is not None:
        shown.save(path)
    return shown


def _samples(images: Any) -> tuple[list[Array], str | None]:
    """Arrays in host memory, and their layout."""
    if not isinstance(images, Handle):
        images = Batch(images) if isinstance(images, (list, tuple)) else Tensor(images)
    host = images.cpu()
    if isinstance(host, Batch):
        return [t._read_only() for t in host.tensors], host.layout
    if host.layout and host.layout[0] == "N":
        return list(host._read_only()), host.layout[1:] or None
    return [host._read_only()], host.layout


def _frames(
    samples: list[Array], layout: str | None, limit: int | None = None
) -> tuple[list[Array], int]:
    """All images [H, W, C], and the number of images per sequence, which is 1 without sequences;
    `limit` bounds this number."""
    layouts = [picture.image_layout(s.shape, layout) or "" for s in samples]
    split = [picture.frames(s, found)[:limit] for s, found in zip(samples, layouts, strict=True)]
    length = max(map(len, split))
    if length > 1:  # every sequence begins a row
        nothing = split[0][0][:0]
        split = [[*row, *[nothing] * (length - len(row))] for row in split]
    return [frame for row in split for frame in row], length


def _columns(count: int, length: int) -> int:
    return length if length > 1 else max(1, math.ceil(math.sqrt(count)))


def _sheet(images: list[Array], columns: int, size: int | None) -> Array:
    rgb = [picture.shrunk(picture.as_rgb(i), size) for i in picture.as_bytes(images)]
    return picture.grid(rgb, min(columns, len(rgb)) or 1)


# -- notebooks -----------------------------------------------------------------------------------


def html_of(handle: Handle) -> str | None:
    """Thumbnails and metadata of a handle on images; None if it has no images.

    This does not compute values that are deferred.
    """
    if not _is_images(handle):
        return None
    shapes = handle._node.shapes.tuples
    size = f"{shapes[0]}" if len(set(shapes)) == 1 else f"{shapes[0]}, {shapes[1]}, …"
    count = f"{len(shapes)} × " if isinstance(handle, Batch) else ""
    layout = handle.layout or ""
    about = f"{type(handle).__name__} {count}{size} {handle.dtype} {layout} {handle.device}"
    if not is_coming(handle):
        return f"<div>{html.escape(about)}<br><i>pending: nothing has run yet</i></div>"
    data = base64.b64encode(_thumbnails(handle).png()).decode()
    about = html.escape(about)
    return f'<div>{about}<br><img alt="{about}" src="data:image/png;base64,{data}"></div>'


def _is_images(handle: Handle) -> bool:
    """Whether a handle has images; without a layout, only uint8 counts as an image."""
    if handle._node.count == 0:
        return False
    shape, layout = handle._node.shapes.tuples[0], handle.layout
    if layout is None and (handle.dtype is not uint8 or len(shape) < 3):
        return False
    if isinstance(handle, Tensor) and layout and layout[0] == "N":
        shape, layout = shape[1:], layout[1:]
    return picture.image_layout(shape, layout) is not None


def is_coming(handle: Handle) -> bool:
    """Whether a value is computed, queued, or a promise."""
    node = handle._node
    if node.storage is not None or node.result.promise is not None or node.result.error is not None:
        return True
    with lock_of(node):  # waits until the running program is done
        queued = (
            executor_of(node.result.context)._pending if node.result.context is not None else []
        )
        return node.storage is not None or any(n is node for n in queued)


def _thumbnails(handle: Handle) -> Picture:
    """The first images of a batch, or the first frames of its first sequences."""
    if isinstance(handle, Batch):
        handle = handle.select(slice(0, MAX_THUMBNAILS))
    samples, layout = _samples(handle)
    found, length = _frames(samples[:MAX_THUMBNAILS], layout, limit=MAX_FRAMES)
    columns = length if length > 1 else MAX_FRAMES
    return Picture(_sheet(found[:MAX_THUMBNAILS], columns, THUMBNAIL_PX))
