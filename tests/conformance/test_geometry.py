"""Exact geometry against the oracle: values, types, layouts, per-sample arguments, modes, errors.

Everything here only moves elements, so every comparison is of bits.
"""

from __future__ import annotations

import numpy as np
import pytest

import ndd

from .modes import MODES, error_everywhere, same_everywhere
from .oracle import check, check_program, ndd_call, oracle_call, per_sample

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


# -- all element types ---------------------------------------------------------------------------

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


@pytest.mark.parametrize("op", [*MOVES, "stack", "cat", "index"])
def test_every_type(op):
    """Where the oracle knows a type, like it; else like the unsigned integer of the same size."""
    for dtype in TYPES:
        x = images(dtype)
        if op in ("stack", "cat"):
            check(op, x, x, layout="HWC", axis=1)
        elif op == "index":
            check_program(op, lambda lib, b: b.slice[::-1, -1:, 0], x, layout="HWC")
        else:
            layout, arguments = MOVES[op]
            known = dtype not in {
                "flip": ("float16", "bool"),
                "pad": ("float64",),
                "crop": ("bool",),
                "slice": ("bool",),
            }.get(op, ())
            if known:
                check(op, x, layout=layout, rtol=0, **arguments)
            elif dtype != "bool" or op == "flip":
                same_as_its_bits(op, x, layout, arguments)


def same_as_its_bits(op, x, layout, arguments):
    (got,) = ndd_call(op, x, layout=layout, **arguments)
    filled = "fill_value" in arguments
    if filled:  # compare with numbers that both types hold
        x = [np.round(a).clip(0, 255) for a in x]
        (got,) = ndd_call(op, x, layout=layout, **arguments)
        (want,) = oracle_call(op, [a.astype(np.uint8) for a in x], layout=layout, **arguments)
        assert all(np.array_equal(g, w) for g, w in zip(got.arrays, want.arrays, strict=True))
        return
    bits = BITS[x[0].itemsize]
    (want,) = oracle_call(op, [a.view(bits) for a in x], layout=layout, **arguments)
    assert (got.shapes, got.layout) == (want.shapes, want.layout)
    assert all(
        np.array_equal(g.view(bits), w) for g, w in zip(got.arrays, want.arrays, strict=True)
    )


@pytest.mark.parametrize("op", MOVES)
def test_bfloat16_moves_like_any_16_bits(op):
    layout, arguments = MOVES[op]
    arguments = {k: 0 if k == "fill_value" else v for k, v in arguments.items()}
    bits = images("uint16")
    b = ndd.reinterpret(ndd.batch(bits, layout=layout), dtype=ndd.bfloat16)
    got = getattr(ndd, op)(b, **arguments)
    (want,) = oracle_call(op, bits, layout=layout, **arguments)
    assert got.dtype is ndd.bfloat16 and got.shape == want.shapes and got.layout == want.layout
    got = ndd.reinterpret(got, dtype=ndd.uint16)
    assert all(np.array_equal(np.asarray(g), w) for g, w in zip(got, want.arrays, strict=True))


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
    """Halves, products in single precision and sums in double, at many extents."""
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
    """Any window: like NumPy, or refused before a kernel runs."""
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


# -- transpose, stack, cat -----------------------------------------------------------------------


def test_transpose():
    x = images()
    for arguments in (
        {},
        dict(perm=[0, 1, 2]),
        dict(perm=[1, 2, 0]),
        dict(perm=[2, 0, 1], transpose_layout=False),
        dict(output_layout="ABC"),
        dict(perm=[1, 0, 2], output_layout="XYZ"),
    ):
        check("transpose", x, layout="HWC", **arguments)
    check("transpose", x, perm=[1, 0, 2])
    for shape in ((), (3,), (0, 2), (1, 1), (2, 1, 3, 2, 1, 2, 1)):
        check("transpose", numbers(shape))


@pytest.mark.parametrize("op", ["stack", "cat"])
def test_joining(op):
    x = images()
    y = [np.flip(a) for a in x]
    for axis in range(-3, 4 if op == "stack" else 3):
        check(op, x, y, layout="HWC", axis=axis)
        check(op, x[0], y[0], y[0], layout="HWC", axis=axis)
    check(op, x, layout="HWC")
    check(op, x, layout=("HWC",), axis_name="W")
    check(op, x[0], [x[0]] * 3, axis=1)  # a tensor beside a batch
    check(op, x[0], x[0], layout=("HWC", "CHW"))
    check(op, *[x] * 9, axis=2)  # more than one kernel takes
    check(op, x[0], x[0], batch_size=2)
    if op == "stack":
        check(op, np.uint8(1), np.uint8(2))
        check(op, np.uint8(1), np.uint8(2), axis_name="C")
        check(op, np.zeros((0, 2)), np.zeros((0, 2)), axis=1)


