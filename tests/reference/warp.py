"""NumPy reference of the warps, for one sample with channels last, in float64.

Comments state what experiments with the oracle showed. Positions are
(x, y[, z]), with the edges of pixels at whole numbers.
"""

import numpy as np

F32 = np.float32


# -- matrices and sizes --------------------------------------------------------------------------


def turn(degrees, axis=None):
    """Matrix from output vectors to input vectors. The oracle's angle is float32 radians."""
    radians = float(F32(float(F32(degrees)) * np.pi / 180))
    c, s = np.cos(radians), np.sin(radians)
    if axis is None:
        return np.array([[c, -s], [s, c]])  # counter-clockwise, as seen with y downwards
    x, y, z = np.asarray(axis, np.float64) / np.linalg.norm(axis)
    k = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return (np.eye(3) + s * k + (1 - c) * k @ k).T


def canvas(extents, matrix):
    """Extents (x, y[, z]) of the result of rotate: ceil, with .01 pixels of slack, made even or odd
    like the extent of the input that contributes most (the own one, if it is not less)."""
    parts = np.abs(matrix.T)
    if len(extents) == 3:
        parts = parts.astype(F32)
    result = []
    for k, row in enumerate(parts):
        n = int(np.ceil(row.astype(np.float64) @ extents - 0.01))
        most = k if row[k] >= row.max() else int(row.argmax())
        result.append(n + (n + extents[most]) % 2)
    return result


def rotation(extents, target, matrix):
    """Matrix [n, n + 1] about the centres of the input and of the result."""
    offset = np.asarray(extents) / 2 - matrix @ (np.asarray(target) / 2)
    return np.concatenate([matrix, offset[:, None]], axis=1)


# -- sampling ------------------------------------------------------------------------------------


def grid(size):
    """Centres of pixels of an image of extents `size` (…, y, x), as points (x, y, …)."""
    axes = np.meshgrid(*[np.arange(n) + 0.5 for n in size], indexing="ij")
    return np.stack(axes[::-1], axis=-1)


def pixels(image, index, fill, border="replicate"):
    """Pixels at integer points (x, y, …); outside of the image `fill`, or a border pixel if it is None."""
    extents = np.array(image.shape[:-1])[::-1]
    inside = ((index >= 0) & (index < extents)).all(axis=-1)
    if border == "wrap":
        index = index % extents
    elif border == "reflect":
        index = index % (2 * extents)
        index = np.minimum(index, 2 * extents - 1 - index)
    elif border == "reflect_101":
        period = np.maximum(2 * extents - 2, 1)
        index = index % period
        index = np.minimum(index, period - index)
    index = np.clip(index, 0, extents - 1)
    value = image[tuple(np.moveaxis(index[..., ::-1], -1, 0))].astype(np.float64)
    return value if fill is None else np.where(inside[..., None], value, fill)


def nearest(image, at, fill, border="replicate"):
    return pixels(image, np.floor(at).astype(np.int64), fill, border)


def tent(t):
    return [1 - t, t]


def cubic(t, a=-0.75):
    def far(d):
        return a * (d**3 - 5 * d**2 + 8 * d - 4)

    def near(d):
        return (a + 2) * d**3 - (a + 3) * d**2 + 1

    return [far(1 + t), near(t), near(1 - t), far(2 - t)]


