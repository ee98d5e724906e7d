"""Windows against the oracle: flip, crop, slice and pad.

Everything here only moves elements, so every comparison is of bits.
"""

from __future__ import annotations

import numpy as np
import pytest

import ndd

from .geometry_data import images, numbers, planar, with_layout
from .oracle import check, per_sample

# -- flip ----------------------------------------------------------------------------------------

FLIPPED = ["HWC", "CHW", "FHWC", "DHWC", "FCHW", "CDHW", "FDHWC", "FCDHW"]


@pytest.mark.parametrize("layout", FLIPPED)
def test_flip_layouts(layout):
    for arguments in (
        {},
        dict(vertical=1),
        dict(horizontal=0, depthwise=1),
        dict(horizontal=-1, vertical=2, depthwise=1),
        dict(horizontal=0),
    ):
        check("flip", with_layout(layout), layout=layout, **arguments)


def test_flip_per_sample_and_without_layout():
    x = images()
    flags = per_sample([1, 0, 1, 0])
    check("flip", x, layout="HWC", horizontal=flags, vertical=per_sample([0, 0, 1, 1]))
    check("flip", x[0], layout="HWC", horizontal=flags)  # one image becomes four
    check("flip", x, layout="HWC", horizontal=0, vertical=per_sample([True, False, True, True]))
    check("flip", x, layout="HWC", horizontal=per_sample([0.4, 0.5, -0.5, 2.0]))
    check("flip", x, horizontal=1)
    check("flip", x[0], batch_size=3)
    check("flip", with_layout("FHWC"), vertical=1)
    check("flip", np.zeros((0, 3, 1), np.uint8), layout="HWC")
    empty = ndd.flip(ndd.zeros(shape=[2, 3, 0], layout="HWC"))
    assert empty.shape == (2, 3, 0) and np.asarray(empty).shape == (2, 3, 0)


# -- crop ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["HWC", "CHW", "DHWC", "CDHW", "FHWC", "FCHW", "CFHW"])
def test_crop_layouts(layout):
    x = with_layout(layout)
    for policy in ("pad", "trim_to_shape"):
        check("crop", x, layout=layout, crop=[3, 4], out_of_bounds_policy=policy)
        check(
            "crop",
            x,
            layout=layout,
            crop=[2, 2, 3],
            crop_pos_x=0.2,
            crop_pos_y=0.9,
            crop_pos_z=1.0,
            out_of_bounds_policy=policy,
            fill_values=[7],
        )
    check("crop", x, layout=layout)
    check("crop", x, layout=layout, crop=[1, 1])
    check("crop", x, layout=layout, crop_h=1.9, crop_w=0, crop_d=1)
    check("crop", x, layout=layout, crop=[1, 1], crop_pos_x=0, crop_pos_y=1)


def test_crop_positions_round_like_the_oracle():
    rng = np.random.default_rng(3)
    x = [numbers((h, w, 1), seed=h) for h, w in rng.integers(1, 300, (40, 2))]
    for rounding in ("round", "truncate"):
        check(
            "crop",
            x,
            layout="HWC",
            crop=[40, 33],
            rounding=rounding,
            out_of_bounds_policy="pad",
            crop_pos_x=per_sample(rng.choice([0.5, 0.25, 0.1, 1 / 3, 0.7], 40).astype(np.float32)),
            crop_pos_y=per_sample(rng.uniform(0, 1, 40).astype(np.float32)),
        )
    check(
        "crop",
        x,
        layout="HWC",
        out_of_bounds_policy="trim_to_shape",
        crop_w=per_sample(rng.uniform(-2, 300, 40).astype(np.float32)),
        crop_h=per_sample(rng.uniform(0, 300, 40).astype(np.float32)),
    )
    check(
        "crop",
        x,
        layout="HWC",
        out_of_bounds_policy="pad",
        crop=per_sample(rng.integers(0, 90, (40, 2)).astype(np.float32)),
    )


@pytest.mark.parametrize("op", ["crop", "slice"])
def test_windows_convert_by_truncation(op):
    window = dict(crop=[2, 4]) if op == "crop" else dict(start=[0, 0], shape=[4, 2])
    wild = [-3.7, 300.7, 2.9, np.nan, np.inf, -np.inf, 65520.0, 1e39]
    for dtype in ("float32", "float64", "int16", "uint16", "int64"):
        with np.errstate(all="ignore"):
            source = np.array(wild if dtype[0] == "f" else [-3, 300, 2, 0, 70, -128, 255, 256])
            x = source.astype(dtype).reshape(2, 4, 1)
        for out in ("uint8", "float16", "float32"):
            check(op, x, layout="HWC", rtol=0, dtype=out, **window)


