"""Erase, tables, masks, points, frames and samples against the oracle."""

from __future__ import annotations

import numpy as np
import pytest

import ndd

from .modes import error_everywhere, same_everywhere
from .oracle import check, per_sample
from .test_color import images, values
from .test_crop_mirror_normalize import MEAN, SIZES, STD

INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")

# -- erase ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*INTEGERS, "float16", "float32"])
def test_erase_types(dtype):
    """Fill values are truncated and wrapped, as in C."""
    args = dict(anchor=[1.0, 2.0], shape=[2.0, 3.0])
    for fill in (2.5, -2.5, 300.7):
        check("erase", images(dtype, sizes=SIZES), layout="HWC", **args, fill_value=fill)


@pytest.mark.parametrize(
    ("layout", "axes", "names"),
    [
        ("HWC", None, None),
        ("CHW", None, None),
        ("FHWC", None, "HW"),
        ("FHWC", None, None),
        ("DHWC", [2, 0], None),
        ("HWC", None, "WH"),
        ("HWC", [1], None),
        ("HWC", [2, 0, 1], None),
    ],
)
def test_erase_axes(layout, axes, names):
    lead = (3,) if len(layout) == 4 else ()
    number = len(axes or names or layout.replace("C", ""))
    chosen = {} if axes is None else {"axes": axes}
    chosen |= {} if names is None else {"axis_names": names}
    x = [np.moveaxis(a, -1, layout.index("C")).copy() for a in images(lead=lead, sizes=SIZES)]
    anchor = [1.0, 0.0, 2.0, 3.0, 1.0, 1.0][: 2 * number]
    check(
        "erase", x, layout=layout, anchor=anchor, shape=[2.0] * 2 * number, fill_value=7.0, **chosen
    )


def test_erase_regions():
    x = images(sizes=SIZES)

    def erase(**kwargs):
        check("erase", x, layout="HWC", fill_value=[1.0, 2.0, 3.0], **kwargs)

    erase()
    erase(anchor=[0.6, 1.2, 3.9, 5.0, 1.0, -2.5], shape=[1.0, 2.9, 2.2, 100.0, 1.5, 6.0])  # three
    erase(anchor=[2.0, 2.0], shape=[0.0, 4.0])
    erase(anchor=[-5.0, -5.0], shape=[3.0, 9.0])
    erase(anchor=[5.0, 5.0], shape=[3.0, 4.0], centered_anchor=True)
    erase(anchor=[0.31, 0.5], shape=[0.25, 0.33], normalized=True)
    erase(anchor=[0.31, 0.5], shape=[2.0, 3.0], normalized_anchor=True, centered_anchor=True)
    erase(anchor=[3.0, 1.0], shape=[0.25, 0.33], normalized_shape=True)
    erase(anchor=per_sample([[1.0, 1.0], [2.5, 2.0], [9.0, 9.0]]), shape=[4.0, 2.0])
    erase(anchor=[1.0, 2.0], shape=per_sample([[1.0, 1.0], [2.5, 2.0], [9.0, 9.0]]))
    erase(anchor=np.float32([[1, 1], [4, 4]]), shape=np.float32([[2, 2], [1, 3]]))
    # a different number of regions per sample
    starts, sizes = [[0.0, 0.0, 3.0, 3.0], [1.0, 2.0], []], [[2.0, 2.0, 2.0, 4.0], [3.0, 3.0], []]
    erase(anchor=per_sample(starts), shape=per_sample(sizes))


def test_erase_fill():
    x, args = images(sizes=SIZES), dict(anchor=[1.0, 2.0], shape=[4.0, 4.0])
    check("erase", x, layout="HWC", **args)
    check("erase", x, layout="HWC", **args, fill_value=per_sample([[1.0], [2.0], [3.0]]))
    fills = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]
    check("erase", x, layout="HWC", **args, fill_value=per_sample(fills))
    check("erase", x, layout="HWC", batch=False, **args, fill_value=5.0)
    check("erase", images(sizes=[(0, 3), (1, 1), (3, 3)]), layout="HWC", **args, fill_value=5.0)
    check("erase", [a[..., 0] for a in x], layout="HW", **args, fill_value=5.0)


# -- tables --------------------------------------------------------------------------------------

