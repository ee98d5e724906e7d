"""Decode images and .npy files to arrays; shapes are known at the call, from the headers."""

from __future__ import annotations

import inspect
import io
import os
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple, overload

import numpy as np

from ...codecs.image import decode as codec
from ...codecs.image.decode import Images
from ...codecs.image.headers import Headers
from ...codecs.image.scaled import simplejpeg
from ...codecs.on_error import Ledger, SampleError, check_decoder_policy
from ...core import convert
from ...core.batch import Batch
from ...core.errors import at_site, user_site
from ...core.handle import Handle, evaluate_node
from ...core.inputs import on_gpu, on_host
from ...core.schema import OPS, data, geometry, op, static
from ...core.tensor import Tensor
from ...fusion.graph import build
from ...fusion.graph.doubts import doubted
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import MAX_EXTENT, Array, Shapes
from ...kernels.gpu.env import simulating
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir import interpreter as interp
from ...kernels.ir.dtypes import DALIImageType, DType
from ...loop.calls import this_thread
from ...runtime.context import scales_decoding
from ...runtime.rng import draw_of
from ..geometry.window import CROP_ROUNDINGS, OLD_DOC, POSITION_DOC, ROUNDING_DOC, crop_bounds
from ..random.crop import (
    AREA_DOC,
    ASPECT_DOC,
    ATTEMPTS_DOC,
    RNG_DOC,
    check_crop_ranges,
    crop_windows,
)

ON_ERROR_DOC = (
    "What to do with an image that cannot be decoded: 'raise' an error; 'fill' it with zeros; or "
    "call a function that takes the SampleError and returns the pixels, or None to fill. "
    "`batch.valid` tells which samples are bad, and `ndd.decoders.errors` records failures."
)
ISOLATE_DOC = (
    "Decode in other processes with limits of memory and time, where a hostile file costs only "
    "itself; the default is False, or True if the environment has NDD_ISOLATE=1."
)
SCALED_DOC = (
    "Where a resize shrinks a JPEG by more than 4, decode only 1/2, 1/4 or 1/8 of its pixels per "
    "side, never less than twice the target; faster, not exact, needs simplejpeg. By default what "
    "`ndd.fusion_options` says."
)
PIXEL_TYPES = (dt.uint8, dt.int8, dt.uint16, dt.int16, dt.uint32, dt.int32, dt.float32)

# Samples that could not be decoded, recorded under every policy except "raise".
errors = Ledger(of_batches=True)

_GPU_DOC = "For the GPU decoder; without effect."
# Arguments that tune upstream's memory and GPU work; they have no effect here.
_UNUSED = {
    "affine": static(bool, True, "Whether threads are bound to cores; without effect."),
    "device_memory_padding": static(int, 16777216, _GPU_DOC),
    "device_memory_padding_jpeg2k": static(int, 0, _GPU_DOC),
    "host_memory_padding": static(int, 8388608, _GPU_DOC),
    "host_memory_padding_jpeg2k": static(int, 0, _GPU_DOC),
    "hw_decoder_load": static(float, 0.65, _GPU_DOC),
    "hybrid_huffman_threshold": static(int, 1000000, _GPU_DOC),
    "memory_stats": static(bool, False, OLD_DOC),
    "preallocate_height_hint": static(int, 0, _GPU_DOC),
    "preallocate_width_hint": static(int, 0, _GPU_DOC),
    "split_stages": static(bool, False, OLD_DOC),
    "use_chunk_allocator": static(bool, False, OLD_DOC),
}
_CACHE_DOC = "For upstream's cache of decoded images; without effect."
_UNUSED_CACHE = {
    "cache_batch_copy": static(bool, True, _CACHE_DOC),
    "cache_debug": static(bool, False, _CACHE_DOC),
    "cache_size": static(int, 0, _CACHE_DOC),
    "cache_threshold": static(int, 0, _CACHE_DOC),
    "cache_type": static(str, "", _CACHE_DOC),
}
_USED = {
    "adjust_orientation": static(bool, True, "Turn the image as its EXIF data says."),
    "dtype": static(
        DType,
        dt.uint8,
        "Element type; values are scaled from full range to full range, floats to 0…1.",
    ),
    "isolate": static(bool, None, ISOLATE_DOC),
    "jpeg_fancy_upsampling": static(bool, False, "Smooth JPEG chroma on the GPU, as the CPU does."),
    "on_error": static("Policy", "raise", ON_ERROR_DOC),
    "output_type": static(DALIImageType, DALIImageType.RGB, "Colour space of the result."),
    "scaled_decode": static(bool, None, SCALED_DOC),
    "use_fast_idct": static(bool, False, "Decode JPEG faster and less exactly."),
}


