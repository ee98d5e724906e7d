"""Windows that leave their input, and windows along different axes in each sample."""

from __future__ import annotations

import numpy as np
import pytest

import ndd
from tests.helpers import arrays, kernels, nothing_compiled, samples

from .modes import error_everywhere, same_everywhere, same_on_the_gpu
from .oracle import check, ndd_call, oracle_call, per_sample

FILLS = ("constant", "const", "pad", "fill")
BORDERS = (
    "clamp", "edge", "reflect", "reflect_1001", "reflect1001", "reflect_101", "reflect101", "wrap",
    "1001", "101",
)  # fmt: skip
SHAPES = [(5, 7, 3), (1, 1, 3), (4, 2, 3)]
DTYPES = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_crop(dtype):
    x = samples(SHAPES, np.dtype(dtype).type)
    for border in BORDERS:
        check("crop", x, layout="HWC", crop=[9.0, 12.0], out_of_bounds_policy=border)


@pytest.mark.parametrize("border", (*FILLS, *BORDERS))
def test_positions_and_sizes(border):
    x = samples(SHAPES)
    check(
        "crop", x, layout="HWC", out_of_bounds_policy=border,
        crop=per_sample([[3.0, 3.0], [4.0, 30.0], [1.0, 9.0]]),
        crop_pos_x=per_sample([0.0, 0.7, 1.0]), crop_pos_y=per_sample([1.0, 0.2, 0.5]),
    )  # fmt: skip
    check("crop", x, layout="HWC", crop=[2.0, 40.0], out_of_bounds_policy=border, dtype="float32")
    for start in (-23, -1, 0, 2, 30):  # more than a whole image away, too
        rows = per_sample([[start, 0], [0, start], [start, start]])
        shape = per_sample([[6, 0], [1, 5], [8, 3]])
        check("slice", x, layout="HWC", axes=[0, 1], start=rows, shape=shape,
              out_of_bounds_policy=border)  # fmt: skip


def test_names_in_any_case():
    (x,) = samples([(5,)], np.float32)
    for name in ("Reflect", "WRAP", "Constant"):
        check("slice", x, axes=[0], start=[-2], shape=[6], out_of_bounds_policy=name)


@pytest.mark.parametrize("layout", ["CHW", "FHWC", "DHWC", "CFHW"])
def test_layouts(layout):
    extents = {"F": 3, "C": 2, "D": 4, "H": 5, "W": 6}
    x = samples([tuple(extents[c] for c in layout)], np.uint8)
    for border in ("clamp", "reflect", "reflect_101", "wrap"):
        check("crop", x, layout=layout, crop=[8.0, 9.0], out_of_bounds_policy=border)
        check("crop", x, layout=layout, crop=[6.0, 8.0, 9.0], out_of_bounds_policy=border)
        # Channels leave the input as well.
        check("slice", x, layout=layout, axis_names="C", start=[-1], shape=[5],
              out_of_bounds_policy=border)  # fmt: skip


def test_fill_values():
    x = samples(SHAPES)
    for name in FILLS:
        for fill in ([9.0], [9.0, 8.0, 7.0]):
            check("crop", x, layout="HWC", crop=[9.0, 12.0], out_of_bounds_policy=name,
                  fill_values=fill)  # fmt: skip
        check("crop_mirror_normalize", x, layout="HWC", crop=[9.0, 12.0], mirror=1,
              out_of_bounds_policy=name, fill_values=[9.0], mean=[3.0], pad_output=True)  # fmt: skip
    # Without effect on other borders.
    check("crop", x, layout="HWC", crop=[9.0, 12.0], out_of_bounds_policy="edge",
          fill_values=[9.0, 8.0])  # fmt: skip


def chain(x):
    y = ndd.crop(
        ndd.brightness(x, brightness=1.5), crop=[12, 9], out_of_bounds_policy="reflect_101"
    )
    return ndd.slice(y + 1, start=[-3, 2], shape=[20, 30], out_of_bounds_policy="wrap")


def test_same_bits_in_all_modes():
    same_everywhere(lambda: chain(ndd.batch(samples(SHAPES), layout="HWC")))


@pytest.mark.gpu
def test_same_bits_on_the_gpu():
    same_on_the_gpu(chain, samples(SHAPES), "HWC")


def test_borders_fuse_and_compile_once():
    with ndd.EvalMode.deferred:
        x = ndd.batch(samples(SHAPES), layout="HWC")
        # What comes before is computed where the border says, once for every element.
        y = ndd.color_twist(ndd.flip(x), hue=30.0) * 0.5 + ndd.cast(x, dtype=ndd.float32)
        y = ndd.crop(y, crop=[9, 9], out_of_bounds_policy="clamp")
        assert kernels(y * 2.0) == 1
    for size in ([3, 4], [20, 7]):
        found = ndd.crop(x, crop=size, out_of_bounds_policy="clamp").evaluate()
        with nothing_compiled():
            found = ndd.crop(x, crop=[size[1], 40], out_of_bounds_policy="clamp").evaluate()
        assert found.shape[0] == (size[1], 40, 3)


