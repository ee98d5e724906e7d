"""Random windows: random_crop_generator and random_resized_crop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...core import convert
from ...core.inputs import on_host
from ...core.schema import REQUIRED, data, geometry, op, static
from ...fusion.graph.shapes import Array
from ...kernels.common.memo import memoized
from ...kernels.ir import dtypes as dt
from ...kernels.ir.dtypes import DALIInterpType, DType
from ...runtime.rng import Draw, below, draw_of, unit
from ..geometry.window import OLD_DOC, on_device
from ..resample.resize import (
    ANTIALIAS_DOC,
    DTYPE_DOC,
    INTERP_DOC,
    MAG_DOC,
    MIN_DOC,
    NEAREST_ONLY,
    resample_frame,
    result_type,
    spatial_axes,
)
from ..resample.resize_geometry import Frame, filters

AREA_DOC = "Minimum and maximum area, relative to the image's."
ASPECT_DOC = "Minimum and maximum ratio of width to height."
ATTEMPTS_DOC = "Number of random shapes to try before falling back to the largest window."
RNG_DOC = "Source of random numbers; the thread's default generator if omitted."
_AT_ONCE = 6  # attempts drawn together: most samples need one or two
_FALLBACK = 0xFFFFFFFF  # counter of the draw that places the fallback


@memoized(64)
def check_crop_ranges(
    area: tuple[float, ...], aspect: tuple[float, ...], attempts: int
) -> tuple[Array, Array]:
    """Check the arguments; returns both ranges as pairs."""
    pairs: list[Array] = []
    for name, values in (("random_area", area), ("random_aspect_ratio", aspect)):
        pair = values * 2 if len(values) == 1 else values
        if len(pair) != 2:
            raise ValueError(f"`{name}` must have 2 values (least, largest), got {len(values)}")
        if not (np.isfinite(pair).all() and 0 <= pair[0] <= pair[1]):
            raise ValueError(f"`{name}` must be a range of positive numbers, got {list(pair)}")
        pairs.append(np.array(pair, np.float32))
    if pairs[1][0] == 0:
        raise ValueError(f"`random_aspect_ratio` must be positive, got {list(aspect)}")
    if attempts < 0:
        raise ValueError(f"`num_attempts` must not be negative, got {attempts}")
    return pairs[0], pairs[1]


def crop_windows(
    extents: Array, draw: Draw, area: Array, aspect: Array, attempts: int
) -> tuple[Array, Array]:
    """Starts and shapes [samples, 2] of random windows in images of these heights and widths.

    The area is uniform and the aspect ratio log-uniform; sides are rounded. A window that is larger
    than the image, or whose ratio leaves the range by rounding, is drawn again. Attempt k of sample
    s depends only on the draw, s and k.
    """
    samples = np.arange(len(extents))
    shape, words = np.zeros(extents.shape, np.int64), np.empty(extents.shape, np.uint32)
    open_, first = samples, 0
    while len(open_):
        # the last attempts come with a draw that places the fallback, in case all of them fail
        final = first + _AT_ONCE >= attempts
        numbers = np.arange(first, min(first + _AT_ONCE, attempts) + final)
        if final:
            numbers[-1] = _FALLBACK
        drawn = draw.blocks(numbers, open_[:, None])
        sides, fits = _attempts(extents[open_], drawn[:2], area, aspect)
        if final:
            fits[:, -1] = False
        chosen = fits.argmax(axis=1)
        done = fits[samples[: len(open_)], chosen]
        if final and not done.all():
            failed = open_[~done]
            sides[:, ~done, -1] = largest_window(extents[failed], area, aspect).T
            chosen, done = np.where(done, chosen, len(numbers) - 1), np.ones_like(done)
        rows, at = open_[done], (np.flatnonzero(done), chosen[done])
        for axis in (0, 1):
            shape[rows, axis], words[rows, axis] = sides[axis][at], drawn[2 + axis][at]
        open_, first = open_[~done], first + _AT_ONCE
    room = extents - shape
    return below(words, np.where(shape > 0, room, 0) + 1), shape


def _attempts(extents: Array, words: Sequence[Array], area: Array, aspect: Array) -> list[Array]:
    """Sides [2, samples, attempts] of windows, and which of them are allowed."""
    low, high = np.log(aspect.astype(np.float64)).tolist()
    full = (extents[:, 0] * extents[:, 1].astype(np.float64))[:, None]
    size = full * (area[0] + unit(words[0]) * (float(area[1]) - float(area[0])))
    ratio = np.exp(low + unit(words[1]) * (high - low))
    sides = np.maximum(np.floor(np.sqrt([size / ratio, size * ratio]) + 0.5), 1.0)
    rounded = (sides[1] / sides[0]).astype(np.float32)
    fits = (rounded >= aspect[0]) & (rounded <= aspect[1])
    fits &= (sides <= extents.T[:, :, None]).all(axis=0)
    return [sides, fits]


def largest_window(extents: Array, area: Array, aspect: Array) -> Array:
    """The largest shape with an allowed ratio and area; (0, 0) for an empty image."""
    height, width = extents.T
    filled = (extents > 0).all(axis=1, keepdims=True)
    ratio = width.astype(np.float32) / np.maximum(height, 1).astype(np.float32)
    wide = np.maximum(np.trunc(height.astype(np.float32) * aspect[1]), 1)
    high = np.maximum(np.trunc(width.astype(np.float32) * (np.float32(1) / aspect[0])), 1)
    shape = np.stack(
        [np.where(ratio < aspect[0], high, height), np.where(ratio > aspect[1], wide, width)],
        axis=1,
    ).astype(np.int64)
    limit = float(area[1]) * height * width
    now = shape.prod(axis=1)
    scale = np.sqrt(np.minimum(limit / np.maximum(now, 1), 1.0))[:, None]
    return np.where(filled, np.maximum(np.trunc(shape * scale), 1).astype(np.int64), 0)


@op.graph(
    sample="""rng = ndd.random.RNG(seed=1234)
