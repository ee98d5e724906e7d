"""gaussian_blur: a weighted mean over a window, with the weights of a normal distribution."""

from __future__ import annotations

import numpy as np

from ...core.schema import data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.shapes import Array
from ...fusion.kinds.neighbourhood import MAX_WINDOW, Windows
from ...kernels.common.memo import memoized
from ...kernels.ir.dtypes import DType
from ...kernels.ir.windows import MAX_TILED_TAPS
from ..resample.sampling import rows_node
from .window_arguments import (
    DTYPE_DOC,
    check_per_axis,
    converted,
    per_axis,
    refuse,
    result_type,
    spatial_axes,
)

_IMAGE = "image = ndd.zeros(shape=[48, 64, 3], dtype=ndd.uint8, layout='HWC')\n"


@op.graph(
    by_frame=True, rejects="bool",
    sample=_IMAGE + "ndd.gaussian_blur(image, sigma=1.5).shape\n=(48, 64, 3)",
)  # fmt: skip
def gaussian_blur(
    input=data("Images, sequences or volumes."),
    dtype=static(DType, None, DTYPE_DOC),
    sigma=geometry(
        float, (0.0,), "Standard deviation, or one per axis; 0: it follows from `window_size`.",
        vector=True, per_frame=True,
    ),
    window_size=geometry(
        int, (0,), "Extent of the window, odd, or one per axis; 0: it follows from `sigma`.",
        vector=True, per_frame=True,
    ),
):  # fmt: skip
    """Blur with a Gaussian window, along all spatial axes.

    Outside, the image is mirrored without repeating the border pixel (reflect 101).
    """
    x, axes = input, spatial_axes(input)
    dtype = result_type(x, dtype)
    check_per_axis("sigma", sigma, len(axes))
    check_per_axis("window_size", window_size, len(axes))
    columns = max(sigma.shape[1], window_size.shape[1])
    sigma = per_axis("sigma", sigma, columns).astype(np.float32, copy=False)
    size = per_axis("window_size", window_size, columns).astype(np.int64, copy=False)
    weights, windows = _windows(sigma.tobytes(), size.tobytes(), columns, len(axes))
    table = rows_node(weights, x)
    # Faster, but float32 results would differ from upstream's in the last bits.
    is_symmetric = not x.dtype.is_float
    # Short windows of an image are summed in the tiles of one GPU kernel. For others there is one
    # kernel per axis, with n + n taps and not n * n, because threads sum their own (docs/gpu.md).
    # Sums are float32 in any case, so the bits are the same.
    on_gpu, together = x.device is not None, list(range(len(axes)))
    is_tiled = on_gpu and len(axes) == 2 and int(windows.count.max(initial=0)) <= MAX_TILED_TAPS
    passes = [[k] for k in reversed(together)] if on_gpu and not is_tiled else [together]
    y = x
    for chosen in passes:
        own = windows if chosen == together else Windows(*(a[:, :, chosen] for a in windows[:3]))
        y = build.neighbourhood(
            "gaussian_blur", y, [axes[k] for k in chosen], x.shapes, "reflect_101", table, own,
            is_symmetric=is_symmetric, is_tiled=is_tiled,
        )  # fmt: skip
    return converted("gaussian_blur", y, dtype)