# -- windows: slice ------------------------------------------------------------------------------


def test_slice_rounds_like_the_oracle():
    """Rounding of anchors at many extents: halves, products in single and sums in double precision."""
    rng = np.random.default_rng(5)
    n = 200
    x = [np.arange(k, dtype=np.uint16) for k in rng.integers(1, 3000, n)]
    some = [0.5, 0.25, 0.1, 0.3, 1 / 3, 0.05, 0.15]
    a = rng.choice(some, n).astype(np.float32)
    b = rng.choice([0.5, 0.25, 0.1, 0.3, 0.4], n).astype(np.float32)
    column = lambda v: per_sample([[e] for e in v])
    for arguments in (
        dict(rel_start=column(a), rel_end=column(a + b)),
        dict(rel_start=column(a), rel_shape=column(b)),
        dict(rel_start=column(a)),
        dict(rel_end=column(b)),
        dict(rel_shape=column(b)),
        dict(start=per_sample([[0]] * n), rel_end=column(b)),
        dict(start=per_sample([[1]] * n), rel_shape=column(b)),
        dict(rel_start=column(a), shape=per_sample([[3]] * n)),
        dict(start=per_sample([[3]] * n), end=per_sample([[9]] * n)),
    ):
        check("slice", x, axes=[0], out_of_bounds_policy="pad", **arguments)
        check("slice", x, axes=[0], out_of_bounds_policy="trim_to_shape", **arguments)


def test_slice_with_positional_window():
    x = images()
    rng = np.random.default_rng(1)
    window = lambda dtype, low, high: [v.astype(dtype) for v in rng.uniform(low, high, (4, 2))]
    for arguments in ({}, dict(axis_names="HW"), dict(axes=[0, 1]), dict(axes=[-1, 0])):
        for flags in (
            {},
            dict(normalized_anchor=False),
            dict(normalized_shape=False),
            dict(normalized_anchor=False, normalized_shape=False),
        ):
            check(
                "slice",
                x,
                window(np.float32, 0, 0.6),
                window(np.float32, 0.1, 0.9),
                layout=("HWC", None, None),
                out_of_bounds_policy="pad",
                **flags,
                **arguments,
            )
        check(
            "slice",
            x,
            window(np.int32, 0, 3),
            window(np.int32, 1, 5),
            layout=("HWC", None, None),
            out_of_bounds_policy="trim_to_shape",
            **arguments,
        )


def test_slice_axes_and_broadcast_values():
    x = images()
    for arguments in (
        dict(start=1, end=2, out_of_bounds_policy="pad"),
        dict(start=[1], shape=[1], axes=[0], out_of_bounds_policy="trim_to_shape"),
        dict(start=[0, 0, 0], shape=[1, 1, 2], axes=[]),
        dict(start=[0, 1], end=[1, 3], axes=[0, 2]),
        dict(start=[0], end=[1], axis_names="W"),
        dict(end=[1, 1]),
        dict(rel_start=0.0, rel_end=1.0),
        dict(start=[0], shape=[1], axes=per_sample([[0], [1], [2], [-1]])),
        dict(start=[0, 0], shape=[0, 0]),
    ):
        check("slice", x, layout="HWC", **arguments)
        check("slice", x[0], layout="HWC", **arguments)
    for rank in (2, 3, 4):  # without a layout: HW, HWC, DHWC
        y = numbers((4, 3, 2, 3)[:rank])
        check("slice", y, start=[0, 1], end=[2, 2])
        check("slice", y, start=[1], end=[2], axis_names="H")
    check("slice", numbers((4,)), start=[1], end=[3], axes=[0])
    check("slice", x[0], layout="HWC", start=per_sample([[0, 0], [1, 2]]), shape=[1, 1])