def interpolated(image, at, fill, border="replicate", weights=tent):
    """Each pixel of a 2**n or 4**n neighbourhood goes through the border rule by itself."""
    at = np.asarray(at) - 0.5
    base = np.floor(at)
    parts = weights(at - base)
    first = -(len(parts) // 2 - 1)
    total = 0.0
    for offsets in np.ndindex(*[len(parts)] * at.shape[-1]):
        index = base.astype(np.int64) + np.array(offsets) + first
        weight = np.prod([parts[o][..., k] for k, o in enumerate(offsets)], axis=0)
        total = total + weight[..., None] * pixels(image, index, fill, border)
    return total


# -- ops -----------------------------------------------------------------------------------------


def affine(image, matrix, size=None, fill=None, linear=True, dtype=None):
    """warp_affine with a matrix from the output to the input; float64 result, not rounded.

    The oracle adds the matrix's first column pixel by pixel in float32, beginning anew every 256
    (then 256 columns at once): its positions drift by up to half a unit in the last place for each
    pixel of a run. So do ours (kernels/ir/expr.py); in the small images here it does not show.
    """
    matrix = np.asarray(matrix, np.float64)
    points = grid(size or image.shape[:-1]) @ matrix[:, :-1].T + matrix[:, -1]
    if fill is not None:
        # a value of the result; and for LINEAR, which mixes it with pixels, then a pixel
        fill = converted(np.array(float(fill)), dtype or image.dtype)
        fill = converted(fill, image.dtype) if linear else fill
    return (interpolated if linear else nearest)(image, points, fill)


def rotate(image, degrees, axis=None, size=None, fill=None, linear=True):
    extents = list(image.shape[:-1])[::-1]
    matrix = turn(degrees, axis)
    target = canvas(extents, matrix) if size is None else list(size)[::-1]
    return affine(image, rotation(extents, target, matrix), target[::-1], fill, linear)


def perspective(
    image, matrix, size=None, fill=0.0, border="constant", interp="linear", origin="corner"
):
    """Exact; the oracle, which is OpenCV here, rounds positions to 1/32 pixel unless NN."""
    matrix = np.asarray(matrix, np.float64)
    points = grid(size or image.shape[:-1]) - (0.5 if origin == "center" else 0.0)
    u = points @ matrix[:, :-1].T + matrix[:, -1]
    at = u[..., :2] / u[..., 2:] + (0.5 if origin == "center" else 0.0)
    return sampled(image, at, fill if border == "constant" else None, border, interp)


def remap(image, mapx, mapy, interp="linear", origin="corner"):
    at = np.stack([mapx, mapy], axis=-1).astype(np.float64)
    at = at + (0.5 if origin == "center" else 0.0)
    return sampled(image, at, 0.0, "constant", interp)


def sampled(image, at, fill, border, interp):
    if interp == "nn":
        return nearest(image, at, fill, border)
    return interpolated(image, at, fill, border, {"linear": tent, "cubic": cubic}[interp])


WAVE = 2 * np.pi / 128


def water(
    image, ampl=(10, 10), freq=(WAVE, WAVE), phase=(0, 0), fill=0.0, linear=False
):  # numbers are (x, y)
    """In float32, as the oracle; pixels count at whole numbers, though edges are there."""
    rows, columns = (np.arange(n).astype(F32) for n in image.shape[:2])
    rows = rows[:, None]
    (ax, ay), (fx, fy), (px, py) = (tuple(map(F32, v)) for v in (ampl, freq, phase))
    x = columns + ax * np.sin((fx * rows + px).astype(np.float64)).astype(F32)
    y = rows + ay * np.cos((fy * columns + py).astype(np.float64)).astype(F32)
    at = np.stack(np.broadcast_arrays(x, y), axis=-1)
    return (interpolated if linear else nearest)(image, at, fill)


def sphere(image, fill=0.0, linear=False):
    """The radius is the larger half extent, cut to a whole number."""
    middle = np.array(image.shape[1::-1], F32) / 2
    radius = max(int(middle.max()), 1)
    v = grid(image.shape[:2]).astype(F32) - middle
    distance = np.sqrt((v**2).sum(axis=-1, keepdims=True))
    return (interpolated if linear else nearest)(image, middle + v * distance / F32(radius), fill)


def converted(value, dtype):
    """Halves away from zero, saturated."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return value.astype(dtype)
    if value.dtype.kind != "f":
        return np.clip(value, np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)
    info = np.iinfo(dtype)
    away = np.trunc(value + np.copysign(0.5, value))
    return np.clip(away, info.min, info.max).astype(dtype)
