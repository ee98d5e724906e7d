"""laplacian: the sum of second derivatives along all axes, each smoothed along the other axes."""

from __future__ import annotations

from math import comb

import numpy as np

from ...core.schema import data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.shapes import Array
from ...fusion.kinds.neighbourhood import Windows
from ...kernels.ir.dtypes import DType
from ..resample.sampling import rows_node
from .window_arguments import DTYPE_DOC, converted, per_axis, refuse, result_type, spatial_axes

MAX_SIZE = 31

_IMAGE = "image = ndd.zeros(shape=[48, 64, 3], dtype=ndd.uint8, layout='HWC')\n"


@op.graph(
    by_frame=True, rejects="bool f64",
    sample=_IMAGE + "ndd.laplacian(image, dtype=ndd.float32).shape\n=(48, 64, 3)",
)  # fmt: skip
def laplacian(
    input=data("Images, sequences or volumes."),
    dtype=static(DType, None, DTYPE_DOC),
    normalized_kernel=static(bool, False, "Whether to scale so that windows add up to one."),
    scale=geometry(
        float, None, "Factor of each derivative, or one for all.", vector=True, per_frame=True,
    ),
    smoothing_size=geometry(
        int, None, "Extent of the smoothing window along each axis, odd, up to 31; 1 smoothes "
        "nothing; as wide as the derivative's if omitted.", vector=True, per_frame=True,
    ),
    window_size=geometry(
        int, (3,), "Extent of the derivative's window along each axis, odd, from 3 to 31.",
        vector=True, per_frame=True,
    ),
):  # fmt: skip
    """Add up second derivatives along all spatial axes.

    Outside, the image is mirrored without repeating the border pixel (reflect 101).
    """
    x, axes = input, spatial_axes(input)
    dtype, n = result_type(x, dtype), len(axes)
    sizes = _sizes(per_axis("window_size", window_size, n), smoothing_size, n)
    if normalized_kernel and scale is not None:
        raise ValueError("`scale` cannot be combined with `normalized_kernel`")
    if normalized_kernel:
        scales = np.exp2(n + 2.0 - sizes.sum(axis=2)).astype(np.float32)
    else:
        given = np.ones((1, 1), np.float32) if scale is None else scale
        scales = per_axis("scale", given, n).astype(np.float32)
    count = max(len(sizes), len(scales))
    sizes, scales = (
        np.broadcast_to(a, (count, *a.shape[1:])).copy() for a in (sizes, scales)
    )  # fmt: skip
    windows = Windows(sizes, sizes // 2, _starts(sizes), scales)
    border, table = "reflect_101", rows_node(_all_weights(), x)
    y = build.neighbourhood("laplacian", x, axes, x.shapes, border, table, windows, n)
    return converted("laplacian", y, dtype)


def _sizes(window: Array, smoothing: Array | None, n: int) -> Array:
    """Extents of the windows, [samples, derivatives, axes]."""
    is_odd = window % 2 == 1
    refuse(
        ~(is_odd & (window >= 3) & (window <= MAX_SIZE)),
        f"`window_size` must be odd, from 3 to {MAX_SIZE}, got {{}}", window,
    )  # fmt: skip
    own = np.eye(n, dtype=bool)[None]
    if smoothing is None:
        return np.broadcast_to(window[:, :, None], (len(window), n, n))
    smoothing = per_axis("smoothing_size", smoothing, n)
    refuse(
        ~((smoothing % 2 == 1) & (smoothing >= 1) & (smoothing <= MAX_SIZE)),
        f"`smoothing_size` must be odd, from 1 to {MAX_SIZE}, got {{}}", smoothing,
    )  # fmt: skip
    return np.where(own, window[:, :, None], smoothing[:, None, :]).astype(np.int64)


# One list of weights holds all possible windows: smoothing windows of 1, 3, … elements, then second
# derivatives of 3, 5, … elements.
_SMOOTHING = [[comb(w - 1, k) for k in range(w)] for w in range(1, MAX_SIZE + 1, 2)]
_DERIVATIVES = [
    np.convolve([1, -2, 1], [comb(w - 3, k) for k in range(w - 2)]).tolist()
    for w in range(3, MAX_SIZE + 1, 2)
]
_ENDS = np.cumsum([0, *(len(w) for w in (*_SMOOTHING, *_DERIVATIVES))])


def _all_weights() -> Array:
    return np.concatenate([*_SMOOTHING, *_DERIVATIVES]).astype(np.float32)[None]


def _starts(sizes: Array) -> Array:
    own = np.eye(sizes.shape[1], dtype=bool)[None]
    return _ENDS[np.where(own, len(_SMOOTHING) + (sizes - 3) // 2, sizes // 2)]
