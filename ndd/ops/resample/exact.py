"""The nearest pixels of types that cannot be interpolated, such as labels in 64 bits or booleans.

Interpolation computes in float32, which does not hold these values. Here they are only moved: the
pixels that the taps name are listed on the host, and read as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array
from ...kernels.ir.dtypes import DType
from ...kernels.ir.taps import NEAREST_SUM, Taps

_HALF = np.float32(0.5)


def check_type(x: Node, only_nearest: Sequence[DType], is_nearest: bool) -> None:
    """Reject a type that only the nearest pixel can have, if others are read."""
    if not is_nearest and x.dtype in only_nearest:
        raise TypeError(
            f"element type {x.dtype} is not supported by this filter, which interpolates; "
            f"INTERP_NN moves values of every type"
        )


def nearest_pixels(
    name: str, x: Node, axes: Sequence[int], out: Array, taps: Sequence[Taps]
) -> Node:
    """`x` with extents `out` [samples, axes] along `axes`: each pixel is the one that taps name."""
    listed = [
        _listed(axis, out[:, k], x.shapes.rows[:, axis], taps[k]) for k, axis in enumerate(axes)
    ]
    return build.take(name, x, listed, x.batch)


def _listed(axis: int, out: Array, extents: Array, taps: Taps) -> build.Listed:
    places = [_positions(taps, s, int(out[s]), int(extents[s])) for s in range(len(out))]
    return build.Listed(axis, np.concatenate(places), out)


def _positions(taps: Taps, sample: int, count: int, extent: int) -> Array:
    """The nearest pixels along an axis, as kernels/ir/taps.py defines them."""
    origin, scale = (np.float32(v[sample]) for v in (taps.origin, taps.scale))
    if taps.kind[sample] == NEAREST_SUM:
        steps = np.full(count, scale, np.float32)
        steps[:1] = origin + _HALF * scale
        s = np.add.accumulate(steps, dtype=np.float32)
    else:
        s = (np.arange(count, dtype=np.float32) + _HALF) * scale + origin
    bound = np.float32(extent + 2)  # beyond it only the border pixel is read
    pixels = np.floor(np.clip(s, -bound, bound)).astype(np.int64) + int(taps.base[sample])
    return np.clip(pixels, 0, extent - 1)
