"""Decodes images with nvimgcodec: headers and regions enter, pixels in given memory leave."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes
from ...fusion.graph.storage import Held, Storage
from ...kernels.common import forks
from ...kernels.cpu.decode_loop import nvimgcodec_c
from ...kernels.cpu.decode_loop.job import DecodeJob, Pictures
from ...kernels.cpu.decode_loop.structures import PICTURE
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir import interpreter as interp
from ...kernels.ir.dtypes import DType
from ...kernels.ir.expr import Expr
from . import exif
from .headers import COLOURS, NATIVE, Header, Headers
from .nvimgcodec import new_decoder, nvimgcodec

Region = tuple[int, int, int, int]  # top, left, bottom, right


class _LocalDecoder(threading.local):
    """Decoders and buffers of one thread; threads that share a decoder wait for each other."""

    def __init__(self) -> None:
        self.decoders: dict[bool, Any] = {}
        self.scratch: Any = None  # an image whose buffer is reused
        self.buffer = (0, 0)  # size and address of the buffer of `scratch`
        self.params: dict[tuple[str, bool], Any] = {}

    def address(self) -> int:
        """The address of the pixels of `scratch`, which changes only when the buffer grows."""
        capacity: int = self.scratch.capacity
        if self.buffer[0] != capacity:
            self.buffer = (capacity, self.scratch.__array_interface__["data"][0])
        return self.buffer[1]


_own = _LocalDecoder()

# The helper threads of a decoder do not survive a fork.
forks.in_child(lambda: _own.__init__())  # type: ignore[misc]


def _decoder(fast_idct: bool) -> Any:
    own = _own
    decoder = own.decoders.get(fast_idct)
    if decoder is None:
        decoder = own.decoders[fast_idct] = new_decoder(nvimgcodec(), fast_idct)
    return decoder


def _params(colour: str, turned: bool = False) -> Any:
    own = _own
    params = own.params.get((colour, turned))
    if params is None:
        library = nvimgcodec()
        spec, form, _ = COLOURS[colour]
        params = own.params[colour, turned] = library.DecodeParams(
            apply_exif_orientation=turned,
            color_spec=getattr(library.ColorSpec, spec),
            sample_format=getattr(library.SampleFormat, form),
            allow_any_depth=True,
        )
    return params


# -- pixels --------------------------------------------------------------------------------------


def decode_into(
    header: Header, colour: str, region: Region | None, fast_idct: bool, out: Array
) -> None:
    """Decode an image, or a region of it, in its own element type; raises ValueError on failure."""
    if out.size == 0:
        return
    # Upstream decodes rotated images with a decoder that has no fast mode.
    decoder = _decoder(fast_idct and header.orientation == 1)
    if header.orientation != 1 and header.codec not in _TURNED_HERE and not header.is_grey_alpha:
        pixels = np.asarray(_decoded(decoder, header.stream(), None, colour, turned=True))
        if region is not None:
            pixels = pixels[region[0] : region[2], region[1] : region[3]]
        _store(pixels, out)
        return
    whole: Region = (0, 0, header.height, header.width)
    place = whole
    if region is not None:
        place = exif.stored_region(region, header.height, header.width, header.orientation)
    wide = _decodable(header, place)
    stream = header.stream()
    if wide != whole:
        stream = stream.get_sub_code_stream(region=nvimgcodec().Region(*wide))
    stored = _stored_colour(header, colour)
    if header.orientation == 1 and stored == colour and wide == place and out.flags.c_contiguous:
        # Straight into the result: the wrapper costs 11 µs, a copy of 375×500 pixels 24 µs.
        image = _decoded(decoder, stream, nvimgcodec().as_image(out), colour)
        if not _is_as_told(image, out.shape, out.nbytes):
            _check_shape(image, out)
        return
    image = _reused(decoder, stream, stored)
    pixels = np.asarray(image)
    top, left = place[0] - wide[0], place[1] - wide[1]
    pixels = pixels[top : top + place[2] - place[0], left : left + place[3] - place[1]]
    pixels = exif.upright(pixels, header.orientation)
    if stored == "GRAY" != colour:
        pixels = np.broadcast_to(pixels, (*pixels.shape[:2], 3))
    elif stored != colour:
        r, g, b = np.moveaxis(pixels.astype(np.float32), -1, 0)
        grey = np.float32(0.299) * r + np.float32(0.587) * g + np.float32(0.114) * b
        pixels = grey.astype(pixels.dtype)[..., None]  # truncated as upstream, not rounded
    _store(pixels, out)


def _stored_colour(header: Header, colour: str) -> str:
    """The colour space to decode to first."""
    if header.is_cmyk and colour == "GRAY":
        return "RGB"  # upstream converts CMYK to grey via RGB
    if header.is_grey_alpha and colour in ("RGB", "BGR"):
        return "GRAY"
    return colour


# Formats that we rotate ourselves, so that only the region of a rotated image is decoded. For other
# formats upstream's grey differs from that by one in places, so nvimgcodec rotates them.
_TURNED_HERE = ("jpeg", "png")


def _store(pixels: Array, out: Array) -> None:
    _check_shape(pixels, out)
    out[...] = pixels


def _is_as_told(image: Any, shape: tuple[int, ...], nbytes: int) -> bool:
    """Whether an image is as large as its header says; faster than comparing shape and type."""
    extents = (image.height, image.width, image.num_channels)
    return extents == shape and image.size == nbytes


def _check_shape(pixels: Any, out: Array) -> None:
    if tuple(pixels.shape) != out.shape or np.dtype(pixels.dtype) != out.dtype:
        raise ValueError(
            f"its pixels are {tuple(pixels.shape)} of {np.dtype(pixels.dtype)}, but its header "
            f"says {out.shape} of {out.dtype}"
        )


def _decoded(decoder: Any, stream: Any, image: Any, colour: str, turned: bool = False) -> Any:
    try:
        result = decoder.decode(stream, image=image, params=_params(colour, turned))
    except RuntimeError as error:
        raise ValueError(f"its pixels cannot be decoded: {error}") from None
    if result is None:
        raise ValueError(
            f"its pixels cannot be decoded as {colour}: the data is damaged or of an unsupported "
            "kind"
        )
    return result


def _reused(decoder: Any, stream: Any, colour: str) -> Any:
    """An image in this thread's buffer, valid until the thread decodes the next one."""
    image = _own.scratch
    if image is None:
        _own.buffer = (0, 0)
    _own.scratch = None  # after a failure its state is unknown
    _own.scratch = _decoded(decoder, stream, image, colour)
    return _own.scratch