class Options(NamedTuple):
    """The arguments that all image decoders share."""

    adjust_orientation: bool
    dtype: DType
    isolate: bool | None
    jpeg_fancy_upsampling: bool
    on_error: Any
    output_type: DALIImageType
    scaled_decode: bool | None
    use_fast_idct: bool


def _image_decoder(body: Callable[..., Any]) -> Callable[..., Any]:
    """Add the shared arguments to the signature of `body`, which receives them as `options`."""
    unused = {**_UNUSED, **(_UNUSED_CACHE if body.__name__ == "image" else {})}

    def whole(*inputs: Any, ordinal: int | None, **arguments: Any) -> Any:
        options = Options(**{name: arguments.pop(name) for name in _USED})
        for name in unused:
            del arguments[name]
        check_decoder_policy(options.on_error, f"decoders.{body.__name__}")
        return body(*inputs, options=options, ordinal=ordinal, **arguments)

    own = [p for p in inspect.signature(body).parameters.values() if p.default is not p.empty]
    shared = sorted([*_USED.items(), *unused.items()])
    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(name, keyword, default=param) for name, param in shared]
    whole.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    whole.__name__, whole.__doc__ = body.__name__, body.__doc__
    return whole


# -- from bytes to a node ------------------------------------------------------------------------


def encoded(x: Node) -> Node:
    """The bytes of all samples, evaluated now."""
    if x.dtype is not dt.uint8 or x.rank != 1:
        raise TypeError(
            f"encoded data must be one-dimensional uint8 (the bytes of a file), got {x.dtype} of "
            f"shape {x.shapes.tuples[0]}"
        )
    return on_host(x)


def sources_of(x: Node) -> Sequence[str]:
    """The source of each sample, such as a file name; empty if unknown."""
    info = x.source_info
    if info is None or isinstance(info, str):
        return [info or ""] * x.count
    return info


def is_isolated(asked: bool | None) -> bool:
    """Whether to decode in other processes."""
    return os.environ.get("NDD_ISOLATE") == "1" if asked is None else asked


def _isolated_images() -> type[Images]:
    from ...codecs.image.isolated.isolated_images import IsolatedImages

    return IsolatedImages


