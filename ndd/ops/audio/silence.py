"""nonsilent_region: where a signal begins and ends."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...core import convert
from ...core.inputs import on_host
from ...core.schema import data, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes
from ...fusion.graph.storage import Storage
from ...kernels.ir import dtypes as dt
from ..geometry.window import on_device
from .spectra import one_channel


class _Silence(NamedTuple):
    """The arguments of `nonsilent_region`."""

    cutoff_db: float
    reference: float
    window: int


@op.graph(
    rejects="bool f16 bfloat16 f64", outputs=2,
    sample="signal = ndd.tensor([0.0, 0.0, 1.0, 1.0, 0.0, 0.0])\n"
    "begin, length = ndd.nonsilent_region(signal, window_length=1)\n"
    "begin.item(), length.item()\n=(2, 2)",
)  # fmt: skip
def nonsilent_region(
    input=data("Signals of one channel."),
    cutoff_db=static(float, -60.0, "The level below which a signal is silent."),
    reference_power=static(
        float, 0.0, "The power of 0 dB; the largest short-term power of each signal if 0."
    ),
    reset_interval=static(int, 8192, "Without effect: sums are exact."),
    window_length=static(int, 2048, "Samples over which the short-term power is averaged."),
):
    """Find the part of a signal between the silence at its begin and the one at its end.

    Results are the first sample of that part and its length, 0 if all of the signal is silent.
    They are found on the host.
    """
    if window_length <= 0:
        raise ValueError(f"`window_length` must be positive, got {window_length}")
    if reference_power < 0:
        raise ValueError(f"`reference_power` must be positive, got {reference_power}")
    x = one_channel(input)
    if x.device is not None:
        x = on_host(x)
    facts = _Silence(cutoff_db, reference_power, window_length)
    shapes = Shapes(np.full((x.count, 1), 2, np.int64))
    both = build.host("nonsilent_region", _find, [x], shapes, dt.int32, None, x.batch, facts)
    return tuple(on_device(_part(both, k), input.device) for k in (0, 1))


def _part(both: Node, k: int) -> Node:
    """One of the two numbers of each sample."""
    start, one = np.full((both.count, 1), k, np.int64), np.ones((both.count, 1), np.int64)
    return build.index_axes(both.op, both, start, one, one, [0], [0], [], None, both.batch)


def _find(node: Node, inputs: list[Node], silence: _Silence) -> Storage:
    found = [_region(a, silence) for a in convert.arrays_of(inputs[0])]
    storage = convert.copy_arrays(found, dt.int32, None, node.batch).storage
    assert storage is not None
    return storage


def _region(signal: Array, silence: _Silence) -> Array:
    """The begin and the length of what is not silent."""
    window = silence.window
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.square(signal, dtype=np.float64)
        if not np.isfinite(squares.sum()):
            return _loud_region(_power_of_any(squares, window), silence)
    return _loud_region(_window_sums(squares, window) / window, silence)


def _window_sums(values: Array, window: int) -> Array:
    """The sum of each value and those before it, as many as a window has."""
    sums: Any = np.zeros(len(values) + 1)
    np.cumsum(values, out=sums[1:])
    found: Array = sums[1:].copy()
    found[window:] -= sums[1 : max(len(values) - window, 0) + 1]
    return found


def _power_of_any(squares: Array, window: int) -> Array:
    """The power in each window, where infinities count only inside of it, and no NaN counts."""
    finite = np.isfinite(squares)
    power = _window_sums(np.where(finite, squares, 0.0), window) / window
    power[_window_sums(np.isinf(squares), window) > 0] = np.inf
    return power


def _loud_region(power: Array, silence: _Silence) -> Array:
    window = silence.window
    reference = silence.reference or power.max(initial=0.0)
    loud = np.flatnonzero(power >= reference * 10.0 ** (silence.cutoff_db / 10.0))
    if not len(loud):
        return np.zeros(2, np.int32)
    begin = max(int(loud[0]) - window + 1, 0)
    return np.array([begin, int(loud[-1]) - begin + 1], np.int32)