anchor, shape = ndd.random_crop_generator(ndd.tensor([480, 640]), rng=rng)
anchor.shape, shape.shape
=((2,), (2,))""",
    outputs=2,
)
def random_crop_generator(
    input=data("Shapes of images: height, width and perhaps channels."),
    num_attempts=static(int, 10, ATTEMPTS_DOC),
    random_area=static("floats", (0.08, 1.0), AREA_DOC),
    random_aspect_ratio=static("floats", (3 / 4, 4 / 3), ASPECT_DOC),
    rng=static("RNG", None, RNG_DOC),
):
    """Start and shape of a random window, for `slice`: area uniform, aspect ratio log-uniform."""
    x = input
    if not x.dtype.is_integer:
        raise TypeError(f"shapes must be integers, got {x.dtype}")
    if x.rank != 1 or not {2, 3}.issuperset(x.shapes.rows[:, 0].tolist()):
        raise ValueError(f"shapes must have 2 or 3 values (HW or HWC), got {x.shapes.tuples[0]}")
    area, aspect = check_crop_ranges(random_area, random_aspect_ratio, num_attempts)
    host = on_host(x)
    whole = convert.dense_array(host)
    if whole is None:
        whole = np.stack([a[:2] for a in convert.arrays_of(host)])
    extents = whole[:, :2].astype(np.int64)
    if bool((extents < 0).any()) or bool((extents >= 2**31).any()):
        raise ValueError(f"shapes are out of range: {tuple(extents[0].tolist())}")
    found = crop_windows(extents, draw_of(rng), area, aspect, num_attempts)
    return [
        on_device(convert.rows_node(v.astype(np.int32), dt.int32, x.batch), x.device) for v in found
    ]


@op.graph(
    layouts="HWC CHW FHWC FCHW CFHW HW FHW",
    nearest_only=NEAREST_ONLY,
    sample="""image = ndd.zeros(shape=[48, 64, 3], dtype=ndd.uint8, layout='HWC')
ndd.random_resized_crop(image, size=[24, 24], rng=ndd.random.RNG(seed=1234)).shape
=(24, 24, 3)""",
)
def random_resized_crop(
    input=data("Images or sequences; all frames of a sequence get the same window."),
    antialias=static(bool, True, ANTIALIAS_DOC),
    dtype=static(DType, None, DTYPE_DOC),
    interp_type=geometry(DALIInterpType, None, INTERP_DOC),
    mag_filter=geometry(DALIInterpType, None, MAG_DOC),
    min_filter=geometry(DALIInterpType, None, MIN_DOC),
    minibatch_size=static(int, 32, OLD_DOC),
    num_attempts=static(int, 10, ATTEMPTS_DOC),
    random_area=static("floats", (0.08, 1.0), AREA_DOC),
    random_aspect_ratio=static("floats", (3 / 4, 4 / 3), ASPECT_DOC),
    rng=static("RNG", None, RNG_DOC),
    size=static("ints", REQUIRED, "Height and width of the result, or one number for both."),
    temp_buffer_hint=static(int, 0, OLD_DOC),
):
    """Resize a random window: area uniform, aspect ratio log-uniform.

    The window is a region of interest: filters also read pixels around it (see `resize`).
    """
    x, axes = input, spatial_axes(input)
    if len(size) not in (1, 2):
        raise ValueError(f"`size` must have 1 or 2 values, got {len(size)}")
    if min(size) < 0:
        raise ValueError(f"`size` must not be negative, got {list(size)}")
    area, aspect = check_crop_ranges(random_area, random_aspect_ratio, num_attempts)
    kinds, kind = filters(interp_type, min_filter, mag_filter), result_type(x, dtype)
    extents = x.shapes.rows[:, axes]
    start, shape = crop_windows(extents, draw_of(rng), area, aspect, num_attempts)
    out = np.broadcast_to(np.array(size, np.int64), extents.shape)
    region = (start.astype(np.float32), (start + shape).astype(np.float32))
    return resample_frame(
        "random_resized_crop", x, axes, Frame(extents, out, *region), kinds, antialias, kind
    )
