"""Interpolation to another size: resize, resize_crop_mirror and tensor_resize.

Arguments become a `Frame` (which part of the input becomes which extents), and the frame becomes
taps per sample and axis (both in resize_geometry.py), with which `build.resample` interpolates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.schema import data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.dtypes import DALIImageType, DALIInterpType, DType
from ...kernels.ir.expr import Expr
from ...kernels.ir.taps import GAUSSIAN, NEAREST, Taps
from ..geometry.window import (
    CROP_ROUNDINGS,
    OLD_DOC,
    POSITION_DOC,
    ROUNDING_DOC,
    checked_axes,
    crop_bounds,
    named_axes,
)
from .exact import check_type, nearest_pixels
from .merging import Sampling, frame_matrices, framed, merged_with, remember
from .resize_geometry import (
    MODES,
    ROUNDINGS,
    Frame,
    check_finite,
    filters,
    frame,
    plan_taps,
    windowed,
)
from .sampling import LINEAR, check_pixels, rows_node
from .scaling import decoded_smaller

# If the layout is missing, we assume the first one that fits. Those without C are not upstream's.
LAYOUTS = "HWC FHWC CHW FCHW CFHW DHWC FDHWC CDHW FCDHW CFDHW HW DHW FHW FDHW"
# Element types that float32 does not hold exactly, or that upstream rejects.
NEAREST_ONLY = "bool i8 u32 i32 u64 i64 f64"
_NEAREST_ONLY = tuple(DType.parse(name) for name in NEAREST_ONLY.split())

DTYPE_DOC = "Element type of the result: float32, or the input's (if omitted)."
INTERP_DOC = "Filter: a `DALIInterpType`, or one per sample as integers. INTERP_LINEAR if omitted."
MIN_DOC = "Filter for axes that shrink; `interp_type` if omitted."
MAG_DOC = "Filter for axes that do not shrink; `interp_type` if omitted."
ANTIALIAS_DOC = "Whether to widen the filter along axes that shrink."
MAX_DOC = "Maximum extent, or one per axis; the other axes follow if `mode` keeps proportions."
MODE_DOC = f"How sizes and proportions are reconciled: {', '.join(MODES)}."
SIZE_DOC = "Extents of the result, (H, W) or (D, H, W); 0 leaves one free, negative ones mirror."
EXTENT_DOC = "of the result; 0 leaves it free, a negative value mirrors."
SHORTER_DOC = "Extent of the shorter side; the others keep the proportions."
LONGER_DOC = "Extent of the longer side; the others keep the proportions."
ROI_DOC = "of the region that becomes the result, in pixels; a reversed region mirrors."
RELATIVE_DOC = "Whether the region is given relative to the extents."
SUBPIXEL_DOC = "Whether to adjust the region so that rounding the size does not change the scale."
_IMAGE = "image = ndd.zeros(shape=[48, 64, 3], dtype=ndd.uint8, layout='HWC')\n"


# -- shared steps --------------------------------------------------------------------------------


def resample_frame(
    name: str, x: Node, axes: Sequence[int], f: Frame, kinds: tuple[Array, Array], antialias: bool,
    dtype: DType, innermost: int | None = None, used: Sequence[int] | None = None,
) -> Node:  # fmt: skip
    """Resize `axes` of `x` as `f` says; `used`: the columns of `f` that need interpolation."""
    is_nearest = all(bool((k == NEAREST).all()) for k in kinds)
    check_type(x, _NEAREST_ONLY, is_nearest)
    if x.dtype in _NEAREST_ONLY:
        inner = len(axes) - 1 if innermost is None else innermost
        check_pixels(x, axes, Shapes(f.out))
        taps = plan_taps(f, kinds, antialias, inner).taps
        return converted(name, nearest_pixels(name, x, axes, f.out, taps), dtype)
    if x.result.scaling is not None and antialias:
        x, f = decoded_smaller(x, axes, f, kinds)
    before = merged_with(x, tuple(axes))
    if before is not None and before.frame is None:
        return _warped_after(name, before, x, f, dtype)
    if before is not None:
        assert before.frame is not None
        x, f, name = before.source, framed(before.frame, f), f"{before.op}+{name}"
    node = _resized(name, x, axes, f, kinds, antialias, dtype, innermost, used)
    remember(node, x, name, tuple(axes), f)
    return node


def _warped_after(name: str, before: Sampling, x: Node, f: Frame, dtype: DType) -> Node:
    """Express a resize of a warped image as a warp."""
    from .warp import warp

    rows = np.array(x.shapes.rows)
    rows[:, list(before.axes)] = f.out
    matrices = frame_matrices(f)
    matrix = rows_node(matrices.reshape(len(matrices), -1).astype(np.float32), x)
    return warp(name, x, matrix, None, Shapes.known(rows).checked(), None, LINEAR, dtype)


def _resized(
    name: str, x: Node, axes: Sequence[int], f: Frame, kinds: tuple[Array, Array], antialias: bool,
    dtype: DType, innermost: int | None, used: Sequence[int] | None,
) -> Node:  # fmt: skip
    columns = range(len(axes)) if used is None else used
    if not columns:
        return build.copy(name, x) if x.dtype is dtype else converted(name, x, dtype)
    inner = len(axes) - 1 if innermost is None else innermost
    rows = np.array(x.shapes.rows)
    rows[:, list(axes)] = f.out
    shapes = Shapes.known(rows).checked()
    is_rounded = dtype.is_integer and not all(bool((k == NEAREST).all()) for k in kinds)
    elements = rows[:, axes[inner] + 1 :].prod(axis=1) if is_rounded else None
    plan = plan_taps(f, kinds, antialias, inner, elements, 128 // dtype.bits)
    taps = [plan.taps[k] for k in columns]
    y = _interpolated(name, x, [axes[k] for k in columns], shapes, taps)
    if plan.even is None:
        return converted(name, y, dtype)
    behind = rows[:, axes[inner] + 1 :]
    table = rows_node(np.column_stack([*plan.even, behind]), x, dt.int32)
    places = [tuple(range(x.rank)), ()]
    key = (axes[inner], x.rank, dtype, len(axes) == 3 and inner == 2)
    return build.pointwise(name, _rounded, [y, table], places, shapes, x.layout, key)


def _interpolated(name: str, x: Node, axes: list[int], shapes: Shapes, taps: list[Taps]) -> Node:
    """Interpolate to float32; a kernel handles up to three axes, so more take several kernels."""
    if len(axes) > 3:
        rows = np.array(shapes.rows)
        rows[:, axes[3:]] = x.shapes.rows[:, axes[3:]]
        x = _interpolated(name, x, axes[:3], Shapes.known(rows).checked(), taps[:3])
        return _interpolated(name, x, axes[3:], shapes, taps[3:])
    return build.resample(name, x, axes, shapes, taps, x.batch)


def converted(name: str, x: Node, dtype: DType) -> Node:
    """`x` in another type: halves round away from zero, results saturate."""
    if x.dtype is dtype:
        return x
    return build.pointwise(name, _to, [x], [tuple(range(x.rank))], x.shapes, x.layout, (dtype,))


def _to(x: Expr, dtype: DType) -> Expr:
    return ex.convert(x, dtype)


def _rounded(x: Expr, table: Expr, axis: int, rank: int, dtype: DType, volume: bool) -> Expr:
    """Round halves to even in some elements of a row (see `Even` in resize_geometry.py), and away
    from zero elsewhere. A row spans `axis` and the axes after it, whose extents are table[6:].
    """
    stop, *ranges, rows = (ex.lookup(table, ex.const(k, dt.int32)) for k in range(6))
    extents = [ex.lookup(table, ex.const(6 + k, dt.int32)) for k in range(rank - axis - 1)]
    pixel = ex.index(axis)
    inside = (pixel >= ranges[0]) & (pixel < ranges[1])
    inside = inside | ((pixel >= ranges[2]) & (pixel < ranges[3]))
    place = ex.index(axis - 1) * rows + pixel if volume else pixel
    for a, extent in enumerate(extents, axis + 1):
        place = place * extent + ex.index(a)
    inside = inside | (place < stop)
    return ex.convert_halves(x, dtype, inside)


def result_type(x: Node, dtype: DType | None) -> DType:
    if dtype not in (None, x.dtype, dt.float32):
        raise TypeError(f"`dtype` must be the input's ({x.dtype}) or float32, got {dtype}")
    return dtype or x.dtype


def spatial_axes(x: Node) -> list[int]:
    return [d for d, letter in enumerate(x.layout or "") if letter in "DHW"]


def columns_of(name: str, values: Array | None, axes: int) -> Array | None:
    """Numbers [samples or 1, axes]; a single number is broadcast to all axes."""
    if values is None:
        return None
    if values.shape[1] not in (1, axes):
        raise ValueError(f"`{name}` must have {axes} values, got {values.shape[1]}")
    check_finite(name, values)
    return values if values.shape[1] == axes else np.broadcast_to(values, (len(values), axes))


def region_of(start: Array | None, end: Array | None, axes: int) -> tuple[Array | None, ...]:
    if (start is None) != (end is None):
        raise ValueError("`roi_start` and `roi_end` must be given together")
    return columns_of("roi_start", start, axes), columns_of("roi_end", end, axes)


def wanted_sizes(
    layout: str, size: Array | None, sides: dict[str, Array | None], shorter: Array | None,
    longer: Array | None, mode: str | None,
) -> tuple[Array, str]:  # fmt: skip
    """Requested extents [samples or 1, axes], and the mode that reconciles them."""
    letters = [letter for letter in layout if letter in "DHW"]
    given = {k: v for k, v in sides.items() if v is not None}
    ways = {
        "size": size is not None, "resize_x, resize_y and resize_z": bool(given),
        "resize_shorter": shorter is not None, "resize_longer": longer is not None,
    }  # fmt: skip
    if sum(ways.values()) != 1:
        used = " and ".join(w for w, there in ways.items() if there) or "nothing"
        raise ValueError(f"the size must be given in one way of {'; '.join(ways)}; got {used}")
    if mode is not None and (shorter is not None or longer is not None):
        raise ValueError("`mode` cannot be combined with resize_shorter or resize_longer")
    for name, values in (("resize_shorter", shorter), ("resize_longer", longer)):
        if values is not None:
            check_finite(name, values)
            chosen = "not_smaller" if name == "resize_shorter" else "not_larger"
            return np.repeat(values[:, None], len(letters), axis=1), chosen
    if size is not None:
        sizes = columns_of("size", size, len(letters))
        assert sizes is not None
        return sizes, mode or "default"
    names = {"D": "resize_z", "H": "resize_y", "W": "resize_x"}
    count = max(len(v) for v in given.values())
    columns = [given.get(names[letter], np.zeros(1, np.float32)) for letter in letters]
    for letter, values in zip(letters, columns, strict=True):
        check_finite(names[letter], values)
    return np.stack([np.broadcast_to(c, count) for c in columns], axis=1), mode or "default"


# -- resize --------------------------------------------------------------------------------------


def _resize(
    input=data("Images, sequences or volumes."),
    antialias=static(bool, True, ANTIALIAS_DOC),
    dtype=static(DType, None, DTYPE_DOC),
    image_type=static(DALIImageType, None, OLD_DOC),
    interp_type=geometry(DALIInterpType, None, INTERP_DOC),
    mag_filter=geometry(DALIInterpType, None, MAG_DOC),
    max_size=static("floats", None, MAX_DOC),
    min_filter=geometry(DALIInterpType, None, MIN_DOC),
    minibatch_size=static(int, 32, OLD_DOC),
    mode=static(MODES, None, MODE_DOC),
    resize_longer=geometry(float, None, LONGER_DOC),
    resize_shorter=geometry(float, None, SHORTER_DOC),
    resize_x=geometry(float, None, f"Width {EXTENT_DOC}"),
    resize_y=geometry(float, None, f"Height {EXTENT_DOC}"),
    resize_z=geometry(float, None, f"Depth {EXTENT_DOC}"),
    roi_end=geometry(float, None, f"End {ROI_DOC}", vector=True),
    roi_relative=static(bool, False, RELATIVE_DOC),
    roi_start=geometry(float, None, f"Start {ROI_DOC}", vector=True),
    save_attrs=static(bool, False, "Whether to return the original extents as well."),
    size=geometry(float, None, SIZE_DOC, vector=True),
    subpixel_scale=static(bool, True, SUBPIXEL_DOC),
    temp_buffer_hint=static(int, 0, OLD_DOC),
):
    """Resize images, with a choice of filters, ways to give the size, and regions of interest."""
    x, axes = input, spatial_axes(input)
    sides = {"resize_x": resize_x, "resize_y": resize_y, "resize_z": resize_z}
    sizes, mode = wanted_sizes(x.layout, size, sides, resize_shorter, resize_longer, mode)
    region = region_of(roi_start, roi_end, len(axes))
    f = frame(x.shapes.rows[:, axes], sizes, mode, max_size, *region, roi_relative, subpixel_scale)
    kinds = filters(interp_type, min_filter, mag_filter)
    result = resample_frame("resize", x, axes, f, kinds, antialias, result_type(x, dtype))
    if not save_attrs:
        return result
    return [result, rows_node(f.extents, x, dt.int32)]


resize = op.graph(
    name="resize", layouts=LAYOUTS, nearest_only=NEAREST_ONLY, outputs="save_attrs",
    sample=_IMAGE + "ndd.resize(image, resize_shorter=24).shape\n=(24, 32, 3)",
)(_resize)  # fmt: skip

experimental_resize = op.graph(
    name="experimental.resize", layouts=LAYOUTS, nearest_only=NEAREST_ONLY, outputs="save_attrs",
    sample=_IMAGE + "ndd.experimental.resize(image, size=[24, 24]).shape\n=(24, 24, 3)",
)(_resize)  # fmt: skip


# -- resize, crop, mirror ------------------------------------------------------------------------


class _Extents:
    """Just enough of a node for `crop_bounds`: the shapes after resizing."""

    def __init__(self, x: Node, rows: Array) -> None:
        self.layout, self.count, self.rank = x.layout, x.count, x.rank
        self.shapes = Shapes.known(rows)


@op.graph(
    layouts=LAYOUTS, nearest_only=NEAREST_ONLY,
    sample=_IMAGE + "ndd.resize_crop_mirror(image, resize_shorter=24, crop=[24, 24]).shape\n"
    "=(24, 24, 3)",
)  # fmt: skip
def resize_crop_mirror(
    input=data("Images, sequences or volumes."),
    antialias=static(bool, True, ANTIALIAS_DOC),
    crop=geometry(float, None, "Size of the window: (H, W) or (D, H, W).", vector=True),
    crop_d=geometry(float, None, "Depth of the window; 0 for all."),
    crop_h=geometry(float, None, "Height of the window; 0 for all."),
    crop_pos_x=geometry(float, 0.5, POSITION_DOC),
    crop_pos_y=geometry(float, 0.5, POSITION_DOC),
    crop_pos_z=geometry(float, 0.5, POSITION_DOC),
    crop_w=geometry(float, None, "Width of the window; 0 for all."),
    dtype=static(DType, None, DTYPE_DOC),
    interp_type=geometry(DALIInterpType, None, INTERP_DOC),
    mag_filter=geometry(DALIInterpType, None, MAG_DOC),
    max_size=static("floats", None, MAX_DOC),
    min_filter=geometry(DALIInterpType, None, MIN_DOC),
    minibatch_size=static(int, 32, OLD_DOC),
    mirror=geometry(int, 0, "Axes to mirror, as a sum: 1 for width, 2 for height, 4 for depth."),
    mode=static(MODES, None, MODE_DOC),
    resize_longer=geometry(float, None, LONGER_DOC),
    resize_shorter=geometry(float, None, SHORTER_DOC),
    resize_x=geometry(float, None, f"Width {EXTENT_DOC}"),
    resize_y=geometry(float, None, f"Height {EXTENT_DOC}"),
    resize_z=geometry(float, None, f"Depth {EXTENT_DOC}"),
    roi_end=geometry(float, None, f"End {ROI_DOC}", vector=True),
    roi_relative=static(bool, False, RELATIVE_DOC),
    roi_start=geometry(float, None, f"Start {ROI_DOC}", vector=True),
    rounding=static(CROP_ROUNDINGS, "round", ROUNDING_DOC),
    size=geometry(float, None, SIZE_DOC, vector=True),
    subpixel_scale=static(bool, True, SUBPIXEL_DOC),
    temp_buffer_hint=static(int, 0, OLD_DOC),
):
    """Resize, cut a window of the result and mirror it, in one step.

    Where the window leaves the resized image, the border of the image is repeated.
    """
    x, axes = input, spatial_axes(input)
    sides = {"resize_x": resize_x, "resize_y": resize_y, "resize_z": resize_z}
    sizes, mode = wanted_sizes(x.layout, size, sides, resize_shorter, resize_longer, mode)
    region = region_of(roi_start, roi_end, len(axes))
    f = frame(x.shapes.rows[:, axes], sizes, mode, max_size, *region, roi_relative, subpixel_scale)
    if "D" not in x.layout:  # frames are not cropped
        crop_d = None
        crop = crop[:, -2:] if crop is not None and crop.shape[1] == 3 else crop
    rows = np.array(x.shapes.rows)
    rows[:, axes] = f.out
    stand_in: Any = _Extents(x, rows)
    _, start, window = crop_bounds(
        stand_in, crop, crop_w, crop_h, crop_d, crop_pos_x, crop_pos_y, crop_pos_z, rounding
    )
    flipped = np.stack([mirror & 1 << "WHD".index(x.layout[a]) for a in axes], axis=1) != 0
    f = windowed(f, start[:, axes], window[:, axes], flipped)
    kinds = filters(interp_type, min_filter, mag_filter)
    return resample_frame("resize_crop_mirror", x, axes, f, kinds, antialias, result_type(x, dtype))


# -- tensor_resize -------------------------------------------------------------------------------


@op.graph(
    nearest_only=NEAREST_ONLY,
    sample="""ndd.tensor_resize(ndd.zeros(shape=[4, 6], dtype=ndd.float32), sizes=[8, 3]).shape