class Decoding:
    """One call of an image decoder: reads headers when constructed, pixels when evaluated."""

    def __init__(self, name: str, x: Node, options: Options) -> None:
        if options.dtype not in PIXEL_TYPES:
            known = ", ".join(map(str, PIXEL_TYPES))
            raise TypeError(f"`dtype` must be one of {known}, got {options.dtype}")
        self.name = name
        self.x = x
        self.options = options
        self.sources = sources_of(x)
        self.failures: dict[int, SampleError] = {}
        self.ahead = this_thread.failures  # set if the call is made in advance
        self.isolate = is_isolated(options.isolate)
        self.headers = self._read_headers()
        colour = options.output_type.name
        natives = self.headers.dtypes()
        # if all images have one pixel type, convert in the graph, where it fuses; else per sample
        self.native = natives.pop() if len(natives) == 1 else None
        plain = "RGB" if colour == "YCbCr" else colour
        self.colour = plain if self.native else colour
        self.shapes = self.headers.shapes(plain)
        failed = None if options.on_error == "raise" else self._failed
        kind = _isolated_images() if self.isolate else Images
        self.images = kind(self.headers, self.sources, self.colour, options.use_fast_idct, failed)

    def _read_headers(self) -> Headers:
        headers = Headers(encoded(self.x), self.options.adjust_orientation, self.isolate)
        for s in headers.unknown():
            try:
                headers.read(s)
            except ValueError as error:
                source = f" ({self.sources[s]})" if self.sources[s] else ""
                problem = ValueError(f"sample {s}{source}: {error}")
                if self.options.on_error == "raise":
                    raise problem from None
                self._failed(s, problem)
        return headers

    def _failed(self, sample: int, error: ValueError) -> None:
        place = self.sources[sample], sample
        ahead = self.ahead
        self.failures[sample] = (
            errors.add(*place, error) if ahead is None else ahead.add(errors, *place, error)
        )

    @property
    def extents(self) -> Array:
        """Heights and widths."""
        return self.shapes.rows[:, :2]

    def frame(self) -> Node:
        """A placeholder with the extents of the decoded images, from which windows are computed."""
        shapes = Shapes(np.ascontiguousarray(self.extents))
        return Node("frame", None, shapes, dt.uint8, "HW", self.x.batch)

    def window(self, start: Array, size: Array) -> None:
        """Decode only a window [samples, 2] of each image."""
        outside = ((start < 0) | (start + size > self.extents) | (size < 0)).any(axis=1)
        if outside.any():
            s = int(np.flatnonzero(outside)[0])
            height, width = self.shapes.tuples[s][:2]
            (top, left), (bottom, right) = start[s].tolist(), (start[s] + size[s]).tolist()
            raise ValueError(
                f"the window [{top}…{bottom}, {left}…{right}] leaves the image of "
                f"{height}x{width} pixels: {self.images.name(s)}"
            )
        self.images = self.images.windowed(start, size)
        rows = np.concatenate([size, self.shapes.rows[:, 2:]], axis=1)
        self.shapes = Shapes(rows.astype(np.int64))

    def node(self, ordinal: int | None) -> Node:
        """The decoded images, in the requested colour space and type."""
        dtype = self.options.dtype
        result = self._pixels(self.native or dtype, ordinal)
        is_ycbcr = self.options.output_type.name == "YCbCr"
        if self.native and (is_ycbcr or self.native is not dtype):
            body = codec.ycbcr if is_ycbcr else codec.scaled
            result = build.pointwise(
                self.name, body, [result], [(0, 1, 2)], self.shapes, "HWC", (dtype,)
            )
        if callable(self.options.on_error):
            result = self._replaced(result)
        doubts = result.doubts
        if self.options.on_error != "raise":
            doubts = (*doubts, *doubted(self.failures, self.x.count))
        named = result.like(source_info=self.x.source_info, doubts=doubts)
        named.result.scaling = result.result.scaling
        return named

    def _pixels(self, dtype: DType, ordinal: int | None) -> Node:
        if ordinal is not None and not simulating() and self.images.suits_gpu(dtype):
            return codec.on_gpu(self.name, self.x, self.images, self.shapes, dtype, ordinal,
                                self.options.jpeg_fancy_upsampling)  # fmt: skip
        node = build.decode(
            self.name, codec.decode_sample, self.x, self.shapes, dtype, "HWC", self.images,
            has_regions=True,
        )  # fmt: skip
        node.result.site = user_site()
        if ordinal is not None:
            return build.transfer(node, ordinal)
        self._allow_scaling(node)
        return node

    def _allow_scaling(self, node: Node) -> None:
        """Note on a node that a resize may have it decoded smaller, if the caller wants that."""
        asked = self.options.scaled_decode
        wanted = scales_decoding() if asked is None else asked
        if wanted and not self.isolate and self.images.regions is None:
            simplejpeg()  # tells at the call if it is missing
            node.result.scaling = self.x, self.images

    def _replaced(self, node: Node) -> Node:
        """Evaluate now and ask the user's function for the samples that failed; it may give other
        shapes."""
        from ...runtime.context import current_context

        node.result.context = current_context()
        evaluate_node(node)
        if not self.failures:
            return node
        arrays = convert.arrays_of(on_host(node))
        for s in sorted(self.failures):
            given = self.options.on_error(self.failures[s])
            if given is not None:
                arrays[s] = self._checked(given, node.dtype)
        made = convert.copy_arrays(arrays, node.dtype, "HWC", node.batch)
        return made if node.device is None else on_gpu(made, node.device)

    def _checked(self, given: Any, dtype: DType) -> Array:
        array = np.asarray(given)
        if array.ndim != 3 or array.dtype != dtype.np:
            raise TypeError(
                f"the function `on_error` must give an image of {dtype} and layout HWC, got "
                f"{array.dtype} of shape {array.shape}"
            )
        return array


# -- the ops -------------------------------------------------------------------------------------

_ENCODED = "Encoded images: the bytes of files, also as `bytes`, a list of `bytes`, or PIL images."


_PNM = "pnm = ndd.tensor(list(b'P3 2 1 255 1 2 3 4 5 6 '), dtype=ndd.uint8)\n"