def _decodable(header: Header, region: Region) -> Region:
    """The region to decode for a region of the stored picture.

    libjpeg-turbo decodes the leftmost column of a JPEG with 4:2:0 chroma to other colours if it is
    decoded without its neighbour. (Of all regions of all formats in the tests, only this differs.)
    """
    top, left, bottom, right = region
    if header.codec == "jpeg" and left == 0 and right == 1 and header.width > 1:
        return top, 0, bottom, 2
    return region


# -- types and colours ---------------------------------------------------------------------------
# Upstream scales full range to full range: 255 → 65535 → 1.0. We use an expression, which fuses.

_LUMA = (0.299, 0.587, 0.114)
_TO_YCBCR = (
    tuple(w * 219 / 255 for w in _LUMA),
    tuple(((k == 2) - w) / 1.772 * 224 / 255 for k, w in enumerate(_LUMA)),
    tuple(((k == 0) - w) / 1.402 * 224 / 255 for k, w in enumerate(_LUMA)),
)


def _full_scale(dtype: DType) -> int:
    return 1 if dtype.is_float else int(np.iinfo(dtype.np).max)


def scaled(x: Expr, dtype: DType) -> Expr:
    """Scale a value from the full range of its type to that of another."""
    if x.dtype is dtype:
        return x
    factor = np.float32(_full_scale(dtype)) / np.float32(_full_scale(x.dtype))
    return ex.convert(ex.cast(x, dt.float32) * float(factor), dtype)


def ycbcr(x: Expr, dtype: DType) -> Expr:
    """An RGB pixel as YCbCr (BT.601, studio range) in another type; `x` is read by channel."""
    channels = [ex.cast(ex.at_axis(x, -1, k), dt.float32) for k in range(3)]
    factor = np.float32(_full_scale(dtype) / _full_scale(x.dtype))
    span = 1.0 if dtype.is_float else _full_scale(dtype) + 1.0
    values = []
    for row, offset in zip(_TO_YCBCR, (1 / 16, 1 / 2, 1 / 2), strict=True):
        r, g, b = (c * float(np.float32(m) * factor) for m, c in zip(row, channels, strict=True))
        values.append(ex.convert(r + g + b + offset * span, dtype))
    channel = ex.index(-1)
    rest = ex.select(ex.eq(channel, 1), values[1], values[2])
    return ex.select(ex.eq(channel, 0), values[0], rest)