@pytest.mark.parametrize("op", ["crop", "slice"])
def test_fill_values(op):
    window = dict(crop=[6, 9]) if op == "crop" else dict(start=[-1, -2], end=[6, 5])
    policy = dict(out_of_bounds_policy="pad", **window)
    x = images()
    for fill in ([], [7], [1, 2, 3], [2.9, -3.5, 300], [1e10, -1e10, 70000]):
        check(op, x, layout="HWC", fill_values=fill, **policy)
        check(op, planar(), layout="CHW", fill_values=fill, **policy)
    for dtype in ("int8", "int32", "uint32", "int64", "uint64", "float16", "float32"):
        y = numbers((5, 7, 3), dtype)
        check(op, y, layout="HWC", rtol=0, fill_values=[3e9, -3e9, 1e30], **policy)
    check(
        "slice",
        x[0],
        layout="HWC",
        start=[-1],
        end=[4],
        axes=[2],
        out_of_bounds_policy="pad",
        fill_values=[1, 2, 3, 4, 5],
    )  # one per channel of the result
    check(
        "slice", x[0], start=[-1, 0], end=[4, 2], out_of_bounds_policy="pad", fill_values=[1, 2, 3]
    )


@pytest.mark.parametrize("policy", ["error", "pad", "trim_to_shape"])
def test_fuzzed_windows(policy):
    """A random window equals NumPy's, or is refused before a kernel runs."""
    rng = np.random.default_rng(11)
    x = numbers((5, 7))
    wild = [
        0,
        1,
        -1,
        4,
        5,
        6,
        7,
        8,
        -7,
        100,
        -100,
        2**31,
        -(2**31),
        2**47,
        2**62,
        -(2**62),
        2**63 - 1,
    ]
    refused = 0
    for _ in range(300):
        start, size = (int(rng.choice(wild if rng.random() < 0.3 else wild[:11])) for _ in range(2))
        end = start + size
        legal = abs(start) <= 2**48 and 0 <= size <= 2**48
        arguments = dict(start=[start], shape=[size], axes=[0], out_of_bounds_policy=policy)
        if not legal or (policy == "error" and not 0 <= start <= end <= 5):
            refused += 1
            with pytest.raises(ValueError, match=r"slice: .*(leaves|out of range|negative)"):
                ndd.slice(x, **arguments)
            continue
        if policy == "pad" and size > 2**20:
            continue  # legal, but more memory than a test should take
        got = np.asarray(ndd.slice(x, **arguments))
        first = start if policy == "pad" else min(max(start, 0), 5)
        rows = range(first, end if policy == "pad" else min(max(end, 0), 5))
        want = [x[r] if 0 <= r < 5 else np.zeros(7, np.uint8) for r in rows]
        assert np.array_equal(got, np.array(want, np.uint8).reshape(-1, 7)), (start, size)
    assert refused > 50


# -- pad -----------------------------------------------------------------------------------------


def test_pad():
    x = images()
    for arguments in (
        {},
        dict(align=4),
        dict(align=[4, 3, 2]),
        dict(shape=[6, -1, 4]),
        dict(shape=5, align=4),
        dict(shape=[1, 1], axes=[0, 1]),
        dict(axes=[-1], shape=8),
        dict(axes=[], fill_value=2),
        dict(axis_names="WC", shape=[9, 4], fill_value=-3.5),
        dict(axis_names=""),
        dict(shape=0),
        dict(shape=per_sample([[6], [0], [-1], [2]]), axes=[1]),
        dict(align=per_sample([[1, 2, 3], [2] * 3, [3, 1, 1], [4] * 3])),
        dict(axes=per_sample([[0], [1], [2], [-1]]), align=5),
        dict(axis_names="H"),
        dict(fill_value=per_sample([1.0, 2.5, -1.0, 300.0])),
        dict(fill_value=np.float32(9)),
    ):
        check("pad", x, layout="HWC", **arguments)
    check("pad", x[0], layout="HWC")
    check("pad", x[0], shape=per_sample([[6, 8, 3], [9, 9, 9]]))
    for shape in ((1,), (2, 3), (0, 2), (2, 1, 2, 1, 2)):
        check("pad", numbers(shape), shape=[4] * len(shape), align=3, fill_value=5)


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "int32", "uint32", "int64", "uint64", "bool", "float16"]
)
def test_pad_value_is_cast_like_c(dtype):
    values = [2.9, -2.9, 300, -1, 3e9, -3e9, 1e30, -1e30, 16777217, 0.3]
    x = [np.ones(k + 1, dtype) for k in range(len(values))]
    check("pad", x, shape=[12], fill_value=per_sample(np.float32(values)), rtol=0)