=(8, 3)""",
)  # fmt: skip
def tensor_resize(
    input=data("Any tensor of one dimension or more."),
    alignment=geometry(
        float, (0.5,), "What stays in place if rounding changes the size: 0 start, 1 end.",
        vector=True,
    ),
    antialias=static(bool, True, ANTIALIAS_DOC),
    axes=static("ints", None, "Axes to resize; all if omitted."),
    axis_names=static(str, None, "Letters of these axes, instead of `axes`."),
    dtype=static(DType, None, DTYPE_DOC),
    interp_type=geometry(DALIInterpType, None, INTERP_DOC),
    mag_filter=geometry(DALIInterpType, None, MAG_DOC),
    max_size=static("floats", None, MAX_DOC),
    min_filter=geometry(DALIInterpType, None, MIN_DOC),
    minibatch_size=static(int, 32, OLD_DOC),
    mode=static(MODES, "default", MODE_DOC),
    roi_end=geometry(float, None, f"End {ROI_DOC}", vector=True),
    roi_relative=static(bool, False, RELATIVE_DOC),
    roi_start=geometry(float, None, f"Start {ROI_DOC}", vector=True),
    scales=geometry(float, None, "Factors, one per axis, instead of `sizes`.", vector=True),
    size_rounding=static(ROUNDINGS, "round", f"How extents are rounded: {', '.join(ROUNDINGS)}."),
    sizes=geometry(float, None, "Extents, one per axis; 0 is free, negative mirrors.", vector=True),
    subpixel_scale=static(bool, True, SUBPIXEL_DOC),
    temp_buffer_hint=static(int, 0, OLD_DOC),
):  # fmt: skip
    """Resize any axes of any tensor."""
    x = input
    if not x.rank:
        raise ValueError("the input must have at least one dimension")
    if (sizes is None) == (scales is None):
        raise ValueError("one of `sizes` and `scales` must be given, and not both")
    chosen = _resized_axes(x, axes, axis_names)
    count = len(chosen)
    lo, hi = region_of(roi_start, roi_end, count)
    numbers = columns_of("sizes", sizes, count), columns_of("scales", scales, count)
    f = frame(
        x.shapes.rows[:, chosen], numbers[0], mode, max_size, lo, hi, roi_relative,
        subpixel_scale, size_rounding, columns_of("alignment", alignment, count), numbers[1],
    )  # fmt: skip
    kinds = filters(interp_type, min_filter, mag_filter)
    return _resize_span(x, chosen, f, kinds, antialias, result_type(x, dtype))


def _resized_axes(x: Node, axes: Any, names: str | None) -> list[int]:
    if axes is not None and names is not None:
        raise ValueError("`axes` and `axis_names` exclude each other")
    if names is not None:
        return named_axes(names, x.layout)
    return list(range(x.rank)) if axes is None else checked_axes(axes, x.rank)


def _resize_span(
    x: Node, axes: list[int], f: Frame, kinds: tuple[Array, Array], antialias: bool, dtype: DType
) -> Node:
    """Resize at least two axes, from the first to the last one that changes, as upstream does.

    The choice of the innermost axis and the costs of all axes determine the last bits.
    """
    full = f.extents.astype(np.float32)
    same = ((f.out == f.extents) & (f.lo == 0) & (f.hi == full)).all(axis=0)
    changed = [a for a, stays in zip(axes, same, strict=True) if not stays] or [x.rank - 1]
    first, last = min(changed), max(changed)
    if first == last:
        first, last = (first, first + 1) if first + 1 < x.rank else (max(first - 1, 0), first)
    span = sorted({*range(first, last + 1), *axes})
    extents = x.shapes.rows[:, span]
    whole = Frame(extents, np.array(extents), np.zeros(extents.shape, np.float32),
                  extents.astype(np.float32))  # fmt: skip
    for k, axis in enumerate(axes):
        at = span.index(axis)
        for target, own in zip(whole[1:], f[1:], strict=True):
            target[:, at] = own[:, k]
    # a Gaussian blurs even if the size stays, but only along the requested axes
    blurs = bool((kinds[0] == GAUSSIAN).any())
    used = [k for k, a in enumerate(span) if a in changed or (blurs and a in axes)]
    if same.all() and not blurs:
        used = []
    innermost = span.index(last)
    return resample_frame("tensor_resize", x, span, whole, kinds, antialias, dtype, innermost, used)