def converted(pixels: Array, is_ycbcr: bool, dtype: DType) -> Array:
    """Apply `ycbcr` or `scaled` to the pixels of one sample, on the host."""
    native = NATIVE[pixels.dtype]
    x = ex.body_input(0, native)
    env: dict[Any, Any] = {x: pixels}
    if is_ycbcr:
        env = {ex.at_axis(x, -1, k): pixels[..., k : k + 1] for k in range(3)}
        env[ex.index(-1)] = np.arange(3, dtype=np.int32)
    return interp.evaluate((ycbcr if is_ycbcr else scaled)(x, dtype), env)


# -- a batch of images ---------------------------------------------------------------------------


class Images:
    """Headers and regions of all samples of a Decode node, and how to handle failures.

    `regions` [samples, 4] are (top, left, bottom, right) in upright pictures; None means whole
    pictures. A header is None if it could not be read and failures are filled.
    """

    def __init__(
        self,
        headers: Headers,
        sources: Sequence[str],
        colour: str,
        fast_idct: bool,
        failed: Any = None,
        regions: Array | None = None,
    ) -> None:
        self.headers = headers
        self.sources = sources
        self.colour = colour
        self.fast_idct = fast_idct
        self.failed = failed  # called with (sample, error), then zeros are used; None raises
        self.regions = regions

    def suits_gpu(self, dtype: DType) -> bool:
        """Whether nvimgcodec's GPU decoders give the same results as its CPU decoders."""
        return all(
            h is not None
            and h.orientation == 1
            and h.dtype is dtype
            and not (h.is_cmyk or h.is_grey_alpha)
            for h in self.headers
        )

    def windowed(self, start: Array, size: Array) -> Images:
        """The same images, reduced to windows [samples, 2] inside of the regions."""
        if self.regions is not None:
            start = start + self.regions[:, :2]
        regions = np.concatenate([start, start + size], axis=1).astype(np.int64)
        return type(self)(
            self.headers, self.sources, self.colour, self.fast_idct, self.failed, regions
        )

    def decode(self, sample: int, out: Array) -> None:
        """Decode one sample into `out`."""
        header = self._header(sample)
        if header is None:
            out[...] = 0
            return
        try:
            self._decode(header, sample, NATIVE[out.dtype], out)
        except ValueError as error:
            self._fail(sample, header, error)
            out[...] = 0

    def _header(self, sample: int) -> Header | None:
        return self.headers[sample]

    def _fail(self, sample: int, header: Header, error: ValueError) -> None:
        """Raise the error of a sample, or note it if zeros are to be used."""
        problem = ValueError(f"{self.name(sample, header)}: {error}")
        if self.failed is None:
            raise problem from None
        self.failed(sample, problem)

    def held(self, sample: int, shape: tuple[int, ...], dtype: Any) -> int | None:
        """Decode a sample into this thread's buffer; returns its address, valid until the next one.

        Returns None if the sample needs more than decoding, or fails: then use `decode`. This
        avoids wrapping our memory for nvimgcodec, which takes 5 % of the time of a photo.
        """
        header = self.headers[sample]
        if header is None or header.orientation != 1 or header.is_cmyk or header.is_grey_alpha:
            return None
        if self.colour == "YCbCr" or header.dtype.np != dtype:
            return None
        stream = header.stream()
        if self.regions is not None:
            region = tuple(self.regions[sample].tolist())
            if _decodable(header, region) != region:
                return None
            stream = stream.get_sub_code_stream(region=nvimgcodec().Region(*region))
        try:
            image = _reused(_decoder(self.fast_idct), stream, self.colour)
        except ValueError:
            return None
        as_told = _is_as_told(image, shape, dtype.itemsize * prod(shape))
        return _own.address() if as_told else None

    def native(self, encoded: Array, shapes: Shapes, dtype: DType) -> Pictures | None:
        """The samples that the native loop can decode, or None if there are none. `encoded` are the
        addresses of the files, which the caller keeps alive."""
        suits = self.colour in nvimgcodec_c.FORMATS and dtype is dt.uint8
        library = nvimgcodec_c.library(nvimgcodec) if nvimgcodec_c.is_enabled and suits else None
        lengths = self.headers.native_lengths()
        if library is None or not lengths.any():
            return None
        lengths[shapes.volumes == 0] = 0  # nothing is decoded for an empty region
        rows = np.zeros(len(lengths), PICTURE)
        rows["height"], rows["width"], rows["channels"] = shapes.rows.T
        if self.regions is not None:
            rows["top"], rows["left"], rows["bottom"], rows["right"] = self.regions.T
            lengths[(rows["left"] == 0) & (rows["right"] == 1)] = 0  # see `_decodable`
        rows["data"], rows["length"] = encoded, lengths
        return Pictures(rows, self.colour, self.fast_idct, library, DecodeJob)

    def _region(self, sample: int) -> Region | None:
        return None if self.regions is None else tuple(self.regions[sample].tolist())

    @property
    def stored_colour(self) -> str:
        """The colour space that is decoded; YCbCr follows from RGB."""
        return "RGB" if self.colour == "YCbCr" else self.colour

    def _decode_into(self, header: Header, sample: int, out: Array) -> None:
        """Decode a sample, in the type of its file."""
        decode_into(header, self.stored_colour, self._region(sample), self.fast_idct, out)

    def _decode(self, header: Header, sample: int, dtype: DType, out: Array) -> None:
        is_ycbcr = self.colour == "YCbCr"
        if header.dtype is dtype and not is_ycbcr:
            self._decode_into(header, sample, out)
            return
        shape = (*out.shape[:2], header.shape(self.stored_colour)[2])
        pixels = np.empty(shape, header.dtype.np)
        self._decode_into(header, sample, pixels)
        out[...] = converted(pixels, is_ycbcr, dtype)

    def name(self, sample: int, header: Header | None = None) -> str:
        """The name of a sample in messages: its number, file and format."""
        source = self.sources[sample]
        kind = f", {header.codec}" if header is not None else ""
        return f"sample {sample}{f' ({source}{kind})' if source or kind else ''}".replace(
            "(, ", "("
        )


