"""audio_resample: signals at another sampling rate."""

from __future__ import annotations

import numpy as np

from ...core import convert
from ...core.schema import data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import MAX_EXTENT, Array
from ...kernels.common.memo import memoized
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.dtypes import DType
from ...kernels.ir.expr import Expr
from ...kernels.ir.sinc import sinc_table
from ..geometry.window import beside
from ..reduce.moments import pixelwise

QUALITY_DOC = "Quality, from 0 (3 lobes of the sinc) over 50 (16 lobes) to 100 (64 lobes)."
SAMPLE_TYPES = (dt.uint8, dt.int8, dt.uint16, dt.int16, dt.uint32, dt.int32, dt.float32)


@op.graph(
    rejects="bool u64 i64 f16 bfloat16 f64",
    sample="signal = ndd.tensor([0.0, 1.0, 0.0, -1.0])\n"
    "ndd.audio_resample(signal, scale=2.0).shape\n=(8,)",
)  # fmt: skip
def audio_resample(
    input=data("Signals: time is the first axis, channels may follow."),
    dtype=static(
        DType, None, "Element type of the result; the input's if omitted. Another type is scaled "
        "from full range to full range; floats are from -1 to 1.",
    ),
    in_rate=geometry(float, None, "Sampling rate of the input, together with `out_rate`."),
    out_length=geometry(int, None, "Samples of the result."),
    out_rate=geometry(float, None, "Sampling rate of the result."),
    quality=static(float, 50.0, QUALITY_DOC),
    scale=geometry(float, None, "Sampling rate of the result, relative to that of the input."),
):  # fmt: skip
    """Resample signals with a sinc that Hann's window limits.

    Give exactly one of `scale`, `out_length`, or both `in_rate` and `out_rate`. Frequencies above
    half of the new rate are not filtered out first, like upstream.
    """
    x = input
    to = x.dtype if dtype is None else dtype
    if to not in SAMPLE_TYPES:
        known = ", ".join(map(str, SAMPLE_TYPES))
        raise TypeError(f"`dtype` must be one of {known}, got {to}")
    if not x.rank:
        raise ValueError("a signal has at least one axis, got a single number")
    ratios, counts = _sizes(x.shapes.rows[:, 0], in_rate, out_rate, out_length, scale)
    return resampled("audio_resample", x, ratios, counts, quality, to)


def resampled(op: str, x: Node, ratios: Array, counts: Array, quality: float, dtype: DType) -> Node:
    """Resample by `ratios`, one for all samples or one for each, and convert to `dtype`."""
    lobes = lobe_count(quality)
    if x.dtype is not dt.float32:
        x = pixelwise(op, from_full_range, x)
    steps = np.ascontiguousarray(np.broadcast_to(1.0 / ratios, x.count))
    y = build.sinc(op, x, 0, counts, steps, lobes, beside(_table(lobes), x))
    return y if dtype is dt.float32 else pixelwise(op, to_full_range, y, key=(dtype,))


def lobe_count(quality: float) -> int:
    """How many lobes of the sinc are summed: a parabola through the documented numbers."""
    if not 0 <= quality <= 100:
        raise ValueError(f"`quality` must be from 0 to 100, got {quality}")
    return int(np.floor(0.007 * quality * quality - 0.09 * quality + 3 + 0.5))


@memoized(64)
def _table(lobes: int) -> Node:
    return convert.const_array(sinc_table(lobes).reshape(-1), dt.float32)


def _sizes(
    samples: Array, in_rate: Array | None, out_rate: Array | None, length: Array | None,
    scale: Array | None,
) -> tuple[Array, Array]:  # fmt: skip
    """The ratio of the sampling rates, and the length of each result."""
    if (in_rate is None) != (out_rate is None):
        raise ValueError("`in_rate` and `out_rate` must be given together")
    given = [name for name, v in (("scale", scale), ("out_length", length), ("out_rate", out_rate))
             if v is not None]  # fmt: skip
    if len(given) != 1:
        found = " and ".join(f"`{name}`" for name in given) or "none of them"
        raise ValueError(
            "exactly one of `scale`, `out_length` and `out_rate` (with `in_rate`) must be given, "
            f"got {found}"
        )
    if length is not None:
        return _by_length(samples, np.broadcast_to(length, len(samples)))
    if scale is not None:
        _check_positive("scale", scale)
        ratios = scale.astype(np.float32).astype(np.float64)
    else:
        assert in_rate is not None and out_rate is not None
        _check_positive("in_rate", in_rate)
        _check_positive("out_rate", out_rate)
        # Rates are float32; their quotient is not rounded again.
        ratios = out_rate.astype(np.float32).astype(np.float64) / in_rate.astype(np.float32)
    return ratios, result_counts(samples, ratios)


def result_counts(samples: Array, ratios: Array) -> Array:
    """How many results there are."""
    found = np.ceil(samples * ratios)
    if (found > MAX_EXTENT).any():
        s = int(found.argmax())
        raise ValueError(f"the result of sample {s} would have {found[s]:.3g} samples")
    return found.astype(np.int64)


def _by_length(samples: Array, length: Array) -> tuple[Array, Array]:
    bad = np.flatnonzero((length < 0) | ((length > 0) & (samples == 0)))
    if len(bad):
        s = int(bad[0])
        problem = "must not be negative" if length[s] < 0 else "must be 0 for an empty signal"
        raise ValueError(f"`out_length` {problem}, got {int(length[s])} for sample {s}")
    ratios = np.where(length > 0, length, 1) / np.where(length > 0, samples, 1)
    return ratios, length.astype(np.int64)


def _check_positive(name: str, values: Array) -> None:
    bad = np.flatnonzero(~((values > 0) & np.isfinite(values)))
    if len(bad):
        s = int(bad[0])
        raise ValueError(f"`{name}` must be positive, got {float(values[s])} for sample {s}")


# -- types ---------------------------------------------------------------------------------------


def from_full_range(x: Expr) -> Expr:
    """Samples of an integer type as floats from -1 to 1."""
    low, high = ex.limits(x.dtype)
    own = ex.cast(x, dt.float32)
    if low < 0:
        return own * (1.0 / high)
    return (own - high / 2) * (2.0 / high)


def to_full_range(x: Expr, dtype: DType) -> Expr:
    """Floats from -1 to 1 as samples of an integer type."""
    low, high = ex.limits(dtype)
    if low < 0:
        return ex.convert(x * float(high), dtype)
    return ex.convert(x * (high / 2) + high / 2, dtype)