@memoized(256)
def _windows(sigma: bytes, size: bytes, columns: int, axes: int) -> tuple[Array, Windows]:
    """The weights and windows of all samples; the first arguments are the bytes of two arrays.

    With one column, all axes have the same window and read the same weights.
    """
    sigmas, sizes = _completed(
        np.frombuffer(sigma, np.float32).reshape(-1, columns),
        np.frombuffer(size, np.int64).reshape(-1, columns),
    )
    weights, starts = _gaussians(sigmas, sizes)
    places = np.empty((3, len(sizes), 1, axes), np.int64)
    for place, values in zip(places, (sizes, sizes // 2, starts), strict=True):
        place[:, 0] = values
    return weights, Windows(*places)


def _completed(sigma: Array, size: Array) -> tuple[Array, Array]:
    """Compute sigma from the window size, or the reverse, where one of them is 0.

    The arithmetic is float32, as upstream.
    """
    lowest, highest = sigma.min(initial=np.inf), sigma.max(initial=0.0)
    if lowest > 0 and 6 * highest <= MAX_WINDOW and size.min(initial=1) > 0 and (size & 1).all():
        return sigma, size  # both are given
    is_size = (size == 0) | ((size > 0) & (size % 2 == 1))
    is_sigma = (sigma >= 0) & (6 * sigma <= MAX_WINDOW) & ((sigma > 0) | (size > 0))
    if not (is_size & is_sigma).all():
        _refuse(*np.broadcast_arrays(sigma, size))
    radius = np.ceil(3 * sigma).astype(np.int64)
    size = np.where(size > 0, size, 2 * radius + 1)
    from_size = (((size - 1) // 2 - 1) * np.float32(0.3) + np.float32(0.8)).astype(np.float32)
    return np.where(sigma > 0, sigma, from_size), size


def _refuse(sigma: Array, size: Array) -> None:
    """Raise the error of the first rule that is broken."""
    refuse(~((sigma >= 0) & (sigma < np.inf)), "`sigma` must be finite and not negative, got {}",
           sigma)  # fmt: skip
    refuse(size < 0, "`window_size` must not be negative, got {}", size)
    refuse((size > 0) & (size % 2 == 0), "`window_size` must be odd, got {}", size)
    refuse((sigma == 0) & (size == 0), "one of `sigma` and `window_size` must not be {}", sigma)
    refuse(6 * sigma > MAX_WINDOW, "`sigma` is too large: {}", sigma)


def _gaussians(sigma: Array, size: Array) -> tuple[Array, Array]:
    """Weights of all axes, [samples, all sizes], and where those of each axis begin.

    Weights and sums are rounded to float32 in upstream's order, so that all bits are the same.
    """
    room = size.max(axis=0)
    ends = np.cumsum(room)
    bells = [_bells(sigma[:, k], size[:, k], n) for k, n in enumerate(room.tolist())]
    weights = bells[0] if len(bells) == 1 else np.concatenate(bells, axis=1)
    return weights, (ends - room)[None]


def _bells(sigma: Array, size: Array, room: int) -> Array:
    """The weights of one axis, [samples, room]; `size` has one row if all windows are alike."""
    if len(size) == 1 and room > 1 and sigma.min(initial=1.0) > LEAST_SIGMA:
        return _equally_wide(sigma, room)
    radius = size // 2
    distance = np.arange(room)[None, :] - radius[:, None]
    factor = np.float32(-0.5) / (sigma * sigma)
    square = (distance * distance).astype(np.float32)
    # exp in float64, rounded to float32, nearly always equals the C library's float32 exp.
    exact = np.exp((square * factor[:, None]).astype(np.float64)).astype(np.float32)
    half = np.add.accumulate(exact * (distance < 0), axis=1, dtype=np.float32)[:, -1]
    bell = exact * (np.float32(1) / (half + half + np.float32(1)))[:, None]
    return bell * (distance <= radius[:, None])


# Below, the square of sigma may be 0 in float32, and the weight of the centre is not a number.
LEAST_SIGMA = 1e-18


def _equally_wide(sigma: Array, room: int) -> Array:
    """The weights of windows of the same size, the same bits as for windows of any size.

    Only one side is computed. For 64 windows of 9 elements that takes 20 instead of 45 µs, and a
    batch has one sigma per sample in most uses.
    """
    radius = room // 2
    square = (np.arange(radius, 0, -1) ** 2).astype(np.float32)
    factor = np.float32(-0.5) / (sigma * sigma)
    side = np.exp((square * factor[:, None]).astype(np.float64)).astype(np.float32)
    half = np.add.accumulate(side, axis=1)[:, -1]
    centre = np.float32(1) / (half + half + np.float32(1))
    bells = np.empty((len(sigma), room), np.float32)
    np.multiply(side, centre[:, None], out=bells[:, :radius])
    bells[:, radius] = centre
    bells[:, radius + 1 :] = bells[:, radius - 1 :: -1]
    return bells
