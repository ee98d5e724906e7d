"""The augmentations of RandAugment and its relatives, with one parameter per sample.

Samples of a batch are grouped by the kind of work that they need (`FAMILIES`). Each group is a
batch with kernels of its own, and the results form one batch again without a copy. A kernel that
switches by sample would have to keep rows, tables and sums of all families. Choosing and joining
takes 1.8 ms in all for a batch of 16, whose augmentations take 6 ms (375x500 pixels, one thread).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ...core import convert
from ...core.schema import OPS
from ...fusion.graph import build
from ...fusion.graph.node import Node, source
from ...fusion.graph.shapes import Array, Shapes
from ...fusion.graph.storage import Held, Storage
from ...kernels.common.memo import memoized
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.dtypes import DALIInterpType, DType
from ...kernels.ir.expr import Expr
from ..geometry.window import beside
from ..pointwise import color as _color_ops  # noqa: F401  (its ops are used by name)
from ..reduce.moments import pixelwise
from ..resample.warp import turned, warp

_PREFIX = "auto_augment."


class WarpOptions(NamedTuple):
    """What all warps of a call share."""

    fill: Node | None  # None repeats the border
    interp: DALIInterpType


# A batch, the augmentation and the parameter of each of its samples, and the options.
Family = Callable[[Node, Sequence[str], Array, WarpOptions], Node]


def augmented(
    op: str, x: Node, suite: Sequence[str], chosen: Array, parameters: Array, options: WarpOptions
) -> Node:
    """`x` after one augmentation for each sample: `chosen` are indices into the names of a suite.

    All families of the suite are part of the program, so that it has the same plan whatever is
    chosen. A family without samples works on one pixel, which nobody uses.
    """
    families = _families(tuple(suite))
    names = [suite[k] for k in chosen.tolist()]
    if x.count == 1:
        return FAMILIES[names[0]](x, names, parameters, options)
    if len(families) == 1:
        return families[0](x, names, parameters, options)
    parts: list[Node] = []
    order = np.empty(x.count, np.int64)
    done = 0
    for family in families:
        samples = np.array([s for s, n in enumerate(names) if FAMILIES[n] is family], np.int64)
        parts.append(_part(op, x, family, samples, names, parameters, options))
        order[samples] = done + np.arange(len(samples))
        done += parts[-1].count
    return build.assemble(op, parts, order)


@memoized(256)
def _families(suite: tuple[str, ...]) -> tuple[Family, ...]:
    """The families of a suite."""
    return tuple(dict.fromkeys(FAMILIES[name] for name in suite))


def _part(
    op: str, x: Node, family: Family, samples: Array, names: Sequence[str], parameters: Array,
    options: WarpOptions,
) -> Node:  # fmt: skip
    """The result of a family for some samples."""
    if len(samples):
        part = build.choose(op, x, samples, True)
        own = [names[s] for s in samples.tolist()]
        return family(part, own, parameters[samples], options)
    name = next(n for n, f in FAMILIES.items() if f is family)
    return family(_one_pixel(op, x), [name], np.zeros(1), options)


def _one_pixel(op: str, x: Node) -> Node:
    """The first pixel of a sample, as a batch; an empty sample if all are."""
    shape = x.shapes.rows[:1].copy()
    largest = int(x.shapes.volumes.argmax())
    shape[:, :-1] = min(int(x.shapes.volumes[largest]), 1)
    return build.choose(op, x, np.array([largest]), True, Shapes(shape))


def _numbers(values: Array, dtype: DType, x: Node) -> Node:
    """A number for each sample of `x`."""
    memory = np.ascontiguousarray(values, dtype.np)
    addresses = memory.ctypes.data + memory.itemsize * np.arange(len(memory), dtype=np.int64)
    shapes = Shapes(np.zeros((len(memory), 0), np.int64))
    storage = Storage(addresses, Held([memory]), None, True)
    return beside(source(storage, shapes, dtype, None, x.batch), x)


def _per_image(x: Node, name: str, axes: str) -> tuple[Node, tuple[int, ...]]:
    """A reduction over some axes of each image, and the axes that are left."""
    chosen = tuple((x.layout or "").index(a) for a in axes)
    options = {"dtype": None} if name == "mean" else {}
    found: Node = OPS[f"reductions.{name}"].body(
        x, axes=chosen, axis_names=None, keep_dims=False, **options
    )
    return found, tuple(d for d in range(x.rank) if d not in chosen)


# -- curves: functions of a byte -------------------------------------------------------------------

_CURVES = ("brightness", "posterize", "solarize", "solarize_add", "invert")


def _curved(x: Node, names: Sequence[str], parameters: Array, options: WarpOptions) -> Node:
    codes = np.array([_CURVES.index(name) for name in names])
    numbers = [(_numbers(codes, dt.int32, x), ()), (_numbers(parameters, dt.float32, x), ())]
    return pixelwise(f"{_PREFIX}curve", _curve, x, *numbers)


def _curve(x: Expr, code: Expr, parameter: Expr) -> Expr:
    """One of the curves. It is a function of a byte, so that a table of it is made per sample."""
    value = ex.cast(x, dt.float32)
    inverted = 255.0 - value
    curves = (
        value * parameter,
        ex.cast(ex.cast(x, dt.int32) & ex.cast(parameter, dt.int32), dt.float32),
        ex.select(value < parameter, value, inverted),
        ex.select(value < 128.0, value + parameter, value),
        inverted,
    )
    result = curves[-1]
    for k, curve in enumerate(curves[:-1]):
        result = ex.select(ex.eq(code, k), curve, result)
    return ex.convert(result, dt.uint8)


# -- contrast, colour, sharpness -------------------------------------------------------------------


def _contrasted(x: Node, names: Sequence[str], parameters: Array, options: WarpOptions) -> Node:
    """Contrast around the mean luma of each image."""
    numbers = [(_numbers(parameters, dt.float32, x), ()), _per_image(x, "mean", "HW")]
    return pixelwise(f"{_PREFIX}contrast", _contrast, x, *numbers)


def _contrast(x: Expr, contrast: Expr, means: Expr) -> Expr:
    red, green, blue = (ex.at_axis(means, -1, k) for k in range(3))
    center = red * 0.299 + green * 0.587 + blue * 0.114
    body = OPS["contrast"].body
    return ex.convert(body(x, contrast=contrast, contrast_center=center, dtype=None), dt.uint8)


def _coloured(x: Node, names: Sequence[str], parameters: Array, options: WarpOptions) -> Node:
    number = _numbers(parameters, dt.float32, x)
    return pixelwise(f"{_PREFIX}color", _saturated, x, (number, ()))


def _saturated(x: Expr, saturation: Expr) -> Expr:
    body = OPS["saturation"].body
    return ex.convert(body(x, saturation=saturation, image_type=None, dtype=None), dt.uint8)


def _sharpened(x: Node, names: Sequence[str], parameters: Array, options: WarpOptions) -> Node:
    """A mix of the image (1) and of its mean over 3x3 pixels, in which the own pixel counts five
    times (0)."""
    blurred = np.full((3, 3), 1 / 13)
    blurred[1, 1] = 5 / 13
    own = np.zeros((3, 3))
    own[1, 1] = 1.0
    weights = blurred + parameters[:, None, None] * (own - blurred)
    rows = weights.reshape(len(weights), 9).astype(np.float32)
    flat = beside(convert.rows_node(rows, dt.float32, x.batch), x)
    square = Shapes(np.full((flat.count, 2), 3, np.int64))
    kernel = build.alias(f"{_PREFIX}sharpness", flat, square, dt.float32, None)
    sharp: Node = OPS["filter"].body(
        x, filter=kernel, fill_value=None, anchor=np.array([[-1]]), border="reflect_101",
        dtype=None, mode="same",
    )  # fmt: skip
    return sharp


# -- by histogram ----------------------------------------------------------------------------------


def _equalized(x: Node, names: Sequence[str], parameters: Array, options: WarpOptions) -> Node:
    equal: Node = OPS["equalize"].body(x)
    return equal


def _stretched(x: Node, names: Sequence[str], parameters: Array, options: WarpOptions) -> Node:
    """Spread the levels of each channel of each image linearly over all bytes."""
    bounds = [_per_image(x, name, "HW") for name in ("min", "max")]
    return pixelwise(f"{_PREFIX}auto_contrast", _stretch, x, *bounds)


def _stretch(x: Expr, low: Expr, high: Expr) -> Expr:
    value, low, high = (ex.cast(v, dt.float32) for v in (x, low, high))
    spread = high - low
    scale = 255.0 / ex.select(spread > 0.0, spread, ex.const(1.0, dt.float32))
    return ex.convert(ex.select(spread > 0.0, (value - low) * scale, value), dt.uint8)


# -- warps -----------------------------------------------------------------------------------------


def _warped(x: Node, names: Sequence[str], parameters: Array, options: WarpOptions) -> Node:
    """Shears around the corner, translations in pixels and rotations around the centre: each moves
    the image by its parameter, so the matrix moves positions the other way."""
    matrices = np.zeros((len(names), 2, 3))
    matrices[:, 0, 0] = matrices[:, 1, 1] = 1.0
    named = np.array(names)
    for name, row, column in _ENTRIES:
        matrices[named == name, row, column] = -parameters[named == name]
    turns = named == "rotate"
    if turns.any():
        layout = x.layout or ""
        sides = x.shapes.rows[:, [layout.index("W"), layout.index("H")]]
        matrices[turns] = turned(parameters[turns], sides[turns])
    rows = matrices.reshape(len(names), 6).astype(np.float32)
    node = beside(convert.rows_node(rows, dt.float32, x.batch), x)
    name = f"{_PREFIX}warp"
    return warp(name, x, node, None, x.shapes, options.fill, options.interp, x.dtype)


_ENTRIES = (
    ("shear_x", 0, 1), ("shear_y", 1, 0), ("translate_x", 0, 2), ("translate_y", 1, 2),
)  # fmt: skip


def _unchanged(x: Node, names: Sequence[str], parameters: Array, options: WarpOptions) -> Node:
    return x


FAMILIES: dict[str, Family] = {
    "identity": _unchanged,
    **dict.fromkeys(_CURVES, _curved),
    "contrast": _contrasted,
    "color": _coloured,
    "sharpness": _sharpened,
    "equalize": _equalized,
    "auto_contrast": _stretched,
    **dict.fromkeys([name for name, _, _ in _ENTRIES], _warped),
    "rotate": _warped,
}