KEYS, VALUES = [0, 3, 200, 3, 7], [1.5, 9.0, -2.5, 300.4, 0.1]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_lookup_table_inputs(dtype):
    x = [np.arange(-5, 250).astype(dtype), values((3, 5), dtype)[0], np.array(7, dtype)[None]]
    check("lookup_table", x, keys=KEYS, values=VALUES, default_value=-1.25)
    wide = np.array([0, 1, 2**32 + 3, 65536, 65539], np.int64).astype(dtype)
    check("lookup_table", wide, keys=[3, 65535, 1], values=[1.0, 2.0, 3.0], default_value=0.5)


@pytest.mark.parametrize("out", [*INTEGERS, "float16", "float32", "float64", "bool"])
def test_lookup_table_results(out):
    x = [np.arange(256, dtype=np.uint8)]
    check("lookup_table", x, keys=KEYS, values=VALUES, default_value=0.5, dtype=out)


def test_lookup_table_shapes():
    table = dict(keys=KEYS, values=VALUES)
    check("lookup_table", images(), layout="HWC", **table)
    check("lookup_table", images(), layout="HWC", batch=False, **table)
    check("lookup_table", np.uint8(3), **table)
    check("lookup_table", [np.zeros((0, 3), np.uint8), np.zeros((2, 0), np.uint8)], **table)
    check("lookup_table", images(), layout="HWC", default_value=4.0)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float32"])
def test_grid_mask_types(dtype):
    x = images(dtype, sizes=[(40, 50), (1, 1), (33, 64)])
    check("grid_mask", x, layout="HWC", tile=9, ratio=0.43, angle=0.3, shift_x=2.5, shift_y=-1.0)


def test_grid_mask_arguments():
    x = images(sizes=[(40, 150), (1, 1), (133, 64)])
    check("grid_mask", x, layout="HWC")
    check("grid_mask", x, batch=False, layout="HWC", tile=7)
    check("grid_mask", x, tile=per_sample([3, 50, 11]), ratio=per_sample([0.2, 0.5, 0.9]))
    check(
        "grid_mask",
        x,
        tile=20,
        angle=per_sample([0.0, 1.0, -2.3]),
        shift_x=per_sample([0.0, 10.0, 3.3]),
    )
    check("grid_mask", x, tile=20, shift_y=per_sample([0.0, 10.0, -3.3]))
    for ratio in (0.0, 1.0, -1.0, 2.0):
        check("grid_mask", x, tile=20, ratio=ratio)
    check("grid_mask", images(channels=5, sizes=[(0, 4), (4, 4)]), tile=2)
    check("grid_mask", values((50, 60, 1), "float32"), tile=5, angle=10.0)
    special = np.full((4, 4, 1), np.nan, np.float32)
    special[:2] = -np.inf
    check("grid_mask", special, tile=2)


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "uint16", "int32", "uint64", "int64", "float32", "float64"]
)
def test_one_hot_inputs(dtype):
    x = np.array([0, 1, 5, 200, 3]).astype(dtype)
    check("one_hot", [x, x[:2]], num_classes=6)
    if dtype[0] == "f":
        special = np.array([0.9, -0.5, 2.999, -1.0, np.nan, np.inf, 3e9, -3e9], dtype)
        check("one_hot", special, num_classes=4)
    if dtype == "int64":
        check("one_hot", np.array([2**40 + 1, -1, 2**31, -(2**32) + 2]), num_classes=4)


@pytest.mark.parametrize("out", ["uint8", "int8", "int32", "uint64", "int64", "float32", "float64"])
def test_one_hot_results(out):
    x = [np.array([0, 2, 9], np.int32)]
    check("one_hot", x, num_classes=3, on_value=300.7, off_value=-1.5, dtype=out)


def test_one_hot_axes():
    x = [np.array([[0, 2, 1]], np.int32), np.array([[3], [1]], np.int32)]
    for axis in (-1, 0, 1, 2):
        check("one_hot", x, num_classes=4, axis=axis)
        check("one_hot", x, num_classes=4, axis=axis, layout="HW", axis_name="C")
    check("one_hot", x, num_classes=4, layout="HW")
    check("one_hot", x, num_classes=0)
    # samples of one element count as scalars, but only without `axis`
    single = [np.array([[1]], np.int32), np.array([[2]], np.int32)]
    check("one_hot", single, num_classes=3)
    check("one_hot", single, num_classes=3, axis=-1)
    check("one_hot", single, num_classes=3, layout="HW", axis_name="C")
    check("one_hot", np.int32(1), num_classes=3)
    check("one_hot", np.int32(1), num_classes=3, axis_name="C")
    check("one_hot", [np.zeros((0, 3), np.int32)], num_classes=3)


