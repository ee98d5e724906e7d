"""Images on larger canvases: paste and multi_paste."""

from __future__ import annotations

import numpy as np

from ...core import convert
from ...core.schema import REQUIRED, data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import MAX_EXTENT, Array, Shapes
from ...kernels.ir.dtypes import DType
from ..pointwise.conversion import cast_node
from .paste_frames import by_frame
from .paste_list import PastedRegions, paste_list
from .window import beside, c_cast, check_numbers

_POSITION = "position of the image: 0 at the beginning of the canvas, 1 at its end."


@op.graph(
    layouts="HWC FHWC",
    rejects="bool",
    sample="""image = ndd.ones(shape=[4, 6, 3], dtype=ndd.uint8, layout='HWC')
ndd.paste(image, ratio=1.5, fill_value=[100, 110, 120]).shape
=(6, 9, 3)""",
)
def paste(
    input=data("Images, or sequences of them."),
    fill_value=static("ints", REQUIRED, "Colour of the canvas: a value, or one per channel."),
    min_canvas_size=geometry(float, 0.0, "Minimum height and width of the canvas."),
    n_channels=static(int, 3, "Number of values in `fill_value`, unless it is a single one."),
    paste_x=geometry(float, 0.5, f"Horizontal {_POSITION}"),
    paste_y=geometry(float, 0.5, f"Vertical {_POSITION}"),
    ratio=geometry(float, REQUIRED, "Size of the canvas relative to the image, at least 1."),
):
    """Put images on a larger canvas of one colour."""
    x = input
    _check_range("ratio", ratio, 1.0, np.inf)
    places = []
    for name, place in (("paste_y", paste_y), ("paste_x", paste_x)):
        _check_range(name, place, 0.0, 1.0)
        places.append(np.broadcast_to(place, (x.count,)))
    first = x.rank - 3  # the axis of rows
    extents = x.shapes.rows[:, first : first + 2]
    with np.errstate(over="ignore"):
        grown = np.trunc(_spread(ratio, x) * extents.astype(np.float32))
    least = np.trunc(check_numbers("min_canvas_size", _spread(min_canvas_size, x)))
    _check_range("min_canvas_size", min_canvas_size, 0.0, np.inf)
    canvas = check_numbers("ratio", np.maximum(grown, least)).astype(np.int64)
    free = (canvas - extents).astype(np.float32)
    start, size = np.zeros((x.count, x.rank), np.int64), x.shapes.rows.copy()
    start[:, first:-1] = -np.trunc(np.stack(places, axis=1) * free).astype(np.int64)
    size[:, first:-1] = canvas
    fill, fill_axes = _colour(x, fill_value, n_channels)
    return build.window("paste", x, [first, first + 1], start, size, x.batch, fill, fill_axes)


def _spread(values: Array, x: Node) -> Array:
    return np.broadcast_to(values, (x.count,))[:, None]


def _check_range(name: str, values: Array, low: float, high: float) -> None:
    bad = np.flatnonzero(~((values >= low) & (values <= high)))
    if len(bad):
        s = int(bad[0])
        wanted = f"lie in [{low:g}, {high:g}]" if np.isfinite(high) else f"be at least {low:g}"
        raise ValueError(f"`{name}` must {wanted}, got {float(values[s]):g} for sample {s}")


def _colour(x: Node, values: tuple[int, ...], number: int) -> tuple[Node, tuple[int, ...]]:
    """Fill values in the type of `x` (large ones wrap around), and the axis they run along."""
    if len(values) not in (1, number):
        raise ValueError(
            f"`fill_value` must have 1 or {number} (`n_channels`) values, got {len(values)}"
        )
    numbers = tuple(c_cast(float(v), x.dtype) for v in values)
    if len(numbers) == 1:
        return beside(convert.const_scalar(numbers[0], x.dtype), x), ()
    bad = np.flatnonzero(x.shapes.rows[:, -1] != number)
    if len(bad):
        s = int(bad[0])
        raise ValueError(
            f"`fill_value` has {number} values, but sample {s} has "
            f"{x.shapes.tuples[s][-1]} channels"
        )
    return beside(convert.const_vector(numbers, x.dtype), x), (x.rank - 1,)


# -- several regions -----------------------------------------------------------------------------

# Maximum number of regions in one kernel. Compilation took 2.5 s for 4 regions, 7 s for 8 and 78 s
# for 64 (on a busy machine), so longer chains store their canvas in memory in between on a GPU, and
# are copied from a list on a CPU.
CHAIN = 4
_ROWS = "a row (y, x) for every region."
_RELATIVE = "relative to the extents"


