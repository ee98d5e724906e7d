"""Random tensors: random.uniform, normal, coin_flip, choice, beta; batch_permutation.

All but the last two are generators: a kernel computes the numbers where they are needed, from a
small table per sample that holds the draw's key, the sample's number and the strides of its
elements.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import add

import numpy as np

from ...core import convert
from ...core.inputs import on_host
from ...core.schema import arg, data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes
from ...fusion.graph.storage import Storage
from ...kernels.common.memo import memoized
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir import mathlib as ml
from ...kernels.ir.distributions import standard_normal, unit
from ...kernels.ir.dtypes import DType
from ...kernels.ir.expr import Expr
from ...kernels.ir.philox import philox
from ...runtime.rng import Draw, below, draw_of
from ...runtime.rng import unit as unit_of
from ..geometry.window import on_device
from .crop import RNG_DOC

_HEAD = 5  # key, lane, sample; the strides follow
_SHAPE = "Extents of the result; a scalar per sample if omitted."
_LIKE = "A tensor of the wanted shape, instead of `shape`."
_DTYPE = "Element type of the result."


def _place(shape_like: Node | None, shape: Array | None, count: int | None, ordinal: int | None):
    """(shapes of the result, device), from the arguments."""
    if shape_like is not None:
        if shape is not None:
            raise ValueError("`shape` and `shape_like` exclude each other")
        rows = np.broadcast_to(shape_like.shapes.rows, (count or 1, shape_like.rank))
        return check_volumes(rows), shape_like.device if ordinal is None else ordinal
    if shape is None:
        return _scalars(count or 1), ordinal
    if bool((shape < 0).any()):
        raise ValueError(f"`shape` must not be negative, got {tuple(shape.min(axis=0).tolist())}")
    return check_volumes(np.broadcast_to(shape, (count or 1, shape.shape[1]))), ordinal


@memoized(256)
def _scalars(count: int) -> Shapes:
    """Shapes of `count` single numbers."""
    return check_volumes(np.empty((count, 0), np.int64))


def check_volumes(rows: Array) -> Shapes:
    """Shapes of these extents; rejects samples with more elements than a 32-bit word can number."""
    shapes = Shapes.known(rows).checked()
    if bool((shapes.volumes >= 2**32).any()):
        raise ValueError(
            f"at most 2³² - 1 numbers can be drawn at once, got shape {tuple(rows[0])}"
        )
    return shapes


def key_table(draw: Draw, shapes: Shapes, extra: Array | None, batch: bool) -> Node:
    """Table (key, lane, sample, strides) from which elements draw; `extra`: more columns."""
    strides, words = shapes.strides, 0 if extra is None else extra.shape[1]
    first = _HEAD + shapes.rank
    table = np.empty((shapes.count, first + words), np.uint32)
    table[:, :4] = (*draw.key, *draw.lane)
    table[:, 4] = np.arange(shapes.count)
    if shapes.rank:
        table[:, _HEAD:first] = strides
    if extra is not None:
        table[:, first:] = extra.view(np.uint32)
    return convert.rows_node(table, dt.uint32, batch)


def _at(table: Expr, k: int) -> Expr:
    return ex.lookup(table, ex.const(k, dt.int32))


def extra_at(table: Expr, rank: int, k: int) -> Expr:
    """Extra number k of a table, as float32."""
    return ex.bits(_at(table, _HEAD + rank + k), dt.float32)


def words_at(table: Expr, axes: Iterable[int]) -> tuple[Expr, ...]:
    """Four random words for this element; elements that differ only along other axes share them."""
    places = [ex.cast(ex.index(a), dt.uint32) * _at(table, _HEAD + a) for a in axes]
    element = reduce(add, places) if places else ex.const(0, dt.uint32)
    key, lane, sample = (
        (_at(table, 0), _at(table, 1)),
        (_at(table, 2), _at(table, 3)),
        _at(table, 4),
    )
    return philox((element, sample, *lane), key)


def _below(word: Expr, count: Expr) -> Expr:
    """An integer from 0 to count - 1, as int32."""
    wide = ex.cast(word, dt.uint64) * ex.cast(ex.cast(count, dt.uint32), dt.uint64)
    return ex.cast(wide >> 32, dt.int32)


def _working_type(dtype: DType) -> DType:
    """The type in which numbers are computed; integers of all sizes need float64."""
    return dt.float32 if dtype in (dt.float32, dt.float16, dt.bfloat16) else dt.float64


def _drawn(
    name: str, body, draw: Draw, shapes: Shapes, inputs: list[Node], batch: bool,
    ordinal: int | None, key: tuple[object, ...], extra: Array | None = None,
) -> Node:  # fmt: skip
    table = key_table(draw, shapes, extra, batch)
    nodes = [on_device(n, ordinal) for n in (table, *inputs)]
    axes = [()] * len(nodes)
    key = (shapes.rank, *key)
    return build.pointwise(f"random.{name}", body, nodes, axes, shapes, None, key, batch)


def _check_type(dtype: DType, allowed: str) -> DType:
    names = allowed.split()
    if str(dtype) not in names:
        raise TypeError(f"`dtype` must be one of {', '.join(names)}, got {dtype}")
    return dtype


_MAX_FLOAT = float(np.finfo(np.float32).max)
_NUMBERS = "u8 i8 u16 i16 u32 i32 u64 i64 f16 bfloat16 f32 f64"


def _uniform(table: Expr, rank: int, dtype: DType) -> Expr:
    work = _working_type(dtype)
    low, high, scale = (ex.cast(extra_at(table, rank, k), work) for k in range(3))
    value = low + unit(words_at(table, range(rank)), work) * (high - low)
    # the sum may round up to `high`, which is not part of the range
    return ex.convert(ex.select(value < high, value, low) * scale, dtype)


def _range_of(bounds: Array) -> Array:
    """The table's columns for a range. We keep those of a range that all samples share: computing
    them takes a third of the time of a call."""
    if len(bounds) == 1 and bounds.dtype == np.float32:
        return _known_range(bounds.tobytes())
    return _scaled_range(bounds)


@memoized(256)
def _known_range(bounds: bytes) -> Array:
    return _scaled_range(np.frombuffer(bounds, np.float32)[None])


def _scaled_range(bounds: Array) -> Array:
    """Start, end and a factor for them: 2 if the distance would not fit into float32, else 1."""
    if bounds.shape[1] != 2:
        raise ValueError(f"`range` must have 2 values (start, end), got {bounds.shape[1]}")
    bad = np.flatnonzero(~((bounds[:, 0] < bounds[:, 1]) & np.isfinite(bounds).all(axis=1)))
    if len(bad):
        s = int(bad[0])
        raise ValueError(
            f"`range` must grow and be finite, got {bounds[s].tolist()} for sample {s}"
        )
    low, high = bounds.astype(np.float64).T
    scale = np.where(high - low > _MAX_FLOAT, 2.0, 1.0)
    return np.stack([low / scale, high / scale, scale], axis=1).astype(np.float32)


def _one_of(table: Expr, values: Expr, rank: int, dtype: DType) -> Expr:
    count = _at(table, _HEAD + rank)
    return ex.convert(ex.lookup(values, _below(words_at(table, range(rank))[0], count)), dtype)


@op.graph(
    name="random.uniform",
    sample="ndd.random.uniform(range=[0.0, 5.0], shape=[2, 3]).shape\n=(2, 3)",
)
def uniform(
    shape_like=arg(float, None, _LIKE, positional=True, any_shape=True),
    dtype=static(DType, dt.float32, f"{_DTYPE} Integers are rounded numbers from the range."),
    range=geometry(
        float, (-1.0, 1.0), "Start and end of the range; the end is not drawn.", vector=True
    ),
    rng=static("RNG", None, RNG_DOC),
    shape=geometry(int, None, _SHAPE, vector=True),
    values=geometry(float, None, "Numbers to choose from, instead of a range.", ragged=True),
    count=None,
    ordinal=None,
):
    """Random numbers, uniform in a range or chosen from a list."""
    _check_type(dtype, _NUMBERS)
    shapes, ordinal = _place(shape_like, shape, count, ordinal)
    batch = count is not None
    if values is not None:
        lengths = np.array([[v.size] for v in values])
        if bool((lengths == 0).any()):
            raise ValueError("`values` is empty")
        lists = convert.copy_arrays(
            [v.reshape(-1) for v in values], dt.float32, None, len(values) > 1
        )
        arguments = (shapes, [lists], batch, ordinal, (dtype,), lengths.astype(np.uint32))
        return _drawn("uniform", _one_of, draw_of(rng), *arguments)
    bounds = _range_of(range)
    return _drawn("uniform", _uniform, draw_of(rng), shapes, [], batch, ordinal, (dtype,), bounds)


_TURN = 6.283185307179586


def _normal(table: Expr, mean: Expr, stddev: Expr, rank: int, dtype: DType) -> Expr:
    work = _working_type(dtype)
    words = words_at(table, range(rank))
    if work is dt.float32:
        value = standard_normal(words[0], words[1])
    else:
        # Box-Muller transform; `first` lies in (0, 1], so its logarithm is finite
        first, turn = 1.0 - unit(words[:2], work), unit(words[2:], work) * _TURN
        value = ml.sqrt(-2.0 * ml.log(first)) * ml.cos(turn)
    mean, stddev = (ex.cast(ex.convert(v, dt.float32), work) for v in (mean, stddev))
    return ex.convert(value * stddev + mean, dtype)


@op.graph(
    name="random.normal",
    sample="ndd.random.normal(mean=1.0, stddev=2.0, shape=[2, 3]).shape\n=(2, 3)",
)
def normal(
    shape_like=arg(float, None, _LIKE, positional=True, any_shape=True),
    dtype=static(DType, dt.float32, f"{_DTYPE} Integers are rounded."),
    mean=arg(float, 0.0, "Mean."),
    rng=static("RNG", None, RNG_DOC),
    shape=geometry(int, None, _SHAPE, vector=True),
    stddev=arg(float, 1.0, "Standard deviation."),
    count=None,
    ordinal=None,
):
    """Random numbers from a normal distribution."""
    _check_type(dtype, _NUMBERS)
    shapes, ordinal = _place(shape_like, shape, count, ordinal)
    inputs, batch = [mean, stddev], count is not None
    return _drawn("normal", _normal, draw_of(rng), shapes, inputs, batch, ordinal, (dtype,))


def _coin(table: Expr, probability: Expr, rank: int, dtype: DType) -> Expr:
    number = ex.cast(words_at(table, range(rank))[0], dt.float64) * 2.0**-32
    head = number < ex.cast(ex.convert(probability, dt.float32), dt.float64)
    return head if dtype is dt.bool_ else ex.cast(head, dtype)


@op.graph(
    name="random.coin_flip",
    sample="ndd.random.coin_flip(probability=0.3, shape=[4]).shape\n=(4,)",
)
def coin_flip(
    shape_like=arg(float, None, _LIKE, positional=True, any_shape=True),
    dtype=static(DType, dt.int32, _DTYPE),
    probability=arg(float, 0.5, "Probability of 1."),
    rng=static("RNG", None, RNG_DOC),
    shape=geometry(int, None, _SHAPE, vector=True),
    count=None,
    ordinal=None,
):
    """Random zeros and ones."""
    _check_type(dtype, f"bool {_NUMBERS}")
    shapes, ordinal = _place(shape_like, shape, count, ordinal)
    inputs, batch = [probability], count is not None
    return _drawn("coin_flip", _coin, draw_of(rng), shapes, inputs, batch, ordinal, (dtype,))


# -- choice --------------------------------------------------------------------------------------


def _chosen(table: Expr, *rest) -> Expr:
    """The element of the chosen row.

    After the strides of the draws, the table holds the last row, the length of a row, and the
    strides within a row.
    """
    *tables, drawn, inner, weighted, wide, dtype = rest
    if wide:
        return _chosen_of_many(table, tables, drawn, inner, dtype)
    last = ex.cast(_at(table, _HEAD + drawn), dt.int32)
    word = words_at(table, range(drawn))[0]
    row = _reached(word, tables[-1], last, weighted) if weighted else _below(word, last + 1)
    if dtype is not None:
        return ex.cast(row, dtype)
    first = _HEAD + drawn + 1
    strides = [ex.cast(_at(table, first + k), dt.int32) for k in range(1 + inner)]
    places = [ex.index(drawn + k) * strides[1 + k] for k in range(inner)]
    return ex.lookup(tables[0], reduce(add, places, row * strides[0]))


def _chosen_of_many(table: Expr, tables, drawn: int, inner: int, dtype: DType | None) -> Expr:
    """Like `_chosen`, of more than 2³¹ - 1 elements: numbers of the table are pairs of words, the
    lower one first."""

    def number(k: int) -> Expr:
        low, high = (ex.cast(_at(table, _HEAD + drawn + 2 * k + j), dt.uint64) for j in (0, 1))
        return low | (high << 32)

    low, high = (ex.cast(w, dt.uint64) for w in words_at(table, range(drawn))[:2])
    row = ex.cast(_high_product(low, high, number(0) + 1), dt.int64)
    if dtype is not None:
        return ex.cast(row, dtype)
    strides = [ex.cast(number(1 + k), dt.int64) for k in range(1 + inner)]
    places = [ex.cast(ex.index(drawn + k), dt.int64) * strides[1 + k] for k in range(inner)]
    return ex.lookup(tables[0], reduce(add, places, row * strides[0]))


def _high_product(low: Expr, high: Expr, count: Expr) -> Expr:
    """The upper 64 bits of the product of a random number of two words and `count`: an integer from
    0 to count - 1."""
    below, above = ex.cast(ex.cast(count, dt.uint32), dt.uint64), count >> 32
    first = high * below + (low * below >> 32)
    second = low * above + ex.cast(ex.cast(first, dt.uint32), dt.uint64)
    return high * above + (first >> 32) + (second >> 32)


def _reached(word: Expr, limits: Expr, last: Expr, steps: int) -> Expr:
    """Number of the 2**steps - 1 ascending limits that `word` reaches, at most `last`; bisects."""
    place = ex.const(0, dt.int32)
    for k in reversed(range(steps)):
        beyond = word >= ex.lookup(limits, place + ((1 << k) - 1))
        place = place + ex.select(beyond, ex.const(1 << k, dt.int32), ex.const(0, dt.int32))
    return ex.select(place < last, place, last)


@op.graph(
    enums="moved",
    name="random.choice",
    sample="ndd.random.choice(ndd.tensor([5, 7, 9]), shape=[4]).shape\n=(4,)",
)
def choice(
    a=data("What to choose from: rows of a tensor, or a number n for 0 to n - 1."),
    shape_like=arg(float, None, _LIKE, positional=True, any_shape=True),
    p=geometry(float, None, "Probability of each row; uniform if omitted.", ragged=True),
    rng=static("RNG", None, RNG_DOC),
    shape=geometry(int, None, "How many to choose; one per sample if omitted.", vector=True),
):
    """Random choices from a tensor's first axis, with replacement."""
    count = a.count if a.batch else None
    drawn, ordinal = _place(shape_like, shape, count, a.device)
    rows = a.shapes.rows[:, 0] if a.rank else _numbers_of(a)
    if bool((rows <= 0).any()):
        s = int(np.flatnonzero(rows <= 0)[0])
        raise ValueError(
            f"there must be something to choose from, got {int(rows[s])} in sample {s}"
        )
    wide = bool((rows >= 2**31).any()) or bool((a.shapes.volumes >= 2**31).any())
    if wide and p is not None:
        raise ValueError("there are more than 2³¹ - 1 elements to choose from with probabilities")
    row_shapes = Shapes(np.ascontiguousarray(a.shapes.rows[:, 1:]))
    lengths = row_shapes.volumes
    last, limits, steps = rows - 1, [], 0
    if p is not None:
        last, limits, steps = _weights(p, rows)
    extra = np.concatenate([last[:, None], lengths[:, None], row_shapes.strides], axis=1)
    words = np.ascontiguousarray(extra, "<i8").view(np.uint32) if wide else extra.astype(np.uint32)
    table = key_table(draw_of(rng), drawn, words, a.batch)
    inputs = [table, *limits]
    if a.rank:
        flat = Shapes(a.shapes.volumes[:, None])
        inputs.insert(1, build.alias("random.choice", a, flat, a.dtype, None))
    nodes = [on_device(n, ordinal) for n in inputs]
    shapes = Shapes(np.concatenate([drawn.rows, row_shapes.rows], axis=1))
    key = (drawn.rank, row_shapes.rank, steps, wide, None if a.rank else a.dtype)
    layout = {0: (a.layout or "")[1:], 1: a.layout}.get(drawn.rank) or None
    axes = [()] * len(nodes)
    return build.pointwise("random.choice", _chosen, nodes, axes, shapes, layout, key, a.batch)