# -- points --------------------------------------------------------------------------------------


def points(columns, dtype="float32"):
    return [values((n, columns), dtype, n) for n in (5, 1, 12)]


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_coord_flip(columns):
    x = points(columns)
    # upstream's op remembers the layout of its first call, so pass it each time
    args = dict(arguments={"layout": "xyz"[:columns]})
    check("coord_flip", x, **args)
    check("coord_flip", x, **args, flip_x=0, flip_y=1, flip_z=5, center_y=3.25, center_z=-1.0)
    check(
        "coord_flip", x, **args, flip_x=per_sample([1, 0, 2]), center_x=per_sample([0.5, 2.0, 3.0])
    )
    check("coord_flip", x, **args, batch=False, flip_y=1)
    check("coord_flip", [np.zeros((0, columns), np.float32)], **args)


@pytest.mark.parametrize(("order", "columns"), [("yx", 2), ("zyx", 3), ("zxy", 3), ("xyz", 2)])
def test_coord_flip_order(order, columns):
    x = points(columns)
    args = dict(arguments={"layout": order}, center_x=2.0, flip_y=1)
    check("coord_flip", x, **args)
    check("coord_flip", x, **args, flip_x=0)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "int32", "float32"])
def test_coord_transform_types(dtype):
    x = points(2, dtype)
    args = dict(M=[0.3, -1.7, 2.25, 0.4], T=[7.5, -2.0])
    check("coord_transform", x, **args, rtol=0)
    check("coord_transform", x, **args, dtype=dtype, rtol=0)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 2), (3, 2), (1, 3), (6, 6)])
def test_coord_transform_shapes(rows, columns):
    x = points(columns)
    m = values((rows, columns), "float32", 1)
    t = values((rows,), "float32", 2)
    both = np.concatenate([m, t[:, None]], axis=1)
    as_list = [float(v) for v in m.flat]

    def transform(x=x, **kwargs):
        check("coord_transform", x, rtol=0, **kwargs)

    transform(M=m)
    transform(M=as_list, T=[float(v) for v in t])
    transform(M=m, T=0.75)
    transform(MT=both)
    transform(MT=[float(v) for v in both.flat])
    transform(M=per_sample([m, m + 1, -m]), T=per_sample([t, t * 2, -t]))
    transform(MT=per_sample([both, both + 1, -both]))
    transform(T=2.5)
    transform(M=1.5, T=per_sample([1.0, 2.0, 3.0]))
    transform(MT=1.5)
    transform(M=m, batch=False)
    transform([values((2, n, 3, columns), "float32", n) for n in (1, 4, 0)], M=m, layout="ABCD")


def test_coord_transform_of_a_strided_matrix():
    """Rows and columns are those of the given array, whatever its strides are."""
    m = np.float32([[1, 2], [3, 4]])
    x = points(2)[0]
    got = ndd.coord_transform(ndd.tensor(x), M=ndd.as_tensor(m.T))
    assert np.array_equal(np.asarray(got), np.asarray(ndd.coord_transform(x, M=m.T.copy())))
    check("coord_transform", x, M=m.T.copy())


def test_coord_transform_inside_a_window():
    """Positions outside of a padded window must not be looked up in the matrix."""
    x = ndd.batch(points(2))
    m = np.float32([[1, 2], [3, 4], [5, 6]])
    y = ndd.pad(ndd.coord_transform(x, M=m), axes=[0, 1], shape=[20, 4096], fill_value=-1.0)
    for got, p in zip(y.tensors, points(2), strict=True):
        want = np.full((20, 4096), -1, np.float32)
        want[: len(p), :3] = ((m[:, 0] * p[:, :1]) + m[:, 1] * p[:, 1:]) + np.float32(0)
        assert np.array_equal(np.asarray(got), want)