@op.graph(
    rejects="bool",
    sample="""images = ndd.batch([[[[1], [2]]], [[[3], [4]]]], layout='HWC')
ndd.multi_paste(images, in_ids=[1, 0], out_anchors=[[0, 0], [2, 0]], output_size=[3, 2]).shape
=[(3, 2, 1), (3, 2, 1)]""",
)
def multi_paste(
    inputs=data("Images or sequences; a single input if `in_ids` is given.", variadic=True),
    dtype=static(DType, None, "Element type of the result; the input's if omitted."),
    in_anchors=geometry(int, None, f"Start of the source, {_ROWS}", ragged=True, per_frame=True),
    in_anchors_rel=geometry(
        float, None, f"The same, {_RELATIVE} of the input.", ragged=True, per_frame=True
    ),
    in_ids=geometry(int, None, "Samples of the input to paste, in order.", ragged=True),
    out_anchors=geometry(int, None, f"Place on the canvas, {_ROWS}", ragged=True, per_frame=True),
    out_anchors_rel=geometry(
        float, None, f"The same, {_RELATIVE} of the canvas.", ragged=True, per_frame=True
    ),
    output_size=geometry(int, None, "Height and width of the canvas.", vector=True),
    shapes=geometry(int, None, f"Height and width, {_ROWS}", ragged=True, per_frame=True),
    shapes_rel=geometry(
        float, None, f"The same, {_RELATIVE} of the input.", ragged=True, per_frame=True
    ),
):
    """Paste regions of several images onto one canvas of zeros; later ones cover earlier ones."""
    layout = _layout(inputs)
    first = inputs[0]
    if in_ids is not None and len(inputs) > 1:
        raise ValueError(f"`in_ids` chooses samples of one input, got {len(inputs)} inputs")
    for k, x in enumerate(inputs):
        if x.dtype is not first.dtype:
            raise TypeError(
                f"inputs must have one type, got {first.dtype} and {x.dtype} (input {k})"
            )
    regions = {
        "in_anchors": in_anchors, "in_anchors_rel": in_anchors_rel, "out_anchors": out_anchors,
        "out_anchors_rel": out_anchors_rel, "shapes": shapes, "shapes_rel": shapes_rel,
    }  # fmt: skip
    if any(v is not None and v[0].ndim == 3 for v in regions.values()):
        return by_frame(inputs, layout, dtype, in_ids, output_size, regions)
    axes = [layout.index("H"), layout.index("W")]
    ids, counts = _region_ids(in_ids, first, len(inputs))
    if in_ids is not None:
        rows = first.shapes.rows[ids]  # [samples, regions, dimensions]
    else:
        rows = np.stack([x.shapes.rows for x in inputs], axis=1)
    canvas = _canvas(output_size, inputs, axes)
    size = np.array(rows[:, 0])
    size[:, axes] = canvas
    _check_fitting(rows, size, axes, counts)
    rows = rows[:, :, axes]
    start = _numbers("in_anchors", in_anchors, in_anchors_rel, rows, counts, np.floor)
    start = np.zeros_like(rows) if start is None else start
    extents = _numbers("shapes", shapes, shapes_rel, rows, counts, np.ceil)
    extents = rows - start if extents is None else extents
    whole = np.broadcast_to(canvas[:, None, :], rows.shape)
    place = _numbers("out_anchors", out_anchors, out_anchors_rel, whole, counts, np.floor)
    place = np.zeros_like(rows) if place is None else place
    unused = np.arange(rows.shape[1])[None, :] >= counts[:, None]
    for numbers in (start, extents, place):
        numbers[unused] = 0
    _check_inside("source", start, extents, rows)
    _check_inside("canvas", place, extents, whole)
    if rows.shape[1] > CHAIN and all(x.device is None for x in inputs):
        regions = PastedRegions(start, extents, place, None if in_ids is None else ids)
        result = paste_list(inputs, size, layout, regions)
    else:
        sources = inputs
        if in_ids is not None:
            chosen = (ids[:, k] for k in range(ids.shape[1]))
            sources = tuple(build.choose("multi_paste", first, c, first.batch) for c in chosen)
        result = beside(convert.const_scalar(0, first.dtype), first)
        result = build.broadcast_to("multi_paste", result, Shapes(size), layout, first.batch)
        for k, x in enumerate(sources):
            if k and k % CHAIN == 0:
                result = build.alias("multi_paste", result, result.shapes, result.dtype, layout)
            result = _overlay(x, axes, start[:, k], extents[:, k], place[:, k], size, result)
    return cast_node("multi_paste", result.like(layout=layout), dtype or first.dtype)


def _overlay(
    x: Node, axes: list[int], start: Array, extents: Array, place: Array, size: Array, below: Node
) -> Node:
    """Paste one region of `x` onto the canvas `below`."""
    count = x.count
    first, lengths, moved = (np.zeros((count, x.rank), np.int64) for _ in range(3))
    first[:, axes], moved[:, axes] = start, -place
    lengths[:] = x.shapes.rows
    lengths[:, axes] = extents
    region = build.window("multi_paste", x, axes, first, lengths, x.batch)
    everywhere = tuple(range(x.rank))
    return build.window(
        "multi_paste", region, axes, moved, size, x.batch, below, everywhere, fill_fits=True
    )