def _numbers_of(a: Node) -> Array:
    if not a.dtype.is_integer:
        raise TypeError(f"a single number to choose below must be an integer, got {a.dtype}")
    numbers = [int(v) for v in convert.arrays_of(on_host(a))]
    if max(numbers) >= 2**63:
        raise ValueError(f"at most 2⁶³ - 1 numbers can be chosen from, got {max(numbers)}")
    return np.array(numbers, np.int64)


def _weights(p, rows: Array) -> tuple[Array, list[Node], int]:
    """(last possible row of every sample, limits between rows as 32-bit words, bisection steps).

    There is at least one step, so that the limits are never empty.
    """
    steps = max(int(rows.max() - 1).bit_length(), 1)
    limits = np.full((len(rows), (1 << steps) - 1), 0xFFFFFFFF, np.uint32)
    last = np.empty(len(rows), np.int64)
    for s, number in enumerate(rows.tolist()):
        weights = p[s % len(p)].reshape(-1).astype(np.float64)
        if len(weights) != number:
            raise ValueError(f"`p` has {len(weights)} values for {number} rows in sample {s}")
        if not bool(((weights >= 0) & (weights <= 1)).all()) or abs(weights.sum() - 1) >= 1e-4:
            raise ValueError(
                f"`p` must be probabilities with the sum 1, got {weights.tolist()} in sample {s}"
            )
        ends = np.cumsum(weights / weights.sum())[:-1]
        limits[s, : number - 1] = np.minimum(np.floor(ends * 2.0**32), 0xFFFFFFFF)
        last[s] = np.flatnonzero(weights)[-1]
    return last, [convert.rows_node(limits, dt.uint32, len(rows) > 1)], steps


