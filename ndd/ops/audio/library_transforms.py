"""Transforms whose sizes do not suit our kernels: signals enter, NumPy's spectra leave.

Our kernels add up a prime factor term by term, with a table of its square, and need tables of a few
times the size. Both are good for frames, not for the 160001 samples of a whole signal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core import convert
from ...core.inputs import on_host
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes
from ...fusion.graph.storage import Storage
from ...fusion.kinds.spectrum import Framing
from ...kernels.ir import dtypes as dt
from ...kernels.ir.fourier import factors
from ..geometry.window import on_device

# CPU time per frame, our kernel and NumPy: 512 samples 0.6 and 2.6 µs, 16384 samples 43 and 106 µs,
# but 459 and 296 µs for a single frame. Tables are cached: those of 64 such sizes take 20 MB.
_MAX_OWN_SIZE = 1 << 14
# Likewise 127 samples 2.0 and 5.1 µs, 251 samples 7.4 and 6.8, 509 samples 31 and 9.5, 1021 samples
# 127 and 25 µs.
_MAX_OWN_PRIME = 251
_BLOCK = 1 << 20  # samples of frames that are transformed at a time


class _Frames(NamedTuple):
    framing: Framing
    window: Array | None  # ones if omitted
    is_mirrored: bool
    is_magnitude: bool
    time_axis: int


def suits_library(sizes: Array, on_gpu: bool) -> bool:
    """Whether NumPy should transform frames of these sizes.

    On a GPU frames are transformed by definition, so primes do not matter there.
    """
    for size in set(sizes.tolist()):
        if size > _MAX_OWN_SIZE:
            return True
        primes = factors(size // 2 if size % 2 == 0 else size)
        if not on_gpu and max(primes, default=1) > _MAX_OWN_PRIME:
            return True
    return False


def transformed(
    op: str, x: Node, shapes: Shapes, layout: str, framing: Framing, window: Array | None,
    is_mirrored: bool, is_magnitude: bool,
) -> Node:  # fmt: skip
    """Like `build.transform`, on the host."""
    device = x.device
    if device is not None:
        x = on_host(x)
    how = _Frames(framing, window, is_mirrored, is_magnitude, layout.index("t"))
    y = build.host(op, _compute, [x], shapes, dt.float32, layout, x.batch, how)
    return on_device(y, device)


def _compute(node: Node, inputs: list[Node], how: _Frames) -> Storage:
    signals = convert.arrays_of(inputs[0])
    counts = node.shapes.rows[:, how.time_axis].tolist()
    found = [_spectra(a, s, n, how) for s, (a, n) in enumerate(zip(signals, counts, strict=True))]
    storage = convert.copy_arrays(found, dt.float32, node.layout, node.batch).storage
    assert storage is not None
    return storage


def _spectra(signal: Array, sample: int, count: int, how: _Frames) -> Array:
    """The spectra of `count` frames of one signal."""
    step, pad, length, size = (int(values[sample]) for values in how.framing)
    result = np.empty((count, size // 2 + 1), np.float32)
    run = max(_BLOCK // size, 1)
    for first in range(0, count, run):
        begins = np.arange(first, min(first + run, count))[:, None] * step - pad
        frames = _samples(signal, begins + np.arange(length), how.is_mirrored)
        if how.window is not None:
            frames *= how.window[:length]
        spectrum = np.fft.rfft(frames, size)
        part = result[first : first + len(begins)]
        if how.is_magnitude:
            np.abs(spectrum, out=part)
        else:
            part[...] = spectrum.real**2 + spectrum.imag**2
    return result if how.time_axis == 0 else result.T


def _samples(signal: Array, at: Array, is_mirrored: bool) -> Array:
    """The samples at these positions, some of which lie outside of the signal."""
    n = len(signal)
    inside = (at >= 0) & (at < n)
    if inside.all():
        return signal[at]
    if not is_mirrored:
        return np.where(inside, signal[np.clip(at, 0, n - 1)], np.float32(0))
    period = max(2 * (n - 1), 1)
    at = at % period
    return signal[np.minimum(at, period - at) if n > 1 else np.zeros_like(at)]