@op.graph(
    name="decoders.image",
    mixed=True,
    sample=_PNM + "ndd.decoders.image(pnm).torch().tolist()\n=[[[1, 2, 3], [4, 5, 6]]]",
)
@_image_decoder
def image(input=data(_ENCODED, files=True), *, options, ordinal):
    """Decode images: JPEG, PNG, BMP, TIFF, WebP, JPEG 2000 or PNM."""
    return Decoding("decoders.image", input, options).node(ordinal)


@op.graph(
    name="decoders.image_crop",
    mixed=True,
    sample=_PNM + "ndd.decoders.image_crop(pnm, crop=[1, 1], crop_pos_x=1.0).torch().tolist()\n"
    "=[[[4, 5, 6]]]",
)
@_image_decoder
def image_crop(
    input=data(_ENCODED, files=True),
    crop=geometry(float, None, "Size of the window: (H, W).", vector=True),
    crop_d=geometry(float, None, "Depth of the window; images have none."),
    crop_h=geometry(float, None, "Height of the window; 0 for the full height."),
    crop_pos_x=geometry(float, 0.5, POSITION_DOC),
    crop_pos_y=geometry(float, 0.5, POSITION_DOC),
    crop_pos_z=geometry(float, 0.5, POSITION_DOC),
    crop_w=geometry(float, None, "Width of the window; 0 for the full width."),
    rounding=static(CROP_ROUNDINGS, "round", ROUNDING_DOC),
    *,
    options,
    ordinal,
):
    """Decode a window, like `crop` after `decoders.image`, without decoding the rest."""
    decoding = Decoding("decoders.image_crop", input, options)
    _, start, size = crop_bounds(
        decoding.frame(), crop, crop_w, crop_h, crop_d, crop_pos_x, crop_pos_y, crop_pos_z, rounding
    )
    decoding.window(start, size)
    return decoding.node(ordinal)


@op.graph(
    name="decoders.image_slice",
    mixed=True,
    sample=_PNM + "ndd.decoders.image_slice(pnm, start=[1, 0], end=[2, 1]).torch().tolist()\n"
    "=[[[4, 5, 6]]]",
)
@_image_decoder
def image_slice(
    data=data(_ENCODED, files=True),
    anchor=geometry(None, None, "Start of the window per axis.", vector=True, positional=True),
    shape_input=geometry(None, None, "Extent of the window.", vector=True, positional=True),
    axes=geometry(int, None, "Axes that the bounds apply to; W, H if omitted.", vector=True),
    axis_names=static(str, None, "Letters of these axes, instead of `axes`."),
    end=geometry(int, None, "End of the window.", vector=True),
    normalized_anchor=static(bool, True, "Whether a float `anchor` is relative to the extents."),
    normalized_shape=static(bool, True, "Whether a float `shape_input` is relative."),
    rel_end=geometry(float, None, "End of the window, relative to the extents.", vector=True),
    rel_shape=geometry(float, None, "Extent of the window, relative.", vector=True),
    rel_start=geometry(float, None, "Start of the window, relative.", vector=True),
    shape=geometry(int, None, "Extent of the window.", vector=True),
    start=geometry(int, None, "Start of the window.", vector=True),
    *,
    options,
    ordinal,
):
    """Decode a window, like `slice` after `decoders.image`, without decoding the rest."""
    decoding = Decoding("decoders.image_slice", data, options)
    window = OPS["slice"].body(
        decoding.frame(), anchor, shape_input, axes, axis_names, None, end, (), None,
        normalized_anchor, normalized_shape, "pad", None, rel_end, rel_shape, rel_start, shape,
        start,
    )  # fmt: skip
    decoding.window(window.params[1], window.shapes.rows)
    return decoding.node(ordinal)


@op.graph(
    name="decoders.image_random_crop",
    mixed=True,
    sample=_PNM + "ndd.decoders.image_random_crop(pnm, random_area=[0.5, 0.5]).shape\n=(1, 1, 3)",
)
@_image_decoder
def image_random_crop(
    input=data(_ENCODED, files=True),
    num_attempts=static(int, 10, ATTEMPTS_DOC),
    random_area=static("floats", (0.08, 1.0), AREA_DOC),
    random_aspect_ratio=static("floats", (3 / 4, 4 / 3), ASPECT_DOC),
    rng=static("RNG", None, RNG_DOC),
    *,
    options,
    ordinal,
):
    """Decode a random window of each image: area uniform, aspect ratio log-uniform."""
    area, aspect = check_crop_ranges(random_area, random_aspect_ratio, num_attempts)
    decoding = Decoding("decoders.image_random_crop", input, options)
    start, size = crop_windows(decoding.extents, draw_of(rng), area, aspect, num_attempts)
    decoding.window(start, size)
    return decoding.node(ordinal)