# -- beta ----------------------------------------------------------------------------------------


@op.graph(
    name="random.beta",
    sample="ndd.random.beta(alpha=2.0, beta=3.0, shape=[4]).shape\n=(4,)",
)
def beta(
    shape_like=arg(float, None, _LIKE, positional=True, any_shape=True),
    alpha=geometry(float, 1.0, "First parameter."),
    beta=geometry(float, 1.0, "Second parameter."),
    dtype=static(DType, dt.float32, f"{_DTYPE} float32 or float64."),
    rng=static("RNG", None, RNG_DOC),
    shape=geometry(int, None, _SHAPE, vector=True),
    count=None,
    ordinal=None,
):
    """Random numbers from a beta distribution, computed on the host."""
    _check_type(dtype, "f32 f64")
    for name, values in (("alpha", alpha), ("beta", beta)):
        bad = np.flatnonzero(~((values > 0) & np.isfinite(values)))
        if len(bad):
            s = int(bad[0])
            raise ValueError(f"`{name}` must be positive, got {float(values[s]):g} for sample {s}")
    shapes, ordinal = _place(shape_like, shape, count, ordinal)
    numbers = [np.broadcast_to(v, (shapes.count,)).astype(np.float64) for v in (alpha, beta)]
    node = build.host(
        "random.beta", _beta, [], shapes, dtype, None, count is not None, (draw_of(rng), *numbers)
    )
    return on_device(node, ordinal)