# -- frames, samples, properties -----------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "float64", "bool"])
def test_element_extract(dtype):
    x = [
        (values((n, 4, 3), "uint8", n) > 99 if dtype == "bool" else values((n, 4, 3), dtype, n))
        for n in (5, 3, 4)
    ]
    check("element_extract", x, element_map=[2])
    check("element_extract", x, layout="FHW", element_map=[0, 2, 2])
    check("element_extract", x, layout="FHW", batch=False, element_map=[4, 1])
    check("element_extract", x[0][:, :1, 0], element_map=[1])


def test_permute_batch():
    x = images()
    check("permute_batch", x, layout="HWC", indices=[3, 1, 0, 2])
    check("permute_batch", x, layout="HWC", indices=[2, 2, 2, 0])
    check("permute_batch", x, indices=per_sample([1, 0, 3, 2]))
    check("permute_batch", x, layout="HWC", batch=False, indices=[0])
    check("permute_batch", [np.zeros((0, 2), np.int8), np.ones((1, 2), np.int8)], indices=[1, 1])


def test_get_property():
    check("get_property", images(), layout="HWC", key="layout")
    check("get_property", images(), key="layout")
    check("get_property", images(), layout="HWC", batch=False, key="layout")
    check("get_property", images(), layout="HWC", key="source_info")


# -- however it runs -----------------------------------------------------------------------------


def programs():
    batch = ndd.batch(images(sizes=[(40, 50), (3, 4), (64, 31)]), layout="HWC")
    clips = ndd.batch([values((n, 8, 9, 3), "uint8", n) for n in (4, 3)], layout="FHWC")
    ids = ndd.batch([values((n,), "uint8", n) for n in (7, 1)])
    dots = ndd.batch(points(2))
    angle = ndd.batch([0.1, 0.2, 0.3])
    return {
        "crop_mirror_normalize": lambda: ndd.crop_mirror_normalize(
            ndd.brightness(batch, brightness=1.2),
            crop=[32, 30],
            mean=MEAN,
            std=STD,
            mirror=ndd.batch([1, 0, 1]),
            out_of_bounds_policy="pad",
            pad_output=True,
        ),
        "erase": lambda: ndd.flip(
            ndd.erase(batch, anchor=ndd.batch([[1.0, 1], [0, 0], [30, 3]]), shape=[9.0, 9])
        ),
        "lookup_table": lambda: ndd.lookup_table(ndd.flip(batch), keys=KEYS, values=VALUES) * 2,
        "grid_mask": lambda: ndd.grid_mask(batch, tile=11, angle=angle) + 1,
        "one_hot": lambda: ndd.one_hot(ids + ids, num_classes=300) * 3.0,
        "coord_flip": lambda: ndd.coord_flip(dots * 2.0, flip_y=ndd.batch([0, 1, 1])),
        "coord_transform": lambda: (
            ndd.coord_transform(dots + 1.0, M=[1.0, 2, 3, 4], T=[1.0, 2]) * 3.0
        ),
        "element_extract": lambda: ndd.element_extract(clips + 1, element_map=[2, 0]),
        "permute_batch": lambda: ndd.permute_batch(
            ndd.brightness(batch, brightness=0.7), indices=[2, 2, 1]
        ),
        "get_property": lambda: ndd.get_property(ndd.flip(batch), key="layout"),
    }


@pytest.mark.parametrize("op", list(programs()))
def test_same_everywhere(op):
    same_everywhere(programs()[op])


# -- errors --------------------------------------------------------------------------------------

IMAGE = np.zeros((4, 5, 3), np.uint8)


def image(layout="HWC"):
    return ndd.tensor(IMAGE, layout=layout)


POINTS = np.zeros((4, 2), np.float32)

