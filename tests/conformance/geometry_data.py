"""Inputs for the tests of exact geometry, and a call of every op that moves elements."""

from __future__ import annotations

import numpy as np

TYPES = "uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 bool".split()
BITS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
SIZES = [(5, 7), (1, 1), (4, 6), (3, 2)]


def numbers(shape, dtype="uint8", seed=0):
    """Random bits that are finite in every type."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if np.dtype(dtype).kind == "f":
        return rng.normal(0, 100, shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def images(dtype="uint8", channels=3, lead=(), sizes=SIZES):
    return [numbers((*lead, h, w, channels), dtype, seed) for seed, (h, w) in enumerate(sizes)]


def planar(dtype="uint8", channels=3, lead=()):
    return [numbers((*lead, channels, h, w), dtype, seed) for seed, (h, w) in enumerate(SIZES)]


def with_layout(layout, dtype="uint8"):
    """A ragged batch of this layout."""
    other = {"C": 3, "F": 2, "D": 4}
    return [
        numbers([other.get(n) or (h if n == "H" else w) for n in layout], dtype, seed)
        for seed, (h, w) in enumerate(SIZES)
    ]


MOVES = {
    "flip": ("HWC", dict(vertical=1)),
    "crop": ("HWC", dict(crop=[2, 2], out_of_bounds_policy="trim_to_shape")),
    "slice": ("HWC", dict(rel_start=[0.2, 0.3], rel_end=[0.9, 0.8])),
    "pad": ("HWC", dict(axis_names="HW", fill_value=3)),
    "transpose": ("HWC", dict(perm=[2, 0, 1])),
    "expand_dims": ("HWC", dict(axes=[1])),
    "reshape": ("HWC", dict(shape=[-1])),
    "copy": ("HWC", {}),
}