def decode_sample(images: Images, sample: int, out: Array) -> None:
    """The function of a Decode node."""
    images.decode(sample, out)


# -- on a GPU ------------------------------------------------------------------------------------
# This has never run, because there was no GPU (docs/gpu.md).


def on_gpu(
    op: str, x: Node, images: Images, shapes: Shapes, dtype: DType, ordinal: int,
    fancy_upsampling: bool,
) -> Node:  # fmt: skip
    """A node that nvimgcodec's GPU back-end decodes into device memory, on the context's stream."""
    from ...runtime.context import current_context

    params = (images, current_context(), fancy_upsampling)
    return build.host(op, _decode_on_gpu, [x], shapes, dtype, "HWC", x.batch, params, ordinal)


def _decode_on_gpu(node: Node, _inputs: list[Node], params: Any) -> Storage:
    from ...runtime.gpu_runtimes import runtime_of

    images, context, fancy_upsampling = params
    library = nvimgcodec()
    flags = f":fancy_upsampling={int(fancy_upsampling)} :fast_idct={int(images.fast_idct)}"
    decoder = library.Decoder(device_id=node.device, options=flags)
    streams = [h.stream() for h in images.headers]
    if images.regions is not None:
        streams = [
            s.get_sub_code_stream(region=library.Region(*r))
            for s, r in zip(streams, images.regions.tolist(), strict=True)
        ]
    stream = runtime_of(context, node.device).stream
    pictures = decoder.decode(streams, params=_params(images.colour), cuda_stream=stream.handle)
    for s, (picture, shape) in enumerate(zip(pictures, node.shapes.tuples, strict=True)):
        if picture is None or tuple(picture.shape) != shape:
            problem = ValueError(f"{images.name(s, images.headers[s])}: it cannot be decoded")
            if images.failed is None:
                raise problem
            images.failed(s, problem)
            pictures[s] = library.as_image(np.zeros(shape, node.dtype.np)).cuda()
    held = [p.cuda() for p in pictures]
    addresses = [p.__cuda_array_interface__["data"][0] for p in held]
    return Storage(np.array(addresses, np.int64), Held(held))
