"""Random windows of a given shape around a region of interest: roi_random_crop."""

from __future__ import annotations

import numpy as np

from ...core import convert
from ...core.schema import REQUIRED, arg, geometry, op, static
from ...fusion.graph.shapes import Array
from ...kernels.ir import dtypes as dt
from ...runtime.rng import below, draw_of
from ..geometry.window import on_device
from .crop import RNG_DOC


@op.graph(
    sample="""start = ndd.roi_random_crop(crop_shape=[4, 4], roi_start=[2, 3], roi_shape=[3, 2])
start.shape
=(2,)""",
)
def roi_random_crop(
    input=arg(float, None, "Data whose shape bounds the window.", positional=True, any_shape=True),
    crop_shape=geometry(int, REQUIRED, "Extents of the window.", vector=True),
    in_shape=geometry(int, None, "Extents of the data, instead of the data itself.", vector=True),
    roi_end=geometry(int, None, "Where the region of interest ends.", vector=True),
    roi_shape=geometry(int, None, "Extents of the region, instead of `roi_end`.", vector=True),
    roi_start=geometry(int, REQUIRED, "Where the region of interest begins.", vector=True),
    rng=static("RNG", None, RNG_DOC),
    count=None,
    ordinal=None,
):
    """Draw the start of a random window that lies in a region of interest or contains it.

    Each axis is independent: a window smaller than the region lies in it, a larger one contains it.
    If the data or its shape is given, the window does not leave the data.
    """
    if (roi_end is None) == (roi_shape is None):
        raise ValueError("either `roi_end` or `roi_shape` must be given, and not both")
    if input is not None and in_shape is not None:
        raise ValueError("`in_shape` and an input exclude each other")
    axes = crop_shape.shape[1]
    size = _extents("crop_shape", crop_shape, axes)
    begin = _per_axis("roi_start", roi_start, axes)
    if roi_end is None:
        end = begin + _extents("roi_shape", roi_shape, axes)
    else:
        end = _per_axis("roi_end", roi_end, axes)
        _refuse(end < begin, "`roi_end` lies before `roi_start`", roi_start=begin, roi_end=end)
    low, high = np.minimum(begin, end - size), np.maximum(begin, end - size)
    whole = in_shape if input is None else input.shapes.rows
    if whole is not None:
        whole = _bounds(whole, axes, input is not None)
        _refuse(
            size > whole, "`crop_shape` is larger than the input", crop_shape=size, in_shape=whole
        )
        _refuse(
            (begin < 0) | (end > whole),
            "the region of interest leaves the input",
            roi_start=begin,
            roi_end=end,
            in_shape=whole,
        )
        low, high = np.maximum(low, 0), np.minimum(high, whole - size)
    rows = (count or 1, axes)
    words = draw_of(rng).blocks(np.arange(axes)[None, :], np.arange(rows[0])[:, None])[0]
    start = low + below(words, np.broadcast_to(high - low + 1, rows))
    node = convert.rows_node(start, dt.int64, count is not None)
    return on_device(node, input.device if ordinal is None and input is not None else ordinal)


def _per_axis(name: str, values: Array, axes: int) -> Array:
    if values.shape[1] != axes:
        raise ValueError(
            f"`{name}` must have {axes} values, as many as `crop_shape`, got {values.shape[1]}"
        )
    wild = values[(values < -(2**31)) | (values >= 2**31)]
    if len(wild):
        raise ValueError(f"`{name}` must be 32-bit integers, got {int(wild[0])}")
    return values


def _extents(name: str, values: Array, axes: int) -> Array:
    values = _per_axis(name, values, axes)
    _refuse(values < 0, f"`{name}` must not be negative", **{name: values})
    return values


def _bounds(shape: Array, axes: int, given: bool) -> Array:
    """Extents of the data along the window's axes; a window may have fewer axes than an input."""
    if not given:
        return _extents("in_shape", shape, axes)
    if shape.shape[1] < axes:
        raise ValueError(f"`crop_shape` has {axes} values for a {shape.shape[1]}-D input")
    return shape[:, :axes]


def _refuse(wrong: Array, why: str, **values: Array) -> None:
    """Raise an error with the values of the first sample that has a wrong axis, if any."""
    bad = np.flatnonzero(wrong.any(axis=1))
    if len(bad):
        s = int(bad[0])
        shown = (f"{n} {tuple(v[s % len(v)].tolist())}" for n, v in values.items())
        raise ValueError(f"{why}: {', '.join(shown)} in sample {s}")