_SHAPE_TYPES = (dt.int32, dt.uint32, dt.int64, dt.uint64, dt.float32, dt.float64)


@op.graph(mixed=True, sample=_PNM + "ndd.peek_image_shape(pnm)[1].item()\n=2")
def peek_image_shape(
    input=data(_ENCODED, files=True),
    adjust_orientation=static(bool, True, "Apply the EXIF orientation to the shape."),
    dtype=static(DType, dt.int64, "Element type of the result."),
    image_type=static(DALIImageType, DALIImageType.RGB, "Determines the number of channels."),
    isolate=static(bool, None, "Read headers in another process, as `decoders.image` does."),
    *,
    ordinal,
):
    """Height, width and channels of encoded images, from their headers."""
    if ordinal is not None:
        raise ValueError("shapes are read on the CPU: device='gpu' is not supported")
    if dtype not in _SHAPE_TYPES:
        known = ", ".join(map(str, _SHAPE_TYPES))
        raise TypeError(f"`dtype` must be one of {known}, got {dtype}")
    options = Options(
        adjust_orientation, dt.uint8, isolate, False, "raise", image_type, False, False
    )
    shapes = Decoding("peek_image_shape", input, options).shapes
    return convert.copy_arrays(list(shapes.rows.astype(dtype.np)), dtype, None, input.batch)


# -- .npy ----------------------------------------------------------------------------------------


@op.graph(
    name="decoders.numpy",
    mixed=True,
    sample="""import io, numpy
file = io.BytesIO()
numpy.save(file, numpy.arange(3))
ndd.decoders.numpy(numpy.frombuffer(file.getbuffer(), numpy.uint8)).torch().tolist()
=[0, 1, 2]""",
)
def numpy(
    data=data("Encoded arrays: the bytes of .npy files.", files=True),
    dtype=static(DType, None, "Element type of the result; that of the arrays if omitted."),
    *,
    ordinal,
):
    """Decode arrays in NumPy's file format."""
    sources = sources_of(data)
    parts = []
    for s, array in enumerate(convert.arrays_of(encoded(data))):
        try:
            parts.append(_read_npy(array))
        except ValueError as error:
            source = f" ({sources[s]})" if sources[s] else ""
            raise ValueError(f"sample {s}{source}: {error}") from None
    kinds = {kind for kind, _ in parts}
    if len(kinds) > 1 and dtype is None:
        raise TypeError(
            f"the arrays have different types, so `dtype` is needed: "
            f"{', '.join(sorted(map(str, kinds)))}"
        )
    if len({a.ndim for _, a in parts}) > 1:
        raise ValueError("the arrays have different numbers of dimensions")
    shapes = Shapes.of([a.shape for _, a in parts], parts[0][1].ndim)
    # Arrays of one type are converted in the graph, where it fuses.
    kind = parts[0][0] if len(kinds) == 1 else dtype
    node = build.decode(
        "decoders.numpy", _copy_sample, data, shapes, kind, None, _Arrays(parts, kind)
    )
    node.result.site = user_site()
    node = node if ordinal is None else build.transfer(node, ordinal)
    if dtype is not None and dtype is not node.dtype:
        axes = tuple(range(node.rank))
        node = build.pointwise("decoders.numpy", ex.convert, [node], [axes], shapes, None, (dtype,))
    return node.like(source_info=data.source_info)


class _Arrays(NamedTuple):
    """The params of the node of decoders.numpy."""

    parts: list[tuple[DType, Array]]
    dtype: DType


def _copy_sample(arrays: _Arrays, sample: int, out: Array) -> None:
    kind, array = arrays.parts[sample]
    if kind is not arrays.dtype:
        x = ex.body_input(0, kind)
        array = interp.evaluate(ex.convert(x, arrays.dtype), {x: array})
    out[...] = array


def _read_npy(data: Array) -> tuple[DType, Array]:
    """The array stored in the bytes of a .npy file, without a copy."""
    start, shape, is_fortran, kind = _npy_header(data)
    dtype = None if kind.hasobject or kind.names else dt.from_numpy(kind.newbyteorder("="))
    if dtype is None:
        raise ValueError(f"arrays of {kind} are not supported")
    count = prod(shape)
    fits = all(0 <= extent <= MAX_EXTENT for extent in shape)
    left = data.size - start
    if not fits or count * kind.itemsize != left:
        ends = "ends before" if not fits or count * kind.itemsize > left else "is longer"
        raise ValueError(f"the header tells shape {shape} of {kind}, the data {ends}")
    flat = np.frombuffer(data, kind, count, start)
    return dtype, flat.reshape(shape, order="F" if is_fortran else "C")


