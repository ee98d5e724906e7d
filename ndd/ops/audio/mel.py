"""mel_filter_bank and mfcc: spectra → bands of a scale of pitches → their cosine transform.

Both multiply by a matrix along one axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...core import convert
from ...core.schema import data, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array
from ...fusion.kinds.projection import Bands
from ...kernels.common.memo import memoized
from ...kernels.ir import dtypes as dt
from ..geometry.window import beside
from .spectra import NOT_F32

# A matrix is computed in float64, so that this many weights take 512 MB for a moment. Usual ones
# have 100 × 1000.
_MAX_WEIGHTS = 1 << 26
_SPECTRUM = "spectrum = ndd.ones(shape=[129, 50], dtype=ndd.float32, layout='ft')\n"
_MELS = "mels = ndd.ones(shape=[40, 50], dtype=ndd.float32, layout='ft')\n"


@op.graph(
    rejects=NOT_F32,
    sample=_SPECTRUM + "ndd.mel_filter_bank(spectrum, nfilter=40, sample_rate=16000).shape\n"
    "=(40, 50)",
)  # fmt: skip
def mel_filter_bank(
    input=data("Spectra, float32, with an axis f; without a layout, f is the last axis but one."),
    freq_high=static(float, 0.0, "The highest frequency, in Hz; half of `sample_rate` if 0."),
    freq_low=static(float, 0.0, "The lowest frequency, in Hz."),
    mel_formula=static(str, "slaney", 'The scale of pitches: "slaney" or "htk".'),
    nfilter=static(int, 128, "Number of filters."),
    normalize=static(
        bool, True, "Whether filters have an integral of 1 over frequencies; if not, a peak of 1."
    ),
    sample_rate=static(float, 44100.0, "Samples of the signal per second."),
):
    """Sum frequencies of spectra to bands of a mel scale, with triangular filters."""
    bank = _Bank(nfilter, float(sample_rate), float(freq_low), float(freq_high),
                 mel_formula.lower(), normalize)  # fmt: skip
    bank.check()
    x = input
    axis = _frequency_axis(x)
    bins = x.shapes.rows[:, axis]
    if (bins < 2).any():
        s = int(bins.argmin())
        raise ValueError(f"a spectrum has at least 2 frequencies, sample {s} has {int(bins[s])}")
    return _projected("mel_filter_bank", x, axis, _mel_bands, bank, np.full_like(bins, nfilter))


class _Bank(NamedTuple):
    """The arguments of `mel_filter_bank`."""

    nfilter: int
    sample_rate: float
    freq_low: float
    freq_high: float
    formula: str
    is_normalized: bool

    @property
    def highest(self) -> float:
        return self.freq_high or self.sample_rate / 2

    def check(self) -> None:
        if self.nfilter <= 0:
            raise ValueError(f"`nfilter` must be positive, got {self.nfilter}")
        if not self.sample_rate > 0:
            raise ValueError(f"`sample_rate` must be positive, got {self.sample_rate}")
        if self.formula not in _SCALES:
            known = ", ".join(map(repr, _SCALES))
            raise ValueError(f"`mel_formula` must be one of {known}, got {self.formula!r}")
        if self.freq_low < 0:
            raise ValueError(f"`freq_low` must not be negative, got {self.freq_low}")
        if not self.freq_low < self.highest <= self.sample_rate:
            raise ValueError(
                f"`freq_high` must be above `freq_low` ({self.freq_low}) and at most "
                f"`sample_rate` ({self.sample_rate}), got {self.highest}"
            )


def _frequency_axis(x: Node) -> int:
    if x.layout is None:
        if not x.rank:
            raise ValueError("a spectrum has at least one axis, got a single number")
        return max(x.rank - 2, 0)
    if "f" not in x.layout:
        raise ValueError(f"the layout of a spectrum must have an axis f, got {x.layout!r}")
    return x.layout.index("f")


# -- scales --------------------------------------------------------------------------------------

# Slaney's scale: linear up to 1000 Hz, logarithmic above, where 27 steps are a factor of 6.4.
_LINEAR_HZ = 200.0 / 3.0
_BREAK_HZ = 1000.0
_BREAK_MEL = _BREAK_HZ / _LINEAR_HZ
_LOG_STEP = math.log(6.4) / 27.0


def _to_slaney(hz: Array) -> Array:
    above = _BREAK_MEL + np.log(np.maximum(hz, _BREAK_HZ) / _BREAK_HZ) / _LOG_STEP
    return np.where(hz < _BREAK_HZ, hz / _LINEAR_HZ, above)


def _from_slaney(mel: Array) -> Array:
    above = _BREAK_HZ * np.exp(_LOG_STEP * (np.maximum(mel, _BREAK_MEL) - _BREAK_MEL))
    return np.where(mel < _BREAK_MEL, mel * _LINEAR_HZ, above)


def _to_htk(hz: Array) -> Array:
    return 1127.0 * np.log1p(hz / 700.0)


def _from_htk(mel: Array) -> Array:
    return 700.0 * np.expm1(mel / 1127.0)


Scale = Callable[[Array], Array]
_SCALES: dict[str, tuple[Scale, Scale]] = {
    "slaney": (_to_slaney, _from_slaney), "htk": (_to_htk, _from_htk)
}  # fmt: skip


def _mel_bands(bins: int, bank: _Bank) -> Array:
    """The matrix [filters, bins] of a filter bank."""
    to_mel, from_mel = _SCALES[bank.formula]
    low, high = to_mel(np.array([bank.freq_low, bank.highest]))
    edges = from_mel(np.linspace(low, high, bank.nfilter + 2))
    edges[[0, -1]] = bank.freq_low, bank.highest  # not rounded, so that they have a weight of 0
    hz = np.arange(bins) * (bank.sample_rate / (2 * (bins - 1)))
    left, middle, right = (edges[k : k + bank.nfilter, None] for k in range(3))
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.minimum((hz - left) / (middle - left), (right - hz) / (right - middle))
        weights = np.nan_to_num(np.maximum(weights, 0.0), posinf=0.0)
        if bank.is_normalized:
            weights = np.nan_to_num(weights * (2.0 / (right - left)), posinf=0.0)
    return weights


# -- the cosine transform ------------------------------------------------------------------------


@op.graph(rejects=NOT_F32, sample=_MELS + "ndd.mfcc(mels, n_mfcc=13).shape\n=(13, 50)")
def mfcc(
    input=data("Bands of a mel scale, usually in decibels, float32."),
    axis=static(int, 0, "The axis of the bands."),
    dct_type=static(int, 2, "Type of the cosine transform, 1 to 4."),
    lifter=static(float, 0.0, "Liftering: if L is not 0, coefficient k is multiplied by "
                  "1 + L / 2 * sin(pi * (k + 1) / L)."),
    n_mfcc=static(int, 20, "Number of coefficients, at most the number of bands."),
    normalize=static(bool, False, "Whether the basis of the transform is orthonormal."),
):  # fmt: skip
    """Compute mel-frequency cepstral coefficients: the cosine transform of bands of a mel scale."""
    x = input
    if x.rank < 2:
        raise ValueError(f"`input` must have at least 2 dimensions, got {x.rank}")
    if not 0 <= axis < x.rank:
        raise ValueError(f"`axis` must be from 0 to {x.rank - 1}, got {axis}")
    if dct_type not in (1, 2, 3, 4):
        raise ValueError(f"`dct_type` must be 1, 2, 3 or 4, got {dct_type}")
    if dct_type == 1 and normalize:
        raise ValueError("`normalize` is not possible with `dct_type` 1")
    if n_mfcc <= 0:
        raise ValueError(f"`n_mfcc` must be positive, got {n_mfcc}")
    bins = x.shapes.rows[:, axis]
    if dct_type == 1 and (bins == 1).any():
        raise ValueError("`dct_type` 1 needs at least 2 bands, got 1")
    cosines = _Cosines(n_mfcc, dct_type, normalize, float(lifter))
    return _projected("mfcc", x, axis, _cosine_bands, cosines, np.minimum(bins, n_mfcc))


class _Cosines(NamedTuple):
    """The arguments of `mfcc`."""

    coefficients: int
    kind: int
    is_normalized: bool
    lifter: float


def _cosine_bands(n: int, how: _Cosines) -> Array:
    """The matrix [coefficients, bins] of a cosine transform."""
    k, i = np.arange(min(how.coefficients, n))[:, None], np.arange(n)
    n = max(n, 1)  # without bands, there is nothing to divide
    if how.kind == 1:
        matrix = np.cos(np.pi * k * i / max(n - 1, 1)) * np.where((i == 0) | (i == n - 1), 0.5, 1)
    elif how.kind == 2:
        matrix = np.cos(np.pi / n * (i + 0.5) * k)
    elif how.kind == 3:
        matrix = np.cos(np.pi / n * (k + 0.5) * i) * np.where(i == 0, 0.5, 1)
    else:
        matrix = np.cos(np.pi / n * (i + 0.5) * (k + 0.5))
    if how.is_normalized:
        matrix = matrix * math.sqrt(2 / n)
        if how.kind == 2:
            matrix = np.where(k == 0, matrix / math.sqrt(2), matrix)
        elif how.kind == 3:
            matrix = np.where(i == 0, matrix * math.sqrt(2), matrix)
    if how.lifter:
        matrix = matrix * (1 + how.lifter / 2 * np.sin(np.pi * (k + 1) / how.lifter))
    return matrix


# -- matrices along an axis ----------------------------------------------------------------------


def _projected(
    op: str, x: Node, axis: int, matrix: Callable[[int, Any], Array], key: Any, counts: Array
) -> Node:
    """Multiply by `matrix(extent, key)` along an axis."""
    extents = x.shapes.rows[:, axis]
    _check_matrices(extents, counts)
    sizes = sorted(set(extents.tolist()))
    tables = [_table(matrix, n, key) for n in sizes]
    which = np.searchsorted(sizes, extents)
    longest = np.array([t.longest for t in tables], np.int64)[which]
    if len(tables) == 1:
        bands, weights = tables[0].bands, tables[0].weights
    else:
        own = [tables[k].arrays for k in which]
        bands = convert.copy_arrays([b for b, _ in own], dt.int32, None, batch=True)
        weights = convert.copy_arrays([w for _, w in own], dt.float32, None, batch=True)
    sums = Bands(counts, longest)
    return build.projection(op, x, axis, beside(bands, x), beside(weights, x), sums)


def _check_matrices(extents: Array, counts: Array) -> None:
    """Refuse matrices that are too large before there is memory for them."""
    for s, (n, count) in enumerate(zip(extents.tolist(), counts.tolist(), strict=True)):
        if n * count > _MAX_WEIGHTS:
            raise ValueError(
                f"the matrix of {count} × {n} weights for sample {s} is too large, at most "
                f"{_MAX_WEIGHTS} are possible"
            )


class _SparseRows(NamedTuple):
    """A matrix whose rows have few numbers other than 0, side by side."""

    arrays: tuple[Array, Array]
    bands: Node
    weights: Node
    longest: int


@memoized(64)
def _table(matrix: Callable[[int, Any], Array], n: int, key: Any) -> _SparseRows:
    rows = matrix(n, key).astype(np.float32)
    bands, weights = [], []
    start = 0
    for row in rows:
        found = np.flatnonzero(row)
        first, last = (int(found[0]), int(found[-1]) + 1) if len(found) else (0, 0)
        bands += [first, last - first, start]
        weights.append(row[first:last])
        start += last - first
    arrays = np.array(bands, np.int32), np.concatenate([*weights, np.zeros(1, np.float32)])
    nodes = convert.const_array(arrays[0], dt.int32), convert.const_array(arrays[1], dt.float32)
    return _SparseRows(arrays, *nodes, max(bands[1::3], default=0))