def test_cat_of_different_and_of_empty_extents():
    x, y = images(), [numbers((a.shape[0], k, 3), seed=9) for k, a in enumerate(images())]
    check("cat", x, y, x, layout="HWC", axis=1)
    check("cat", y, x, layout="HWC", axis_name="W")
    check("cat", np.ones((2, 3)), np.ones((0, 5)))  # nothing fits anywhere
    check("cat", np.ones((0, 5)), np.ones((2, 3)), np.ones((4, 3)), np.ones((2, 0)))
    check("cat", [np.ones((2, 3)), np.ones((1, 0))], [np.ones((0, 3)), np.ones((2, 0))])
    both_empty = ndd.cat(np.zeros((2, 0)), np.zeros((3, 0)))
    assert both_empty.shape == (5, 0)  # upstream forgets all but the first


@pytest.mark.parametrize("op", [*MOVES, "stack", "cat", "index"])
def test_samples_without_elements(op):
    x = [numbers(s) for s in ((0, 4, 3), (3, 2, 3), (3, 0, 3), (1, 1, 3))]
    if op == "crop":
        check(op, x, layout="HWC", crop=[2, 3], out_of_bounds_policy="pad", fill_values=[1, 2, 3])
        check(op, x, layout="HWC", crop=[2, 3], out_of_bounds_policy="trim_to_shape")
    elif op in ("stack", "cat"):
        check(op, x, x, layout="HWC", axis=1)
    elif op == "index":
        check_program(op, lambda lib, b: b.slice[::-1, 1:], x, layout="HWC")
    else:
        check(op, x, layout="HWC", **MOVES[op][1])


# -- shapes --------------------------------------------------------------------------------------


def test_reshape():
    x = numbers((4, 6, 2))
    for arguments in (
        dict(shape=[8, 6]),
        dict(shape=[-1]),
        dict(shape=[2, -3, 4]),
        dict(rel_shape=[0.5, 2, 1]),
        dict(rel_shape=[0.5, 4]),
        dict(rel_shape=[1, -1]),
        dict(rel_shape=[1, 1, 1, -1]),
        dict(src_dims=[2, 0, 1]),
        dict(rel_shape=[1, 1, 1, 1], src_dims=[0, -1, 1, 2]),
        dict(rel_shape=[-1], src_dims=[1]),
        dict(shape=[6, 4, 2]),
        dict(rel_shape=[1.5, 2 / 3, 1.0]),
    ):
        check("reshape", x, layout="HWC", **arguments)
        check("reshape", x, **arguments)
    for program in (
        lambda lib, t: lib.reshape(t, layout="XYZ"),
        lambda lib, t: lib.reshape(t, layout=""),
        lambda lib, t: lib.reshape(t, shape=[48], layout="X"),
        lambda lib, t: lib.reinterpret(t, dtype=lib.uint16, layout="XYZ"),
    ):
        check_program("reshape", program, x, layout="HWC")
    check("reshape", x, np.array([12, -1], np.int64))
    check("reshape", numbers((1,)), shape=[])
    check("reshape", numbers((0, 2)), shape=[-1, 3])
    ragged = [numbers((2, 6)), numbers((5, 4)), numbers((1, 2))]
    check("reshape", ragged, layout="HW", shape=per_sample([[3, 4], [20, 1], [-1, 2]]))
    check("reshape", ragged, layout="HW", rel_shape=[2, 0.5])
    check("reshape", ragged, layout="HW", shape=[-1, 2])
    turned = ndd.reshape(x, rel_shape=[1, 1, 1], src_dims=ndd.batch([[2, 1, 0], [1, 2, 0]]))
    assert turned.shape == [
        (2, 6, 4),
        (6, 2, 4),
    ]  # upstream ignores src_dims that are not constants


def test_reinterpret():
    for source, target in (
        ("float32", "uint8"),
        ("uint8", "uint16"),
        ("int32", "float32"),
        ("int64", "int8"),
        ("uint8", "bool"),
        ("float64", "uint32"),
        ("uint8", "float64"),
    ):
        x = (
            np.abs(numbers((4, 8), source)).clip(0, 1)
            if target == "bool"
            else numbers((4, 8), source)
        )
        check("reinterpret", x, layout="HW", dtype=target)
        check("reinterpret", [x, x[:1]], layout="HW", dtype=target, shape=[-1])
    y = numbers((2, 3, 4), "float32")
    check("reinterpret", y, layout="HWC", dtype="uint8", rel_shape=[1, 1, 4])
    check("reinterpret", y, dtype="int16", shape=[-1, 4])
    check("reinterpret", y, dtype="uint8", src_dims=[1, 0, 2])
    check("reinterpret", y, layout="HWC", shape=[24])
    assert np.asarray(
        ndd.reinterpret(np.float32([1.5, -2]), dtype=ndd.uint16, shape=[4])
    ).tolist() == [
        0,
        0x3FC0,
        0,
        0xC000,
    ]