ERRORS = [
    # crop_mirror_normalize
    (
        ValueError,
        "the layout 'WHC' does not match any of the allowed layouts: HWC, CHW, DHWC",
        lambda: ndd.crop_mirror_normalize(image("WHC")),
    ),
    (
        ValueError,
        "the number of dimensions 1 does not match any of the allowed layouts",
        lambda: ndd.crop_mirror_normalize(IMAGE[0, 0]),
    ),
    (TypeError, "element type bool is not supported", lambda: ndd.crop_mirror_normalize(IMAGE > 0)),
    (
        ValueError,
        "`mean` has 2 values, but sample 0 of shape (4, 5, 3) has 3 channels",
        lambda: ndd.crop_mirror_normalize(image(), mean=[1.0, 2.0]),
    ),
    (
        ValueError,
        "`std` has 2 values, but sample 1 of shape (4, 5, 3) has 3 channels",
        lambda: ndd.crop_mirror_normalize(
            ndd.batch([IMAGE, IMAGE], layout="HWC"), std=ndd.batch([[1.0, 2, 3], [1.0, 2]])
        ),
    ),
    (
        ValueError,
        "the window of sample 0 leaves the input: shape (4, 5, 3), start (-1, 0, 0), size (6, 5",
        lambda: ndd.crop_mirror_normalize(image(), crop=[6, 5]),
    ),
    (
        ValueError,
        "`crop` must have 2 or 3 values, got 1",
        lambda: ndd.crop_mirror_normalize(image(), crop=[3]),
    ),
    (
        ValueError,
        "`crop_pos_x` must lie in [0, 1], got 1.5 for sample 0",
        lambda: ndd.crop_mirror_normalize(image(), crop=[3, 3], crop_pos_x=1.5),
    ),
    (
        ValueError,
        "`output_layout` 'HWD' is not a permutation of the input's layout 'HWC'",
        lambda: ndd.crop_mirror_normalize(image(), output_layout="HWD"),
    ),
    (
        ValueError,
        "`out_of_bounds_policy` must be one of error, constant, const, pad, fill, trim_to_shape, got "
        "'wrap'",
        lambda: ndd.crop_mirror_normalize(image(), out_of_bounds_policy="wrap"),
    ),
    (
        ValueError,
        "`rounding` must be one of round, truncate, got 'up'",
        lambda: ndd.crop_mirror_normalize(image(), rounding="up"),
    ),
    (
        ValueError,
        "`fill_values` has 2 values, but sample 0 of the result has 3 channels",
        lambda: ndd.crop_mirror_normalize(
            image(), out_of_bounds_policy="pad", fill_values=[1.0, 2.0]
        ),
    ),
    (
        ValueError,
        "Inconsistent batch size: 2 != 3",
        lambda: ndd.crop_mirror_normalize(ndd.batch([IMAGE] * 2), mirror=ndd.batch([1, 0, 1])),
    ),
    # erase
    (
        ValueError,
        "`anchor` has 3 and `shape` 3 values; both need 2 (one per erased axis)",
        lambda: ndd.erase(image(), anchor=[1.0, 2, 3], shape=[1.0, 2, 3]),
    ),
    (
        ValueError,
        "`anchor` has 2 and `shape` 4 values",
        lambda: ndd.erase(image(), anchor=[1.0, 2], shape=[1.0] * 4),
    ),
    (
        ValueError,
        "an input without a layout needs `axes`",
        lambda: ndd.erase(IMAGE, anchor=[1.0], shape=[1.0]),
    ),
    (
        ValueError,
        "axis 'Z' is not present in the layout of the input ('HWC')",
        lambda: ndd.erase(image(), axis_names="Z", anchor=[1.0], shape=[1.0]),
    ),
    (
        ValueError,
        "axis 3 is out of range [-3, 2] for 3-D input",
        lambda: ndd.erase(image(), axes=[3], anchor=[1.0], shape=[1.0]),
    ),
    (
        ValueError,
        "no axes to erase along",
        lambda: ndd.erase(image(), axes=[], anchor=[1.0], shape=[1.0]),
    ),
    (
        ValueError,
        "`axes` and `axis_names` exclude each other",
        lambda: ndd.erase(image(), axes=[0], axis_names="H"),
    ),
    (
        ValueError,
        "`normalized` excludes `normalized_anchor` and `normalized_shape`",
        lambda: ndd.erase(
            image(), anchor=[1.0, 1], shape=[1.0, 1], normalized=True, normalized_shape=True
        ),
    ),
    (
        ValueError,
        "`anchor` and `shape` must be finite",
        lambda: ndd.erase(image(), anchor=[float("nan"), 1.0], shape=[1.0, 1.0]),
    ),
    (
        ValueError,
        "`fill_value` has 2 values, but sample 0 of shape (4, 5, 3) has 3 channels",
        lambda: ndd.erase(image(), anchor=[1.0, 1], shape=[1.0, 1], fill_value=[1.0, 2.0]),
    ),
    (
        ValueError,
        "several values of `fill_value` need an input with a channel axis C",
        lambda: ndd.erase(IMAGE, axes=[0], anchor=[1.0], shape=[1.0], fill_value=[1.0, 2.0]),
    ),
    (
        TypeError,
        "element type bool is not supported",
        lambda: ndd.erase(ndd.tensor(IMAGE > 0, layout="HWC")),
    ),
    # lookup_table
    (TypeError, "element type f32 is not supported", lambda: ndd.lookup_table(POINTS)),
    (
        ValueError,
        "`keys` has 2 and `values` 1 entries",
        lambda: ndd.lookup_table(IMAGE, keys=[1, 2], values=[1.0]),
    ),
    (
        ValueError,
        "`keys` must lie in [0, 65535], got -1",
        lambda: ndd.lookup_table(IMAGE, keys=[-1], values=[1.0]),
    ),
    (
        ValueError,
        "`keys` must lie in [0, 65535], got 65536",
        lambda: ndd.lookup_table(IMAGE, keys=[65536], values=[1.0]),
    ),
    # grid_mask
    (
        ValueError,
        "images must have 3 dimensions (rows, columns, channels), got 2",
        lambda: ndd.grid_mask(IMAGE[0]),
    ),
    (ValueError, "`tile` must be positive, got 0", lambda: ndd.grid_mask(IMAGE, tile=0)),
    (
        ValueError,
        "`tile` must be positive, got -2",
        lambda: ndd.grid_mask(IMAGE, tile=ndd.batch([3, -2])),
    ),
    (TypeError, "element type bool is not supported", lambda: ndd.grid_mask(IMAGE > 0)),
    (
        ValueError,
        "Inconsistent batch size: 2 != 3",
        lambda: ndd.grid_mask(ndd.batch([IMAGE] * 2), angle=ndd.batch([1.0, 2.0, 3.0])),
    ),
    # one_hot
    (ValueError, "`axis` must lie in [-1, 3], got 4", lambda: ndd.one_hot(IMAGE, axis=4)),
    (ValueError, "`axis` must lie in [-1, 3], got -2", lambda: ndd.one_hot(IMAGE, axis=-2)),
    (
        ValueError,
        "`num_classes` must not be negative, got -1",
        lambda: ndd.one_hot(IMAGE, num_classes=-1),
    ),
    (
        ValueError,
        "`axis_name` must be one letter, got 'CD'",
        lambda: ndd.one_hot(image(), axis_name="CD"),
    ),
    (
        ValueError,
        "`axis_name` needs an input with a layout",
        lambda: ndd.one_hot(IMAGE, axis_name="C"),
    ),
    (TypeError, "element type bool is not supported", lambda: ndd.one_hot(IMAGE > 0)),
    # coord_flip
    (TypeError, "points must be float32, got u8", lambda: ndd.coord_flip(IMAGE)),
    (
        ValueError,
        "points must have 2 dimensions (points, coordinates), got 1",
        lambda: ndd.coord_flip(POINTS[0]),
    ),
    (
        ValueError,
        "points have 4 coordinates, `layout` 'xyz' names 3",
        lambda: ndd.coord_flip(POINTS.T.copy()),
    ),
    (
        ValueError,
        "`layout` must be made of x, y and z, got 'xw'",
        lambda: ndd.coord_flip(POINTS, layout="xw"),
    ),
    (
        ValueError,
        "`layout` must be made of x, y and z, got 'xx'",
        lambda: ndd.coord_flip(POINTS, layout="xx"),
    ),
    # coord_transform
    (
        ValueError,
        "points must have at least 2 dimensions, got 1",
        lambda: ndd.coord_transform(POINTS[0]),
    ),
    (
        ValueError,
        "points must have 1 to 6 coordinates, got 7",
        lambda: ndd.coord_transform(np.zeros((1, 7), "f4")),
    ),
    (
        ValueError,
        "results must have 1 to 6 coordinates, got 7",
        lambda: ndd.coord_transform(POINTS, M=np.zeros((7, 2), "f4")),
    ),
    (
        ValueError,
        "points must have as many coordinates in every sample",
        lambda: ndd.coord_transform(ndd.batch([POINTS, POINTS[:, :1]])),
    ),
    (
        ValueError,
        "`M` has 3 values, which do not form rows of 2",
        lambda: ndd.coord_transform(POINTS, M=[1.0, 2, 3]),
    ),
    (
        ValueError,
        "`M` has 3 columns, the points need 2",
        lambda: ndd.coord_transform(POINTS, M=np.zeros((2, 3), "f4")),
    ),
    (
        ValueError,
        "`MT` has 2 columns, the points need 3",
        lambda: ndd.coord_transform(POINTS, MT=np.eye(2, dtype="f4")),
    ),
    (
        ValueError,
        "argument `M` must be a number or a matrix, got 3 dimensions",
        lambda: ndd.coord_transform(POINTS, M=np.zeros((2, 2, 2), "f4")),
    ),
    (
        ValueError,
        "`T` has 3 values, the result has 2 coordinates",
        lambda: ndd.coord_transform(POINTS, T=[1.0, 2, 3]),
    ),
    (ValueError, "`MT` excludes `M` and `T`", lambda: ndd.coord_transform(POINTS, MT=1.0, T=1.0)),
    (
        TypeError,
        "`dtype` must be float32 or the input's type u8, got i16",
        lambda: ndd.coord_transform(IMAGE, dtype=ndd.int16),
    ),
    (
        ValueError,
        "`M` must have the same shape in every sample",
        lambda: ndd.coord_transform(
            ndd.batch([POINTS] * 2), M=ndd.batch([np.eye(2), np.ones((1, 2))])
        ),
    ),
    (
        ValueError,
        "Inconsistent batch size: 2 != 3",
        lambda: ndd.coord_transform(ndd.batch([POINTS] * 2), T=ndd.batch([1.0, 2.0, 3.0])),
    ),
    # element_extract
    (
        IndexError,
        "frame 4 is out of range for a sequence of 4",
        lambda: ndd.element_extract(IMAGE, element_map=[4]),
    ),
    (
        ValueError,
        "`element_map` must not be negative, got -1",
        lambda: ndd.element_extract(IMAGE, element_map=[-1]),
    ),
    (ValueError, "`element_map` is empty", lambda: ndd.element_extract(IMAGE, element_map=[])),
    (
        ValueError,
        "the layout of a sequence must begin with F, got 'HWC'",
        lambda: ndd.element_extract(image(), element_map=[0]),
    ),
    (
        ValueError,
        "a sequence needs at least 2 dimensions, got 1",
        lambda: ndd.element_extract(POINTS[0], element_map=[0]),
    ),
    # permute_batch
    (
        ValueError,
        "`indices` has 3 values, the batch has 2 samples",
        lambda: ndd.permute_batch(ndd.batch([IMAGE] * 2), indices=[0, 1, 0]),
    ),
    (
        IndexError,
        "indices[1] = 2 is out of range for a batch of 2",
        lambda: ndd.permute_batch(ndd.batch([IMAGE] * 2), indices=[0, 2]),
    ),
    (
        IndexError,
        "indices[0] = -1 is out of range for a batch of 2",
        lambda: ndd.permute_batch(ndd.batch([IMAGE] * 2), indices=[-1, 0]),
    ),
    (
        ValueError,
        "Inconsistent batch size: 2 != 3",
        lambda: ndd.permute_batch(ndd.batch([IMAGE] * 2), indices=ndd.batch([0, 1, 1])),
    ),
    # get_property
    (
        ValueError,
        "unknown property 'size'; known: layout, source_info",
        lambda: ndd.get_property(IMAGE, key="size"),
    ),
    (TypeError, "argument `key` must be a string, got int", lambda: ndd.get_property(IMAGE, key=1)),
]


@pytest.mark.parametrize("op", list(programs()))
def test_errors(op):
    """Every mistake raises its error, and afterwards the op works."""
    mine = [e for e in ERRORS if f"{op}" in e[2].__code__.co_names]
    assert mine
    for kind, text, program in mine:
        error_everywhere(kind, text, program)
    with pytest.raises(TypeError, match="positional argument"):
        getattr(ndd, op)()
    with pytest.raises(TypeError, match="unexpected keyword argument 'no_such'"):
        getattr(ndd, op)(IMAGE, no_such=1)
    programs()[op]()