def _layout(inputs: tuple[Node, ...]) -> str:
    allowed = {3: "HWC", 4: "FHWC"}
    for k, x in enumerate(inputs):
        layout = x.layout or allowed.get(x.rank)
        if layout not in allowed.values() or x.rank != inputs[0].rank:
            raise ValueError(
                f"inputs must be images (HWC) or all sequences (FHWC), got layout {x.layout!r} and "
                f"{x.rank} dimensions for input {k}"
            )
    return allowed[inputs[0].rank]


def _region_ids(ids, x: Node, number: int) -> tuple[Array, Array]:
    """Samples to paste, padded to [samples, regions], and the number of regions of each sample."""
    if ids is None:
        return np.zeros((x.count, 0), np.int64), np.full(x.count, number)
    rows = [a.reshape(-1) for a in ids]
    named = np.concatenate(rows)
    bad = np.flatnonzero((named < 0) | (named >= x.count))
    if len(bad):
        s = int(np.searchsorted(np.cumsum([len(r) for r in rows]), bad[0], "right"))
        raise IndexError(
            f"`in_ids` of sample {s} names sample {int(named[bad[0]])} of a batch of {x.count}"
        )
    rows = rows if len(rows) == x.count else rows * x.count
    counts = np.array([len(r) for r in rows])
    # round up to 1, 2 or a multiple of 4, so that different numbers of regions share kernels
    most = max(int(counts.max()), 1)
    most = most if most <= 2 else -(-most // CHAIN) * CHAIN
    filled = np.repeat(np.arange(x.count)[:, None], most, axis=1)
    filled[np.arange(most) < counts[:, None]] = np.concatenate(rows)
    return filled, counts


def _canvas(size: Array | None, inputs: tuple[Node, ...], axes: list[int]) -> Array:
    count = inputs[0].count
    if size is None:
        rows = np.concatenate([x.shapes.rows[:, axes] for x in inputs])
        if bool((rows != rows[0]).any()):
            raise ValueError("inputs of different sizes need `output_size`")
        return np.broadcast_to(rows[:1], (count, 2))
    if size.shape[1] < 2:
        raise ValueError(f"`output_size` must have 2 values (height, width), got {size.shape[1]}")
    if bool((size < 0).any()) or bool((size > MAX_EXTENT).any()):
        raise ValueError(f"`output_size` is out of range: {tuple(size[0].tolist())}")
    return np.broadcast_to(size[:, :2], (count, 2))


def _check_fitting(rows: Array, size: Array, axes: list[int], counts: Array) -> None:
    """Require the same number of channels and frames in all regions of a sample."""
    rest = [d for d in range(size.shape[1]) if d not in axes]
    wrong = (rows[:, :, rest] != size[:, None, rest]).any(axis=2)
    wrong &= np.arange(rows.shape[1]) < counts[:, None]
    if wrong.any():
        k, s = (int(v) for v in np.argwhere(wrong.T)[0])
        both = (tuple(rows[s, i, rest].tolist()) for i in (0, k))
        what = "channels" if len(rest) == 1 else "frames and channels"
        raise ValueError(
            f"regions of sample {s} differ in {what}: {next(both)} and {next(both)} (region {k})"
        )


def _numbers(name: str, absolute, relative, extents: Array, counts: Array, rounding):
    """Rows per region as int64 [samples, regions, 2], or None if the argument was omitted."""
    if absolute is None and relative is None:
        return None
    if absolute is not None and relative is not None:
        raise ValueError(f"`{name}` and `{name}_rel` exclude each other")
    shown = name if relative is None else f"{name}_rel"
    given = absolute if relative is None else relative
    every = given if len(given) == len(extents) else given * len(extents)
    for s, (rows, count) in enumerate(zip(every, counts.tolist(), strict=True)):
        if rows.shape != (count, 2):
            raise ValueError(
                f"`{shown}` must have a row of 2 numbers for each of the {count} regions "
                f"of sample {s}, got shape {rows.shape}"
            )
    result = np.zeros(extents.shape, np.int64)
    if not every:
        return result
    numbers = check_numbers(shown, np.concatenate(every))
    used = np.arange(extents.shape[1]) < counts[:, None]
    if relative is not None:
        numbers = check_numbers(shown, rounding(numbers * extents[used].astype(np.float32)))
    result[used] = numbers
    return result


def _check_inside(what: str, start: Array, extents: Array, limits: Array) -> None:
    outside = ((start < 0) | (extents < 0) | (start + extents > limits)).any(axis=2)
    if outside.any():
        s, k = (int(v[0]) for v in np.nonzero(outside))
        shown = (tuple(v[s, k].tolist()) for v in (start, extents, limits))
        raise ValueError(
            f"region {k} of sample {s} leaves the {what}: start {next(shown)}, "
            f"shape {next(shown)}, {what} {next(shown)}"
        )