def test_squeeze_and_expand_dims():
    x = [numbers((1, 3, 1, 2)), numbers((1, 1, 1, 5))]
    for arguments in (
        dict(axes=[0]),
        dict(axes=[2, 0]),
        dict(axis_names="AC"),
        dict(axes=[]),
        dict(axis_names=""),
    ):
        check("squeeze", x, layout="ABCD", **arguments)
    check("squeeze", x, axes=[0, 2])
    check("squeeze", numbers((1,)), layout="X", axes=[0])
    assert (
        ndd.squeeze(ndd.batch(x, layout="ABCD"), axes=[-2, -4]).layout == "BD"
    )  # upstream: no effect
    y = images()
    for arguments in (
        dict(axes=[0]),
        dict(axes=[3, 1]),
        dict(axes=[4, 0, 2], new_axis_names="XYZ"),
        dict(axes=[]),
        dict(axes=[1], new_axis_names="N"),
        dict(axes=2),
    ):
        check("expand_dims", y, layout="HWC", **arguments)
    check("expand_dims", y, axes=[1])
    check("expand_dims", np.uint8(3), axes=[0], new_axis_names="C")


# -- indexing ------------------------------------------------------------------------------------

KEYS = [
    0,
    -1,
    slice(None),
    slice(1, None),
    slice(None, None, -1),
    slice(None, None, 2),
    slice(-3, -1),
    slice(9, 2),
    slice(3, 0, -2),
    slice(0, 100),
    slice(-100, 1),
    Ellipsis,
    (),
    (Ellipsis, 0),
    (0, Ellipsis),
    (slice(1), -1),
    (0, 1, 2),
    (slice(None), slice(None, None, -1)),
    (Ellipsis, slice(1, 2), 0),
    (None, 0),
    True,
    np.int64(1),
    (0, slice(5, 1, -1)),
    slice(2, 2),
    slice(None, -1, 3),
    np.uint8(1),
]


def test_indexing():
    x = numbers((5, 7, 3))
    for k, key in enumerate(KEYS):
        program = lambda lib, t, key=key: t[key]
        check_program("index", program, x, layout="HWC")
        check_program("index", lambda lib, b, key=key: b.slice[key], [x, x[:2]], layout="HWC")
        assert k < 30 and program(None, ndd.tensor(x)).layout is None
    for key in (slice(4, 1, 2), slice(1, 4, -2)):  # which crash the oracle
        assert ndd.tensor(x)[key].shape == x[key].shape
    for key in (
        slice(2**70),
        slice(-(2**70), 2**70),
        slice(None, None, 2**70),
        slice(None, None, -(2**70)),
        slice(3, None, -(2**63)),
    ):
        assert np.array_equal(np.asarray(ndd.tensor(x)[key]), x[key])
        assert np.array_equal(np.asarray(ndd.tensor(x)[::-1][key]), x[::-1][key])