def _beta(node: Node, inputs, params) -> Storage:
    """X / (X + Y) of two gamma variables; in logarithms, because small parameters underflow."""
    draw, alpha, beta = params
    volumes = node.shapes.volumes
    sample = np.repeat(np.arange(node.count), volumes)
    element = np.arange(len(sample)) - np.repeat(np.cumsum(volumes) - volumes, volumes)
    x, y = (_log_gamma(draw, v[sample], element, sample, k) for k, v in enumerate((alpha, beta)))
    with np.errstate(over="ignore", under="ignore"):
        whole = (1.0 / (1.0 + np.exp(y - x))).astype(node.dtype.np)
    ends = np.cumsum(volumes)
    parts = [whole[e - v : e].reshape(s)
             for e, v, s in zip(ends, volumes, node.shapes.tuples, strict=True)]  # fmt: skip
    storage = convert.copy_arrays(parts, node.dtype, None, node.batch).storage
    assert storage is not None
    return storage


def _log_gamma(draw: Draw, shape: Array, element: Array, sample: Array, which: int) -> Array:
    """Logarithms of gamma variables (Marsaglia, Tsang, 2000); shapes below 1 go via shape + 1."""
    d = np.where(shape < 1, shape + 1, shape) - 1 / 3
    c = 1 / np.sqrt(9 * d)
    result = np.empty(len(shape))
    left = np.arange(len(shape))
    attempt = 0
    while len(left):
        a, b, u, w = _attempt(draw, element[left], sample[left], 2 * attempt + which)
        normal = np.sqrt(-2 * np.log(a)) * np.cos(_TURN * b)
        v = (1 + c[left] * normal) ** 3
        with np.errstate(invalid="ignore", divide="ignore"):
            good = np.log(u) < normal**2 / 2 + d[left] * (1 - v + np.log(v))
            value = np.log(d[left] * v) + np.where(shape[left] < 1, np.log(w) / shape[left], 0.0)
        good &= v > 0
        result[left[good]] = value[good]
        left = left[~good]
        attempt += 1
    return result