_NPY_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def _npy_header(data: Array) -> tuple[int, tuple[int, ...], bool, np.dtype[Any]]:
    """Where the values begin, their shape, whether they are in Fortran order, and their type."""
    # 64 KB are enough: NumPy rejects headers of more than 10000 bytes
    stream = io.BytesIO(data[: 1 << 16].tobytes())
    try:
        version = np.lib.format.read_magic(stream)
        read = _NPY_HEADERS.get(version)
        if read is None:
            raise ValueError(f"its version {version} is unknown")
        shape, is_fortran, kind = read(stream)
    except Exception as error:  # the header is Python source, so nearly anything can go wrong
        raise ValueError(f"{data.size} bytes are not a .npy file: {error}") from None
    return stream.tell(), tuple(map(int, shape)), is_fortran, kind


# -- files ---------------------------------------------------------------------------------------


Location = str | os.PathLike[str]


@overload
def imread(filepaths: Location | Tensor, /, *, device: Any = "cpu", **options: Any) -> Tensor: ...
@overload
def imread(
    filepaths: list[Any] | tuple[Any, ...] | Batch, /, *, device: Any = "cpu", **options: Any
) -> Batch: ...
def imread(
    filepaths: Location | Sequence[Location] | Handle, /, *, device: Any = "cpu", **options: Any
) -> Any:
    """Read and decode image files: a Tensor for one path, a Batch for several.

    All other arguments are those of `decoders.image`.

    >>> import ndd, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "two_pixels.ppm"
    ...     _ = path.write_text("P3 2 1 255 1 2 3 4 5 6 ")
    ...     image = ndd.imread(path)
    >>> image.torch().tolist()
    [[[1, 2, 3], [4, 5, 6]]]
    """
    if isinstance(filepaths, Handle):
        if filepaths._node.count == 0:
            return image(filepaths, device=device, **options)
        filepaths = _decoded_paths(filepaths)
    one = filepaths if isinstance(filepaths, (str, os.PathLike)) else None
    paths: list[Location] = [one] if one is not None else list(filepaths)  # type: ignore[arg-type]
    try:
        if not paths:
            raise ValueError("no files are given")
        keep_going = options.get("on_error", "raise") != "raise"
        arrays = [_read_file(path, keep_going) for path in paths]
    except Exception as error:
        raise at_site(error, "imread", user_site()) from None
    names = [os.fspath(p) for p in paths]
    node = convert.wrap_arrays(
        arrays, dt.uint8, None, one is None, external=False,
        source_info=names if one is None else names[0],
    )  # fmt: skip
    from ...core.call import wrap

    return image(wrap(node), device=device, **options)


def _decoded_paths(handle: Handle) -> str | list[str]:
    """Paths given as tensors of their bytes."""
    from ...io.file import paths_of

    try:
        paths, is_batch = paths_of(handle, "imread")
    except Exception as error:
        raise at_site(error, "imread", user_site()) from None
    names = [os.fsdecode(p) for p in paths]
    return names if is_batch else names[0]


def _imread_signature() -> inspect.Signature:
    """The arguments of `imread`, then those of `decoders.image` except its input and batch size."""
    own = inspect.signature(imread).parameters
    shared = inspect.signature(image).parameters
    added = [p for n, p in shared.items() if n not in ("input", "batch_size", "device")]
    return inspect.Signature([own["filepaths"], own["device"], *added])


imread.__signature__ = _imread_signature()  # type: ignore[attr-defined]


def _read_file(path: Location, keep_going: bool) -> Array:
    from ...readers.contents import read_file

    try:
        return read_file(path)
    except TypeError:
        raise TypeError(f"a path is needed, got {type(path).__name__}") from None
    except OSError as error:
        if keep_going:
            return np.zeros(0, np.uint8)
        raise type(error)(f"cannot read {os.fspath(path)!r}: {error.strerror}") from None


__all__ = [
    "errors",
    "image",
    "image_crop",
    "image_random_crop",
    "image_slice",
    "imread",
    "numpy",
    "peek_image_shape",
]
