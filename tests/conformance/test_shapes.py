"""Shapes against the oracle: transpose, stack, cat, reshape, indexing, new tensors.

Everything here only moves elements, so every comparison is of bits.
"""

from __future__ import annotations

import numpy as np
import pytest

import ndd

from .geometry_data import TYPES, images, numbers
from .oracle import check, check_program, per_sample

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
    # Samples without elements lose any axis, as long as they stay without.
    for shapes, names in (
        ([(0, 3, 1)], "C"), ([(0, 3, 0)], "H"), ([(0, 3, 1)], "W"), ([(0, 3, 5)], "WC"),
        ([(0, 3, 1), (2, 1, 1)], "W"), ([(0, 3, 2), (0, 1, 1), (4, 0, 7)], "C"),
    ):  # fmt: skip
        empty = [np.zeros(s, np.float32) for s in shapes]
        check("squeeze", empty, layout="HWC", axis_names=names)
        check("squeeze", empty, layout="HWC", axes=["HWC".index(n) for n in names])
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