def _attempt(draw: Draw, element: Array, sample: Array, number: int) -> tuple[Array, ...]:
    lane = (draw.lane[0], (draw.lane[1] + number) & 0xFFFFFFFF)
    return tuple(unit_of(w) for w in Draw(draw.key, lane).blocks(element, sample))


# -- batch_permutation ---------------------------------------------------------------------------


@op.graph(
    sample="""order = ndd.batch_permutation(batch_size=4)
sorted(int(i) for i in order.tensors)
=[0, 1, 2, 3]""",
)
def batch_permutation(
    allow_repetitions=static(bool, False, "Whether indices may be repeated and left out."),
    no_fixed_points=static(
        bool, False, "Move every sample to another place; no effect on a single sample."
    ),
    rng=static("RNG", None, RNG_DOC),
    count=None,
    ordinal=None,
):
    """Indices of all samples in random order, for `permute_batch`.

    With `no_fixed_points` the order is a single cycle, and all such cycles are equally likely.
    """
    if count is None:
        raise ValueError("`batch_size` is required: no input tells the number of samples")
    words = draw_of(rng).blocks(np.arange(count), 0)
    places = np.arange(count)
    moved = no_fixed_points and count > 1
    if allow_repetitions:
        drawn = below(words[0], np.array(count - moved))
        order = (places + 1 + drawn) % count if moved else drawn
    else:
        order = np.lexsort(words[:2])
        if moved:
            order = np.roll(order, 1)[np.argsort(order)]
    node = convert.copy_arrays(list(order.astype(np.int32)), dt.int32, None, True)
    return on_device(node, ordinal)
