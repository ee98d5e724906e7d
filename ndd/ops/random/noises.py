"""Noise: noise.gaussian, shot and salt_and_pepper.

All of them draw inside the kernel that needs the noise, so the noise is never stored. What an
element draws depends on its index in its sample, not on what is fused with the op.
"""

from __future__ import annotations

import numpy as np

from ...core import convert
from ...core.schema import arg, data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.distributions import poisson, standard_normal, unit
from ...kernels.ir.expr import Expr
from ...runtime.rng import Draw, draw_of
from ..geometry.window import beside, fill_per_sample
from .crop import RNG_DOC
from .draws import check_volumes, extra_at, key_table, words_at

_INPUT = "Images, or anything else."
_IMAGE = "image = ndd.zeros(shape=[4, 6, 3], dtype=ndd.uint8, layout='HWC')\n"
_SAMPLE = _IMAGE + "ndd.noise.{}(image, rng=ndd.random.RNG(seed=1)).shape\n=(4, 6, 3)"


def _noisy(
    name: str, body, x: Node, draw: Draw, drawn: Shapes, arguments: list[Node],
    key: tuple[object, ...], extra: Array | None = None,
) -> Node:  # fmt: skip
    """`body(x, table, *arguments, *key)` of each element; `drawn`: shapes of the numbers drawn."""
    table = beside(key_table(draw, drawn, extra, x.batch), x)
    inputs = [x, table, *arguments]
    axes = [tuple(range(x.rank)), *[()] * (len(inputs) - 1)]
    return build.pointwise(f"noise.{name}", body, inputs, axes, x.shapes, x.layout, key)


def _float_of(x: Expr) -> Expr:
    """`x` as float32 if that holds all its values, else as float64."""
    small = x.dtype.bits <= 16 or x.dtype is dt.float32
    return ex.cast(x, dt.float32 if small else dt.float64)


def _add_normal(x: Expr, table: Expr, mean: Expr, stddev: Expr, rank: int) -> Expr:
    value = _float_of(x)
    words = words_at(table, range(rank))
    normal = ex.cast(standard_normal(words[0], words[1]), value.dtype)
    mean, stddev = (ex.cast(ex.convert(v, dt.float32), value.dtype) for v in (mean, stddev))
    return ex.convert(value + (normal * stddev + mean), x.dtype)


@op.graph(name="noise.gaussian", rejects="bool", sample=_SAMPLE.format("gaussian"))
def gaussian(
    input=data(_INPUT),
    mean=arg(float, 0.0, "Mean of the noise."),
    stddev=arg(float, 1.0, "Standard deviation of the noise."),
    rng=static("RNG", None, RNG_DOC),
):
    """Add a normal random number to every value; integers are rounded and saturated."""
    drawn = check_volumes(input.shapes.rows)
    arguments = [mean, stddev]
    return _noisy("gaussian", _add_normal, input, draw_of(rng), drawn, arguments, (input.rank,))


def _count_events(x: Expr, table: Expr, factor: Expr, rank: int) -> Expr:
    """Count Poisson events: nan and non-positive values give 0, infinity stays infinity."""
    factor = ex.cast(ex.convert(factor, dt.float32), dt.float64)
    rate = ex.cast(x, dt.float64) / factor
    count = ex.select(rate > 0.0, poisson(rate, words_at(table, range(rank))), 0.0)
    return ex.select(ex.eq(factor, 0.0), x, ex.convert(count * factor, x.dtype))


@op.graph(name="noise.shot", rejects="bool", sample=_SAMPLE.format("shot"))
def shot(
    input=data(_INPUT),
    factor=arg(float, 20.0, "Value of one event; 0 leaves the input unchanged."),
    rng=static("RNG", None, RNG_DOC),
):
    """Replace every value by a Poisson random number of that mean, in steps of `factor`.

    This models a sensor that counts events: the variance is `factor` times the mean.
    """
    drawn = check_volumes(input.shapes.rows)
    return _noisy("shot", _count_events, input, draw_of(rng), drawn, [factor], (input.rank,))


def _replace(
    x: Expr, table: Expr, salt: Expr, pepper: Expr, rank: int, shared: int | None
) -> Expr:  # fmt: skip
    words = words_at(table, [a for a in range(rank) if a != shared])
    noisy, salty = (unit((words[k],), dt.float32) < extra_at(table, rank, k) for k in (0, 1))
    return ex.select(noisy, ex.select(salty, salt, pepper), x)


@op.graph(name="noise.salt_and_pepper", rejects="bool", sample=_SAMPLE.format("salt_and_pepper"))
def salt_and_pepper(
    input=data(_INPUT),
    pepper_val=geometry(
        float, None, "Value of pepper; the smallest of the input's type if omitted, -1 for floats."
    ),
    per_channel=static(
        bool, False, "Whether channels (axis C; without a layout the last) draw separately."
    ),
    prob=geometry(float, 0.05, "Probability of salt or pepper."),
    salt_val=geometry(
        float, None, "Value of salt; the largest of the input's type if omitted, 1 for floats."
    ),
    salt_vs_pepper=geometry(float, 0.5, "Probability that an affected pixel is salt."),
    rng=static("RNG", None, RNG_DOC),
):
    """Replace random pixels by one of two values."""
    x = input
    shares = np.stack(
        np.broadcast_arrays(
            _check_share("prob", prob), _check_share("salt_vs_pepper", salt_vs_pepper)
        ),
        axis=1,
    )
    shared = None if per_channel else _channel_axis(x)
    rows = np.array(x.shapes.rows)
    if shared is not None:
        rows[:, shared] = 1
    low, high = (-1.0, 1.0) if x.dtype.is_float else ex.limits(x.dtype)
    values = [_value(salt_val, high, x), _value(pepper_val, low, x)]
    drawn, key = check_volumes(rows), (x.rank, shared)
    return _noisy("salt_and_pepper", _replace, x, draw_of(rng), drawn, values, key, shares)


def _check_share(name: str, values: Array) -> Array:
    bad = np.flatnonzero(~((values >= 0) & (values <= 1)))
    if len(bad):
        s = int(bad[0])
        raise ValueError(f"`{name}` must lie in [0, 1], got {float(values[s]):g} for sample {s}")
    return values


def _channel_axis(x: Node) -> int | None:
    """The axis of channels, if there is one."""
    if x.layout:
        return x.layout.index("C") if "C" in x.layout else None
    return x.rank - 1 if x.rank else None


def _value(given: Array | None, default: float, x: Node) -> Node:
    if given is not None:
        return fill_per_sample(given, x)
    return beside(convert.const_scalar(default, x.dtype), x)