def test_indexing_with_tensors_and_batches():
    x = images()
    bounds = lambda lib, v: lib.batch([np.array(e, np.int32) for e in v])
    for program in (
        lambda lib, b: b.slice[bounds(lib, [1, 0, -1, 2])],
        lambda lib, b: b.slice[bounds(lib, [1, 0, 2, -1]) :, : bounds(lib, [3, 1, 2, -1])],
        lambda lib, b: b.slice[:: bounds(lib, [1, -1, 2, -2]), lib.tensor(0)],
        lambda lib, b: b.slice[lib.tensor(np.float32(0.4)), ...],
        lambda lib, b: b.tensors[0][lib.tensor(np.int16(1)) : lib.tensor(4)],
        lambda lib, b: b.slice[: bounds(lib, [9, 0, 1, -9])],
    ):
        check_program("index", program, x, layout="HWC")
    shapes = ndd.batch([np.array(a.shape) for a in x])
    half = ndd.batch(x).slice[: shapes.slice[0] // 2]
    assert half.shape == [(a.shape[0] // 2, *a.shape[1:]) for a in x]


def test_iteration():
    x = numbers((3, 2))
    rows = list(ndd.tensor(x, layout="HW"))
    assert [np.asarray(r).tolist() for r in rows] == x.tolist() and rows[0].layout == "W"
    with pytest.raises(TypeError, match="0-dimensional"):
        iter(ndd.tensor(1))


# -- new tensors ---------------------------------------------------------------------------------


def test_constants():
    for op in ("zeros", "ones"):
        check(op)
        for dtype in TYPES:
            check(op, shape=[2, 3], dtype=dtype)
        check(op, shape=[2, 0, 3])
        check(op, shape=[2], batch_size=3)
        check(op, shape=per_sample([[2, 3], [1, 1]]), dtype="float16")
        check_program(op, lambda lib, op=op: getattr(lib, op)(shape=[1, 2], layout="HW"))
        check(op, shape=4)
        x = images("int16")
        check(f"{op}_like", x, layout="HWC")
        check(f"{op}_like", x[0], layout="HWC", dtype="float32")
    check("full", np.float32(2.5), shape=[2, 3])
    check_program(
        "full", lambda lib, v: lib.full(v, shape=[2, 3], layout="HW"), np.array([1, 2, 3], np.int16)
    )
    check("full", np.array([[1], [2]], np.uint8), shape=[4, 2, 3])
    check("full", [np.float32(1), np.float32(2)], shape=per_sample([[2], [3]]))
    check("full", np.uint8(3), shape=per_sample([[2, 1], [3, 4]]))
    check("full_like", images(), np.float32(2.5), layout=("HWC", None))
    check("full_like", images()[0], np.array([1.5, -2, 300], np.float32), layout=("HWC", None))
    for dtype in (ndd.bfloat16, ndd.float16):
        assert np.asarray(ndd.ones(shape=[2], dtype=dtype)).tolist() == [1.0, 1.0]


# -- random programs -----------------------------------------------------------------------------


def test_random_arguments_agree_and_fail_alike():
    """What the oracle accepts we accept, with the same result; what it refuses we refuse."""
    rng = np.random.default_rng(23)
    pick = lambda *options: options[rng.integers(len(options))]
    accepted = refused = 0
    for _ in range(250):
        layout = pick("HWC", "CHW", None)
        extents = rng.integers(1, 7, 3)
        extents[0 if layout == "CHW" else 2] = 5  # few channels would each be a kernel of their own
        shape = tuple(extents.tolist())
        op = pick("crop", "slice", "pad", "reshape", "transpose", "expand_dims")
        if op == "crop":
            arguments = dict(
                crop=[int(v) for v in rng.integers(1, 7, pick(2, 2, 2, 3, 1))],
                crop_pos_x=pick(0.5, 0.25, 1.0, 1.5),
                out_of_bounds_policy=pick("error", "pad"),
            )
        elif op == "slice":
            k = pick(1, 2, 2, 3)
            arguments = dict(
                start=[int(v) for v in rng.integers(-1, 4, k)],
                end=[int(v) for v in rng.integers(0, 7, k)],
                axes=pick([0, 1], [2], [1, -1], [0, 3]),
                out_of_bounds_policy=pick("error", "pad", "trim_to_shape"),
            )
        elif op == "pad":
            arguments = dict(
                shape=[int(v) for v in rng.integers(-1, 8, pick(1, 2, 3))],
                align=int(rng.integers(0, 4)),
                axes=pick([0, 1], [2], [0, 1, 2]),
            )
        elif op == "reshape":
            arguments = dict(
                shape=[int(v) for v in rng.permutation([*shape, 1, -1])[: pick(2, 3, 4)]]
            )
        elif op == "transpose":
            arguments = dict(perm=[int(v) for v in rng.permutation(pick(3, 3, 3, 2))])
        else:
            arguments = dict(axes=[int(v) for v in rng.choice(5, pick(1, 2), replace=False)])
        x = numbers(shape)
        try:
            (want,) = oracle_call(op, x, layout=layout, **arguments)
        except (RuntimeError, ValueError, TypeError):
            refused += 1
            with pytest.raises((ValueError, TypeError), match=f"{op}: "):
                ndd_call(op, x, layout=layout, **arguments)
            continue
        accepted += 1
        (got,) = ndd_call(op, x, layout=layout, **arguments)
        where = (op, shape, layout, arguments)
        assert (got.shapes, got.layout, got.dtype) == (want.shapes, want.layout, want.dtype), where
        assert np.array_equal(got.arrays[0], want.arrays[0]), where
    assert accepted > 100 and refused > 30


# -- modes ---------------------------------------------------------------------------------------

PROGRAMS = {
    "flip": lambda x: ndd.flip(x, horizontal=ndd.batch([1, 0, 1, 0]), vertical=1),
    "crop": lambda x: ndd.crop(x, crop=[3, 3], out_of_bounds_policy="pad", fill_values=[1, 2, 3]),
    "slice": lambda x: ndd.slice(x, rel_start=[0.1, 0.2], rel_end=[0.9, 0.7], dtype=ndd.float32),
    "pad": lambda x: ndd.pad(x, fill_value=ndd.batch([1.0, 2.0, 3.0, 4.0])),
    "transpose": lambda x: ndd.transpose(x, perm=[2, 1, 0]),
    "stack": lambda x: ndd.stack(x, ndd.flip(x), axis=2),
    "cat": lambda x: ndd.cat(x, x.slice[::-1], x, axis=0),
    "reshape": lambda x: ndd.reshape(ndd.flip(x), shape=[-1]),
    "reinterpret": lambda x: ndd.reinterpret(ndd.cast(x, dtype=ndd.int16), dtype=ndd.uint8),
    "squeeze": lambda x: ndd.squeeze(ndd.expand_dims(ndd.flip(x), axes=[1]), axes=[1]),
    "index": lambda x: x.slice[::-1, : ndd.batch([1, 1, 3, 2]), 0],
    "full_like": lambda x: ndd.full_like(x, 3) + ndd.zeros_like(x),
    "chain": lambda x: ndd.crop(
        ndd.pad(
            ndd.flip(ndd.transpose(x, perm=[1, 0, 2], transpose_layout=False), vertical=1),
            axis_names="HW",
            align=4,
        ),
        crop=[3, 2],
    ).slice[1:, ::-1],
    "window of cat": lambda x: ndd.slice(
        ndd.cat(x, ndd.pad(x, axes=[0], align=3, fill_value=9), axis=0),
        start=[-1, 1],
        shape=[4, 9],
        out_of_bounds_policy="pad",
        fill_values=[5],
    ),
    "samples": lambda x: ndd.flip(x).select([3, 0]) if isinstance(x, ndd.Batch) else x,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_bits_and_metadata_in_all_modes(name):
    program = PROGRAMS[name]
    x = ndd.batch(images(), layout="HWC")
    first = same_everywhere(lambda: program(x))
    with ndd.EvalMode.deferred:
        pending = program(x)
        assert (pending.shape, str(pending.dtype), pending.layout) == (
            first[0].shapes,
            first[0].dtype,
            first[0].layout,
        )
    arrays = [a.copy() for a in images()]
    wrapped = same_everywhere(lambda: program(ndd.as_batch(arrays, layout="HWC")))
    assert all(map(np.array_equal, first[0].arrays, wrapped[0].arrays))


@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - {"samples"}))
def test_the_simulated_gpu_gives_the_same_bits(name, monkeypatch):
    monkeypatch.setenv("NDD_GPU", "simulate")
    x = ndd.batch(images(), layout="HWC")
    want = PROGRAMS[name](x)
    got = PROGRAMS[name](x.gpu())
    assert got.device.device_type == "gpu" and (got.shape, got.layout) == (want.shape, want.layout)
    for g, w in zip(got.cpu(), want, strict=True):
        assert np.array_equal(np.asarray(g), np.asarray(w))


# -- errors --------------------------------------------------------------------------------------

HWC = ndd.tensor(numbers((4, 5, 3)), layout="HWC")
PAIR = ndd.batch([numbers((4, 5, 3)), numbers((2, 2, 3))], layout="HWC")
PLAIN = ndd.tensor(numbers((4, 5)))
NAN = float("nan")

ERRORS = [
    # rank and layout
    (ValueError, "number of dimensions 2 does not match", lambda: ndd.flip(PLAIN)),
    (
        ValueError,
        "layout 'HW' does not match any of the allowed",
        lambda: ndd.flip(ndd.tensor([[1]], layout="HW")),
    ),
    (ValueError, "number of dimensions 2 does not match", lambda: ndd.crop(PLAIN, crop=[1, 1])),
    (ValueError, "a scalar cannot be padded", lambda: ndd.pad(ndd.tensor(1))),
    (
        ValueError,
        "axis 'W' is not present in the layout of the input (none)",
        lambda: ndd.slice(ndd.tensor([1]), start=[0], end=[1]),
    ),
    (
        ValueError,
        "axis 'Q' is not present in the layout of the input ('HWC')",
        lambda: ndd.slice(HWC, start=[0], end=[1], axis_names="Q"),
    ),
    (ValueError, "axis 'W' is not present", lambda: ndd.pad(PLAIN, axis_names="W")),
    (ValueError, "axis 'N' is not present", lambda: ndd.squeeze(HWC, axis_names="N")),
    (ValueError, "axis 'N' is not present", lambda: ndd.cat(HWC, HWC, axis_name="N")),
    (ValueError, "scalars cannot be joined", lambda: ndd.cat(ndd.tensor(1), ndd.tensor(2))),
    # types
    (
        TypeError,
        "element type bool is not supported",
        lambda: ndd.crop(ndd.cast(HWC, dtype=ndd.bool), crop=[1, 1]),
    ),
    (
        TypeError,
        "element type bool is not supported",
        lambda: ndd.slice(ndd.tensor([True]), start=[0], end=[1], axes=[0]),
    ),
    (
        ValueError,
        "one type and rank: input 0 is u8 3-D, input 1 is i32 3-D",
        lambda: ndd.stack(HWC, ndd.cast(HWC, dtype=ndd.int32)),
    ),
    (
        ValueError,
        "one type and rank: input 0 is u8 3-D, input 1 is u8 2-D",
        lambda: ndd.cat(HWC, PLAIN),
    ),
    (TypeError, "None", lambda: ndd.flip(None)),
    (TypeError, "got str", lambda: ndd.flip("image")),
    # shapes
    (
        ValueError,
        "sample 0 of input 0 has (4, 5, 3), of input 1 (4, 4, 3)",
        lambda: ndd.stack(HWC, HWC[:, :4]),
    ),
    (
        ValueError,
        "differ only along axis 0: sample 0 of input 0 has shape (4, 5, 3), of input 1 (4, 4, 3)",
        lambda: ndd.cat(HWC, HWC[:, :4]),
    ),
    (ValueError, "do not fill the shape (7, 9)", lambda: ndd.reshape(HWC, shape=[7, 9])),
    (ValueError, "do not fill the shape", lambda: ndd.reshape(HWC, shape=[7, -1])),
    (
        ValueError,
        "do not fill the shape",
        lambda: ndd.reshape(ndd.zeros(shape=[0]), shape=[2**32, 2**32]),
    ),
    (ValueError, "do not fill the shape", lambda: ndd.reshape(ndd.zeros(shape=[0]), shape=[0, -1])),
    (ValueError, "only one extent may be negative", lambda: ndd.reshape(HWC, shape=[-1, -1])),
    (ValueError, "`src_dims` must lie in [-1, 2]", lambda: ndd.reshape(HWC, src_dims=[0, 3])),
    (
        ValueError,
        "`src_dims` has 1 values, `rel_shape` 2",
        lambda: ndd.reshape(HWC, src_dims=[0], rel_shape=[1, 1]),
    ),
    (
        ValueError,
        "`rel_shape` has 5 values, the input has 3",
        lambda: ndd.reshape(HWC, rel_shape=[1] * 5),
    ),
    (ValueError, "exclude each other", lambda: ndd.reshape(HWC, shape=[60], rel_shape=[1])),
    (ValueError, "nothing to do", lambda: ndd.reshape(HWC)),
    (ValueError, "nothing to do", lambda: ndd.reinterpret(HWC)),
    (
        ValueError,
        "layout 'AB' does not fit a shape of 1",
        lambda: ndd.reshape(HWC, shape=[60], layout="AB"),
    ),
    (
        ValueError,
        "innermost extent 3 x 1 bytes does not divide",
        lambda: ndd.reinterpret(HWC, dtype=ndd.int16),
    ),
    (
        ValueError,
        "a scalar cannot become another size",
        lambda: ndd.reinterpret(ndd.tensor(1), dtype=ndd.int16),
    ),
    (ValueError, "axis 0 of sample 0 has extent 4, not 1", lambda: ndd.squeeze(HWC, axes=[0])),
    (ValueError, "give either `axes` or `axis_names`", lambda: ndd.squeeze(HWC)),
    (
        ValueError,
        "axis 3 is out of range [-3, 2] for 3-D input",
        lambda: ndd.squeeze(HWC, axes=[3]),
    ),
    (ValueError, "must not be negative, got (-1,)", lambda: ndd.expand_dims(HWC, axes=[-1])),
    (ValueError, "must differ", lambda: ndd.expand_dims(HWC, axes=[0, 0])),
    (ValueError, "leave gaps", lambda: ndd.expand_dims(HWC, axes=[9])),
    (ValueError, "must name 1 axes", lambda: ndd.expand_dims(HWC, axes=[0], new_axis_names="AB")),
    (
        ValueError,
        "needs an input with a layout",
        lambda: ndd.expand_dims(PLAIN, axes=[0], new_axis_names="A"),
    ),
    (
        ValueError,
        "must be a permutation of the 3 axes, got (0, 1)",
        lambda: ndd.transpose(HWC, perm=[0, 1]),
    ),
    (
        ValueError,
        "must be a permutation of the 3 axes, got (0, 1, 1)",
        lambda: ndd.transpose(HWC, perm=[0, 1, 1]),
    ),
    (
        ValueError,
        "`output_layout` 'AB' does not fit 3 axes",
        lambda: ndd.transpose(HWC, output_layout="AB"),
    ),
    (
        ValueError,
        "`axis` must lie in [-3, 3] for 3-D inputs, got 4",
        lambda: ndd.stack(HWC, HWC, axis=4),
    ),
    (
        ValueError,
        "`axis_name` must be one letter, got 'AB'",
        lambda: ndd.stack(HWC, HWC, axis_name="AB"),
    ),
    (ValueError, "axis 3 is out of range", lambda: ndd.cat(HWC, HWC, axis=3)),
    (ValueError, "exclude each other", lambda: ndd.cat(HWC, HWC, axis=0, axis_name="H")),
    (ValueError, "must not be negative", lambda: ndd.zeros(shape=[2, -1])),
    (
        ValueError,
        "the result is too large: shape (1000000, 1000000, 1000000)",
        lambda: ndd.ones(shape=[10**6] * 3),
    ),
    (
        ValueError,
        "layout 'HWC' has 3 axes, but the data has 1",
        lambda: ndd.zeros(shape=[2], layout="HWC"),
    ),
    (ValueError, "cannot be broadcast to (4,)", lambda: ndd.full(ndd.tensor([1, 2]), shape=[4])),
    (ValueError, "more than the shape's 0", lambda: ndd.full(ndd.tensor([1, 2]))),
    # number of values and of samples
    (ValueError, "`crop` must have 2 or 3 values, got 1", lambda: ndd.crop(HWC, crop=[1])),
    (ValueError, "must be given together", lambda: ndd.crop(HWC, crop_w=1)),
    (ValueError, "cannot be combined", lambda: ndd.crop(HWC, crop=[1, 1], crop_w=1, crop_h=1)),
    (ValueError, "`start` has 3 values for 2 axes", lambda: ndd.slice(HWC, start=[0, 0, 0])),
    (ValueError, "`shape` has 2 values for 3 axes", lambda: ndd.pad(HWC, shape=[9, 9])),
    (ValueError, "`anchor` needs 2 values, got 1", lambda: ndd.slice(HWC, [0.0], [1.0])),
    (ValueError, "needs a positional shape", lambda: ndd.slice(HWC, [0.0, 0.0])),
    (ValueError, "cannot be combined", lambda: ndd.slice(HWC, [0, 0], [1, 1], start=[0, 0])),
    (ValueError, "bounds are missing", lambda: ndd.slice(HWC)),
    (ValueError, "exclude each other", lambda: ndd.slice(HWC, start=[0, 0], rel_start=[0, 0])),
    (ValueError, "exclude each other", lambda: ndd.slice(HWC, end=[1, 1], shape=[1, 1])),
    (ValueError, "exclude each other", lambda: ndd.slice(HWC, end=[1], axes=[0], axis_names="H")),
    (TypeError, "both be integers or both be floats", lambda: ndd.slice(HWC, [0, 0], [1.0, 1.0])),
    (ValueError, "axis -3 occurs more than once", lambda: ndd.slice(HWC, start=[0], axes=[0, -3])),
    (ValueError, "axis 3 is out of range", lambda: ndd.pad(HWC, axes=[3])),
    (
        ValueError,
        "Inconsistent batch size: 2 != 3",
        lambda: ndd.flip(PAIR, horizontal=ndd.batch([1, 0, 1])),
    ),
    (ValueError, "Inconsistent batch size: 2 != 3", lambda: ndd.stack(PAIR, ndd.batch([1, 0, 1]))),
    (TypeError, "must be a number, got a list", lambda: ndd.flip(HWC, horizontal=[1, 0])),
    (
        ValueError,
        "one number per sample, got shape (2,)",
        lambda: ndd.flip(HWC, horizontal=ndd.tensor([1, 0])),
    ),
    (ValueError, "must be positive, got 0", lambda: ndd.pad(HWC, align=0)),
    (
        ValueError,
        "`fill_values` has 2 values, but sample 0 of the result has 3 channels",
        lambda: ndd.crop(HWC, crop=[1, 1], out_of_bounds_policy="pad", fill_values=[1, 2]),
    ),
    (
        ValueError,
        "no channel axis C",
        lambda: ndd.slice(PLAIN, start=[0, 0], out_of_bounds_policy="pad", fill_values=[1, 2]),
    ),
    (TypeError, "at least one input is needed", lambda: ndd.stack()),
    (
        TypeError,
        "must be the same for all samples, got a Batch",
        lambda: ndd.squeeze(PAIR, axes=ndd.batch([0, 1])),
    ),
    # windows
    (
        ValueError,
        "sample 1 leaves the input: shape (2, 2, 3), start (-1, 0, 0), size (3, 2, 3)",
        lambda: ndd.crop(PAIR, crop=[3, 2]),
    ),
    (
        ValueError,
        "the window of sample 0 leaves the input",
        lambda: ndd.slice(HWC, start=[0, 0], end=[6, 1]),
    ),
    (
        ValueError,
        "the end of the window lies before its start in sample 0: start (3.0, 0.0), end (2.0, 5.0)",
        lambda: ndd.slice(HWC, start=[3, 0], end=[2, 5]),
    ),
    (
        ValueError,
        "`shape` must not be negative, got -1",
        lambda: ndd.slice(HWC, start=[0, 0], shape=[-1, 1]),
    ),
    (
        ValueError,
        "`crop_pos_x` must lie in [0, 1], got 1.5 for sample 1",
        lambda: ndd.crop(PAIR, crop=[1, 1], crop_pos_x=ndd.batch([0.5, 1.5])),
    ),
    (
        ValueError,
        "`crop_pos_y` must lie in [0, 1], got nan",
        lambda: ndd.crop(HWC, crop=[1, 1], crop_pos_y=NAN),
    ),
    (
        ValueError,
        "must be one of error, pad, trim_to_shape, got 'clamp'",
        lambda: ndd.crop(HWC, crop=[1, 1], out_of_bounds_policy="clamp"),
    ),
    (
        ValueError,
        "`rounding` must be one of round, truncate, got 'up'",
        lambda: ndd.crop(HWC, crop=[1, 1], rounding="up"),
    ),
    (
        ValueError,
        "`crop` is out of range: nan",
        lambda: ndd.crop(HWC, crop=[NAN, 1], out_of_bounds_policy="pad"),
    ),
    (
        ValueError,
        "`crop` is out of range: inf",
        lambda: ndd.crop(HWC, crop=[1e300, 1], out_of_bounds_policy="pad"),
    ),
    (
        ValueError,
        "`rel_start` is out of range: nan",
        lambda: ndd.slice(HWC, rel_start=[NAN, 0], out_of_bounds_policy="pad"),
    ),
    (
        ValueError,
        "`rel_end` is out of range: inf",
        lambda: ndd.slice(HWC, rel_end=[float("inf"), 0], out_of_bounds_policy="trim_to_shape"),
    ),
    (
        ValueError,
        "`anchor` is out of range: nan",
        lambda: ndd.slice(HWC, [NAN, 0.0], [1.0, 1.0], out_of_bounds_policy="pad"),
    ),
    (
        ValueError,
        "`start` is out of range: 4.61169e+18",
        lambda: ndd.slice(HWC, start=[2**62, 0], shape=[2**62, 1], out_of_bounds_policy="pad"),
    ),
    (
        ValueError,
        "must be a 64-bit integer, got 1180591620717411303424",
        lambda: ndd.slice(HWC, start=[2**70, 0]),
    ),
    (
        ValueError,
        "`start` must be a 64-bit integer, got nan",
        lambda: ndd.slice(HWC, start=ndd.tensor([NAN, 0.0])),
    ),
    (
        ValueError,
        "`start` must be a 64-bit integer, got 1.84467e+19",
        lambda: ndd.slice(HWC, start=np.array([2**64 - 1, 0], np.uint64)),
    ),
    (
        ValueError,
        "the result is too large",
        lambda: ndd.slice(HWC, start=[0, 0], shape=[2**40, 2**40], out_of_bounds_policy="pad"),
    ),
    (ValueError, "the result is too large", lambda: ndd.pad(HWC, shape=[2**31, 2**31, 2**31])),
    (ValueError, "`align` is out of range", lambda: ndd.pad(HWC, align=2**62)),
    (
        ValueError,
        "`rel_shape` is out of range: nan",
        lambda: ndd.reshape(HWC, rel_shape=[NAN, 1, 1]),
    ),
    # indexing
    (
        IndexError,
        "index 4 is out of range for axis 0 of extent 4 (sample 0, shape (4, 5, 3))",
        lambda: HWC[4],
    ),
    (IndexError, "index -6 is out of range for axis 1 of extent 5", lambda: HWC[0, -6]),
    (
        IndexError,
        "index 2 is out of range for axis 0 of extent 2 (sample 1, shape (2, 2, 3))",
        lambda: PAIR.slice[2],
    ),
    (IndexError, "is out of range for axis 0", lambda: HWC[2**70]),
    (IndexError, "too many indices: 4 for 3 dimensions", lambda: HWC[0, 0, 0, 0]),
    (IndexError, "only one Ellipsis is allowed", lambda: HWC[..., 0, ...]),
    (IndexError, "a scalar cannot be indexed", lambda: ndd.tensor(1)[0]),
    (ValueError, "a slice step cannot be zero", lambda: HWC[::0]),
    (
        TypeError,
        "an index must be an integer, a slice or a scalar tensor, got list",
        lambda: HWC[[0, 1]],
    ),
    (
        TypeError,
        "an index must be an integer, a slice or a scalar tensor, got str",
        lambda: HWC["H"],
    ),
    (
        TypeError,
        "an index tensor must be a scalar, got 1 dimensions",
        lambda: HWC[ndd.tensor([0, 1])],
    ),
    (TypeError, "a Tensor cannot be indexed with a Batch", lambda: HWC[ndd.batch([0, 1])]),
    (ValueError, "Inconsistent batch size: 2 != 3", lambda: PAIR.slice[ndd.batch([0, 1, 0])]),
    (ValueError, "must be a 64-bit integer, got nan", lambda: HWC[ndd.tensor(NAN)]),
]


@pytest.mark.parametrize("case", range(len(ERRORS)), ids=lambda k: f"{k}-{ERRORS[k][1][:40]}")
def test_errors(case):
    kind, text, program = ERRORS[case]
    error_everywhere(kind, text, program)
    for mode in MODES:  # and the next call works
        with mode:
            assert np.asarray(ndd.flip(HWC)[0, 0]).tolist() == np.asarray(HWC)[0, -1].tolist()


def test_python_reports_wrong_names_itself():
    for program, text in (
        (lambda: ndd.flip(), "missing 1 required positional argument: 'input'"),
        (lambda: ndd.flip(HWC, sideways=1), "unexpected keyword argument 'sideways'"),
        (lambda: ndd.flip(HWC, 1), "takes 1 positional argument"),
    ):
        with pytest.raises(TypeError, match=text):
            program()
