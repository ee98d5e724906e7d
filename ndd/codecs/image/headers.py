"""Image headers: encoded images enter, sizes, element types and orientations leave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, overload

import numpy as np

from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes
from ...fusion.graph.storage import address_of, as_array, contiguous
from ...kernels.ir import dtypes as dt
from ...kernels.ir.dtypes import DType
from . import exif
from .formats import jpeg
from .formats.jpeg import JpegFrame
from .formats.known import checked, format_of
from .limits import check_pixels, get_max_pixels
from .nvimgcodec import nvimgcodec

COLOURS = {  # nvimgcodec's colour specification and sample format, and the number of channels
    "RGB": ("SRGB", "I_RGB", 3),
    "BGR": ("SRGB", "I_BGR", 3),
    "GRAY": ("GRAY", "I_Y", 1),
    "ANY_DATA": ("UNCHANGED", "I_UNCHANGED", None),
}


class Header(NamedTuple):
    """The header of an encoded image."""

    codec: str
    height: int  # of the stored picture
    width: int
    channels: int
    dtype: DType
    is_cmyk: bool
    orientation: int  # as EXIF counts; 1 is upright
    data: Array

    @property
    def is_grey_alpha(self) -> bool:
        """Whether it is a TIFF file of grey and alpha.

        For RGB, nvimgcodec reads the next pixel instead of the missing channel; in the last column
        that lies beyond its memory.
        """
        return self.codec == "tiff" and self.channels == 2

    def stream(self) -> Any:
        """The CodeStream of nvimgcodec, which refers to `data`."""
        return nvimgcodec().CodeStream(self.data)

    def shape(self, colour: str) -> tuple[int, int, int]:
        """The shape of the upright picture in a colour space."""
        channels = COLOURS[colour][2] or self.channels
        if exif.is_transposed(self.orientation):
            return self.width, self.height, channels
        return self.height, self.width, channels


NATIVE = {np.dtype(t.np): t for t in (dt.uint8, dt.uint16, dt.int8, dt.int16, dt.float32,
                                       dt.uint32, dt.int32)}  # fmt: skip


def read_checked(data: Array, adjust_orientation: bool, isolate: bool = False) -> Header:
    """The header of a file of any format: our own checks come first, then nvimgcodec reads it.

    If `isolate`, it does so in another process.
    """
    kind = format_of(data.data)
    if kind is None:
        raise _no_image(data)
    size = checked(data.data, kind)
    still = kind.still(data.data)
    if still is not None:
        data = np.frombuffer(still, np.uint8)
    header = _read_isolated(data) if isolate else read_by_library(data)
    if header.codec != kind.codec:
        raise ValueError(f"a {kind.title} file looks like {header.codec} to the decoder")
    if (header.height, header.width) != size:
        raise ValueError(
            f"the {kind.title} header gives {size.height}x{size.width} pixels, but the decoder "
            f"finds {header.height}x{header.width}"
        )
    turn = exif.orientation_of(kind.codec, data.data) if adjust_orientation else 1
    return header._replace(orientation=turn)


def _read_isolated(data: Array) -> Header:
    from .isolated.decoder_process import read_header

    return read_header(data)


def read_by_library(data: Array) -> Header:
    """The header as nvimgcodec reads it, for a file that is sound; the orientation is not read."""
    stream = nvimgcodec().CodeStream(data)
    try:
        codec: str = stream.codec_name
        height, width, channels = stream.height, stream.width, stream.num_channels
        native = NATIVE.get(stream.dtype)
        # Ask for the colour space only if it matters, because that takes a microsecond.
        is_cmyk = channels == 4 and stream.color_spec.name in ("CMYK", "YCCK")
    except Exception:
        raise _no_image(data) from None
    if native is None:
        raise ValueError(f"a {codec} image of {np.dtype(stream.dtype)} is not supported")
    if channels < 1:
        raise ValueError(f"the {codec} header gives a size of {height}x{width}x{channels}")
    return Header(codec, height, width, channels, native, is_cmyk, 1, data)


def _no_image(data: Array) -> ValueError:
    return ValueError(
        f"{data.size} bytes that begin with {bytes(data[:8])!r} are not an image, or its header is "
        "damaged; known are JPEG, PNG, BMP, TIFF, WebP, JPEG 2000 and PNM"
    )


class PlainFiles(NamedTuple):
    """Numbers of all files of a batch, as if they were plain JPEG files."""

    addresses: Array
    lengths: Array
    sizes: Array  # height, width and channels of the stored picture
    turns: Array  # as EXIF counts
    others: dict[int, Header | None]  # headers of the other files


class Headers(Sequence["Header | None"]):
    """The headers of a batch; None stands for one that could not be read.

    For plain JPEG files this keeps only numbers, and makes a `Header` from them on demand.
    """

    def __init__(self, files: Node, adjust_orientation: bool, isolate: bool = False) -> None:
        assert files.storage is not None
        strided = files.storage.strides is not None
        self._files, self._storage = files, contiguous(files) if strided else files.storage
        self._adjust, self._isolate = adjust_orientation, isolate
        self._lengths = files.shapes.rows[:, 0]
        self._frames = jpeg.frames(self._storage.addresses, self._lengths)
        self._turns = np.ones(len(self._frames), np.int64)
        self._others: dict[int, Header | None] = {}
        if adjust_orientation:
            for s in np.flatnonzero(self._frames[:, JpegFrame.exif_end]).tolist():
                begin, end = self._frames[s, JpegFrame.exif_begin :].tolist()
                self._turns[s] = exif.orientation_in(self._data(s).data[begin:end])

    def unknown(self) -> list[int]:
        """Samples that need `read`: those that are not plain JPEG files, or too large."""
        sizes = self._frames[:, JpegFrame.height] * self._frames[:, JpegFrame.width]
        found: list[int] = np.flatnonzero((sizes == 0) | (sizes > get_max_pixels())).tolist()
        return found

    def read(self, sample: int) -> None:
        """Read the header of one of these samples; raises a ValueError if it has none."""
        self._others[sample] = None
        if not self._lengths[sample]:
            raise ValueError("there is no data")
        height, width = self._frames[sample, : JpegFrame.channels].tolist()
        if height:
            check_pixels("jpeg", height, width)
        self._others[sample] = read_checked(self._data(sample), self._adjust, self._isolate)

    def _data(self, sample: int) -> Array:
        return as_array(self._storage, self._files, sample)

    def __len__(self) -> int:
        return len(self._frames)

    @overload
    def __getitem__(self, sample: int) -> Header | None: ...
    @overload
    def __getitem__(self, sample: slice) -> Sequence[Header | None]: ...
    def __getitem__(self, sample: Any) -> Any:
        if isinstance(sample, slice):
            return [self[s] for s in range(*sample.indices(len(self)))]
        if sample in self._others:
            return self._others[sample]
        height, width, channels = self._frames[sample, : JpegFrame.exif_begin].tolist()
        turn = int(self._turns[sample])
        return Header("jpeg", height, width, channels, dt.uint8, False, turn, self._data(sample))

    def __iter__(self) -> Iterator[Header | None]:
        return (self[s] for s in range(len(self)))

    def dtypes(self) -> set[DType]:
        """Element types of all images with a header."""
        found = {h.dtype for h in self._others.values() if h is not None}
        return found | {dt.uint8} if len(self._others) < len(self) else found

    def shapes(self, colour: str) -> Shapes:
        """The shapes of all images; an image without a header gets the first known shape."""
        channels = COLOURS[colour][2]
        rows = self._frames[:, : JpegFrame.exif_begin].copy()
        if channels is not None:
            rows[:, JpegFrame.channels] = channels
        turned = self._turns > 4
        rows[turned, :2] = rows[turned, 1::-1]
        for s, header in self._others.items():
            rows[s] = 0 if header is None else header.shape(colour)
        known = rows[:, 0] > 0
        first = rows[known.argmax()] if known.any() else (1, 1, 1 if colour == "GRAY" else 3)
        rows[~known] = first
        return Shapes(rows)

    @property
    def plain(self) -> PlainFiles:
        sizes = self._frames[:, : JpegFrame.exif_begin]
        return PlainFiles(
            self._storage.addresses, self._lengths, sizes, self._turns, self._others
        )  # fmt: skip

    def addresses(self, samples: Sequence[int] | Array) -> Array:
        """Addresses of the files of some samples."""
        found = self._storage.addresses[samples]
        for k, sample in enumerate(samples if self._others else ()):
            header = self._others.get(int(sample))
            if header is not None:  # an animation is another file
                found[k] = address_of(header.data)
        return found

    def native_lengths(self) -> Array:
        """Sizes of the files that the native loop can decode; 0 for all others."""
        lengths = np.where(self._turns == 1, self._lengths, 0)
        for s, header in self._others.items():
            plain = header is not None and header.codec == "jpeg" and header.orientation == 1
            lengths[s] = lengths[s] if plain and not header.is_cmyk else 0  # type: ignore[union-attr]
        return lengths