def test_border_errors():
    empty = ndd.zeros(shape=[0, 4, 3], dtype=ndd.uint8, layout="HWC")
    error_everywhere(
        ValueError, "sample 0 of shape (0, 4, 3) has no values that could be repeated in a window "
        "of shape (2, 2, 3)",
        lambda: ndd.crop(empty, crop=[2, 2], out_of_bounds_policy="edge"),
    )  # fmt: skip
    error_everywhere(
        ValueError, "must be one of error, constant, const, pad, fill, trim_to_shape, clamp, edge, "
        "reflect, reflect_1001, reflect1001, 1001, reflect_101, reflect101, 101, wrap, got 'mirror'",
        lambda: ndd.slice(empty, start=[0], shape=[1], out_of_bounds_policy="mirror"),
    )  # fmt: skip
    # Nothing is read for an empty window.
    none = ndd.slice(empty, axes=[1], start=[-2], shape=[9], out_of_bounds_policy="wrap")
    assert none.shape == (0, 9, 3)


# -- axes per sample -----------------------------------------------------------------------------

PLANES = [(3, 4), (5, 2), (2, 3)]
AXES = {
    "different numbers": [[0], [0, 1], [1]],
    "empty": [[], [0, 1], [1]],
    "all empty": [[], [], []],
    "negative": [[-1], [-2], [1]],
    "negative and different": [[-1], [-1, -2], []],
}


def matching(axes, values):
    """As many of the values as a sample has axes; all of them if it has none."""
    return per_sample([np.array(values)[: len(a) or None] for a in axes])


@pytest.mark.parametrize("name", AXES)
def test_pad_axes(name):
    axes = AXES[name]
    for dtype in (np.int32, np.float32):
        x, given = samples(PLANES, dtype), per_sample(axes, np.int32)
        check("pad", x, axes=given)
        check("pad", x, axes=given, fill_value=3.0, shape=matching(axes, [7, -1]))
        check("pad", x, axes=given, align=matching(axes, [4, 5]), shape=matching(axes, [1, 1]))
        check("pad", x, axes=given, shape=[6])


@pytest.mark.parametrize("name", AXES)
def test_slice_axes(name):
    axes = AXES[name]
    x, given = samples(PLANES, np.int32), per_sample(axes, np.int32)
    start, shape = matching(axes, [1, 0]), matching(axes, [1, 2])
    check("slice", x, axes=given, start=start)
    check("slice", x, axes=given, start=start, shape=shape)
    check("slice", x, axes=given, start=start, shape=matching(axes, [5, 6]),
          out_of_bounds_policy="reflect")  # fmt: skip
    relative = matching(axes, [0.25, 0.5])
    check("slice", x, axes=given, rel_start=relative, rel_shape=relative)
    check("slice", x, axes=given, end=matching(axes, [2, 1]))


def test_positional_bounds_of_different_axes():
    axes = AXES["different numbers"]
    x = samples(PLANES, np.int32)
    bounds = [[np.array(v, np.int32)[: len(a)] for a in axes] for v in ([1, 0], [1, 2])]
    for mode in (0, 1):
        kind = (np.int32, np.float32)[mode]
        anchor, shape = ([b.astype(kind) for b in part] for part in bounds)
        options = dict(normalized_anchor=False, normalized_shape=False)
        want = oracle_call("slice", x, anchor, shape, axes=per_sample(axes), **options)
        got = ndd_call("slice", x, anchor, shape, axes=per_sample(axes), **options)
        for a, b in zip(got[0].arrays, want[0].arrays, strict=True):
            np.testing.assert_array_equal(a, b)


def test_empty_axes_and_bounds():
    x = samples(PLANES, np.int32)
    check("slice", x, axes=[], start=[1, 0])
    check("slice", x, axes=per_sample([[], [0, 1], [1]], np.int32),
          start=per_sample([[], [1, 1], [1]], np.int32))  # fmt: skip
    check("pad", x, axes=[])


def by_axes(x):
    axes = ndd.batch([[0], [0, 1], [1]])
    y = ndd.pad(x, axes=axes, fill_value=3.0)
    return ndd.slice(y, axes=axes, start=ndd.batch([[1], [1, 0], [1]])) + 1


def test_axes_in_all_modes():
    same_everywhere(lambda: by_axes(ndd.batch(samples(PLANES, np.int32))))


def test_axes_errors():
    x = ndd.batch(samples(PLANES, np.int32))
    axes = ndd.batch([[0], [0, 1], [1]])
    error_everywhere(
        ValueError, "`start` of sample 1 has 3 values for 2 axes",
        lambda: ndd.slice(x, axes=axes, start=ndd.batch([[1], [1, 1, 1], [1]])),
    )  # fmt: skip
    error_everywhere(
        ValueError, "`shape` of sample 0 has 2 values for 1 axes",
        lambda: ndd.pad(x, axes=axes, shape=[4, 5]),
    )  # fmt: skip
    error_everywhere(
        ValueError, "axis 2 is out of range [-2, 1] for 2-D input",
        lambda: ndd.pad(x, axes=ndd.batch([[0], [0, 2], [1]])),
    )  # fmt: skip
    error_everywhere(
        ValueError, "axis -1 occurs more than once",
        lambda: ndd.slice(x, axes=ndd.batch([[0], [1, -1], [1]]), start=1),
    )  # fmt: skip
    error_everywhere(
        ValueError, "the end of the window lies before its start in sample 2: start (2.0,), end "
        "(1.0,)",
        lambda: ndd.slice(x, axes=axes, start=ndd.batch([[0], [0, 0], [2]]), end=1),
    )  # fmt: skip
    assert [a.shape for a in arrays(ndd.pad(x, axes=axes))] == [(5, 4), (5, 4), (2, 4)]
