"""bb_flip, bbox_paste and bbox_rotate against the oracle."""

from __future__ import annotations

import numpy as np
import pytest

import ndd

from ..helpers import arrays
from .modes import error_everywhere, same_everywhere
from .oracle import check, ndd_call, oracle_call, per_sample
from .test_transforms import compare_to_scale


def boxes(count=5, seed=0, low=0.0, high=1.0):
    """Random boxes (left, top, right, bottom) between `low` and `high`."""
    corners = np.random.default_rng(seed).uniform(low, high, (count, 2, 2))
    return np.sort(corners, axis=1).reshape(count, 4).astype(np.float32)


def xywh(ltrb):
    return np.concatenate([ltrb[:, :2], ltrb[:, 2:] - ltrb[:, :2]], axis=1)


BATCH = [boxes(7), boxes(1, 1), boxes(0, 2)]
SIZED = [xywh(b) for b in BATCH]


@pytest.mark.parametrize("ltrb", [False, True])
def test_flip(ltrb):
    x = BATCH if ltrb else SIZED
    check("bb_flip", x, ltrb=ltrb, rtol=0)
    check("bb_flip", x, ltrb=ltrb, horizontal=0, rtol=0)  # widths are still differences of edges
    check("bb_flip", x, ltrb=ltrb, vertical=1, rtol=0)
    flags = dict(horizontal=per_sample([1, 0, 2]), vertical=per_sample([0, -1, 1]))
    check("bb_flip", x, ltrb=ltrb, **flags, rtol=0)
    check("bb_flip", x, ltrb=ltrb, batch=False, rtol=0)
    outside = boxes(9, 3, -0.5, 1.5)
    outside[2, 1] = np.nan
    check("bb_flip", outside, ltrb=ltrb, vertical=1, rtol=0)


def test_flat_and_nested_lists_of_boxes():
    for op, kwargs in (("bb_flip", {"vertical": 1}), ("bbox_paste", {"ratio": 1.7})):
        check(op, SIZED[0].reshape(-1), **kwargs, rtol=0)
        check(op, [SIZED[0].reshape(-1), SIZED[1].reshape(-1)], **kwargs, rtol=0)
        check(op, SIZED[0][:6].reshape(2, 3, 4), **kwargs, rtol=0)


@pytest.mark.parametrize("ltrb", [False, True])
def test_paste(ltrb):
    x = BATCH if ltrb else SIZED
    check("bbox_paste", x, ltrb=ltrb, ratio=2.0, rtol=0)
    check("bbox_paste", x, ltrb=ltrb, ratio=2.3, paste_x=0.0, paste_y=0.81, rtol=0)
    ratios = per_sample([1.7, 1.0, 5.0])
    check("bbox_paste", x, ltrb=ltrb, ratio=ratios, paste_x=per_sample([0.1, 1.0, 0.7]), rtol=0)
    for ratio in (0.5, 0.8, 2.0, 3.3, -1.0):  # also beyond the documented range
        for place in (-1.0, 0.8, 1.0, 1.2):
            check("bbox_paste", x, ltrb=ltrb, ratio=ratio, paste_x=place, batch=False, rtol=0)
    check("bbox_paste", boxes(1000, 5), ltrb=ltrb, ratio=1.7, paste_x=0.3, rtol=0)
    check("bbox_paste", x, ltrb=ltrb, ratio=0.0)


def rotate(*inputs, batch=True, **kwargs):
    """Both libraries agree; returns our results."""
    want = oracle_call("bbox_rotate", *inputs, batch=batch, **kwargs)
    got = ndd_call("bbox_rotate", *inputs, batch=batch, **kwargs)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        compare_to_scale("bbox_rotate", a, b)
    return got


MANY = [boxes(20, k, -0.1, 1.1) for k in range(40)]
ANGLES = np.random.default_rng(7).uniform(-400, 400, 40).astype(np.float32)
SHAPES = np.random.default_rng(8).integers(5, 200, (40, 2)).astype(np.int32)
LABELS = [np.arange(20, dtype=np.int32)] * 40


@pytest.mark.parametrize("mode", ["expand", "halfway", "fixed"])
@pytest.mark.parametrize("canvas", ["grown", "kept", "given"])
@pytest.mark.parametrize("layout", ["xyXY", "xyWH"])
def test_rotate(mode, canvas, layout):
    """Many angles, shapes and boxes, partly outside; labels show which were removed."""
    sizes = np.random.default_rng(9).uniform(20, 200, (40, 2)).astype(np.float32)
    extra = {"grown": {}, "kept": {"keep_size": True}, "given": {"size": per_sample(list(sizes))}}
    x = MANY if layout == "xyXY" else [xywh(b) for b in MANY]
    common = dict(
        angle=per_sample(list(ANGLES)), input_shape=per_sample(list(SHAPES)), mode=mode,
        bbox_layout=layout, **extra[canvas],
    )  # fmt: skip
    got = rotate(x, LABELS, **common)
    assert any(len(a) < 20 for a in got[1].arrays) and any(len(a) for a in got[1].arrays)
    rotate(x, LABELS, **common, remove_threshold=0.9)
    rotate(x, **common, remove_threshold=0.0)
    pixels = [a * np.tile(s[::-1], 2).astype(np.float32) for a, s in zip(x, SHAPES, strict=True)]
    rotate(pixels, LABELS, **common, bbox_normalized=False)


def test_rotate_exact_angles():
    for angle in (0.0, 90.0, -90.0, 180.0, 270.0, 360.0, 45.0, 135.0, 225.0, 315.0):
        for shape in ([11, 20], [100, 200], [10, 10]):
            rotate(MANY[:2], angle=angle, input_shape=shape)
            rotate(MANY[:2], angle=angle, input_shape=shape, keep_size=True)


@pytest.mark.parametrize("mode", ["halfway", "fixed"])
def test_rotate_by_odd_eighths(mode):
    """At 45° both sides of the enclosing box are equal; rounding errors decide which one is larger,
    and with that, whether a box that was wide is drawn wide or high."""
    inside = [boxes(20, 50 + k, 0.3, 0.7) for k in range(40)]
    eighths = np.float32(45 + 90 * np.random.default_rng(4).integers(-8, 8, 40))
    common = dict(angle=per_sample(list(eighths)), mode=mode, remove_threshold=0.0)
    rotate(inside, input_shape=per_sample(list(SHAPES)), **common)
    pixels = [a * np.tile(s[::-1], 2).astype(np.float32)
              for a, s in zip(inside, SHAPES, strict=True)]  # fmt: skip
    rotate(pixels, input_shape=per_sample(list(SHAPES)), bbox_normalized=False, **common)


def test_rotate_shapes_and_labels():
    args = dict(angle=30.0, keep_size=True)
    rotate(MANY[0], angle=30.0, input_shape=[200, 100, 3], shape_layout="WHC")
    rotate(MANY[0], angle=30.0, input_shape=[200, 100, 3])
    rotate(MANY[0], angle=30.0, input_shape=[200, 100], size=[50.9, 60.5])
    rotate(MANY[0], LABELS[0][:, None], input_shape=[50, 60], **args)
    rotate(MANY[:2], [np.arange(20, dtype=np.int32)[:, None]] * 2, input_shape=[50, 60], **args)
    rotate(BATCH, [np.arange(len(b), dtype=np.int32) for b in BATCH], input_shape=[9, 8], **args)
    rotate(BATCH[2], angle=30.0, input_shape=[50, 60])


def test_rotate_with_the_same_labels_for_all():
    names = np.array([7, 5, 3, 1], np.int8)
    x = [boxes(4, k, -0.2, 1.2) for k in range(5)]
    args = dict(angle=40.0, input_shape=[50, 60], keep_size=True, remove_threshold=0.7)
    shared = ndd.bbox_rotate(ndd.batch(x), ndd.tensor(names), **args)
    each = ndd.bbox_rotate(ndd.batch(x), ndd.batch([names] * 5), **args)
    assert len({s[0] for s in shared[0].shape}) > 1
    for a, b in zip(shared, each, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert [v.tolist() for v in arrays(a)] == [v.tolist() for v in arrays(b)]


def test_rotate_strange_boxes():
    """Boxes that are upside down, empty, a line, or nan."""
    strange = np.float32(
        [[0.3, 0.2, 0.1, 0.5], [0.3, 0.2, 0.3, 0.2], [0.3, 0.2, 0.3, 0.4], [np.nan, 0, 1, 1]]
    )
    rotate(strange, angle=30.0, input_shape=[50, 60])
    rotate(strange, angle=30.0, input_shape=[50, 60], remove_threshold=0.0)


def test_labels_of_any_type():
    """Upstream accepts only int32 labels."""
    labels = np.linspace(0, 1, 20)
    got, chosen = ndd_call("bbox_rotate", MANY[0], labels, angle=30.0, input_shape=[50, 60],
                           keep_size=True)  # fmt: skip
    _, numbers = ndd_call("bbox_rotate", MANY[0], LABELS[0], angle=30.0, input_shape=[50, 60],
                          keep_size=True)  # fmt: skip
    assert 0 < len(got.arrays[0]) < 20
    assert chosen.arrays[0].tolist() == labels[numbers.arrays[0]].tolist()


def test_modes_and_devices(monkeypatch):
    monkeypatch.setenv("NDD_GPU", "simulate")

    def program(device=None):
        x = ndd.batch(MANY[:3], device=device)
        labels = ndd.batch(LABELS[:3], device=device)
        angles = ndd.batch(list(ANGLES[:3]))
        y = ndd.bbox_paste(ndd.bb_flip(x, vertical=1, ltrb=True), ratio=1.5)
        return y, *ndd.bbox_rotate(y, labels, angle=angles, input_shape=[40, 50], keep_size=True)

    same_everywhere(program)
    for ours, theirs in zip(program(), program("gpu"), strict=True):
        assert theirs.device.device_type == "gpu"
        for a, b in zip(arrays(ours), arrays(theirs), strict=True):
            assert a.shape == b.shape and a.tobytes() == b.tobytes()


def test_errors():
    good = BATCH[0]
    rotate = dict(angle=1.0, input_shape=[5, 5])

    def refused(text, program, kind=ValueError):
        error_everywhere(kind, text, program)

    refused("boxes must be float32", lambda: ndd.bb_flip(np.zeros((2, 4))), TypeError)
    refused(
        "boxes need 4 coordinates each, got shape (2, 3) in sample 0",
        lambda: ndd.bb_flip(good[:2, :3].copy()),
    )
    refused(
        "boxes need 4 coordinates each, got shape (5,) in sample 0",
        lambda: ndd.bbox_paste(np.zeros(5, np.float32), ratio=1.0),
    )
    refused("(n, 4), got (4,)", lambda: ndd.bbox_rotate(good[0], **rotate))
    refused(
        "`bbox_layout` must be one of xyXY, xyWH, got 'yxYX'",
        lambda: ndd.bbox_rotate(good, bbox_layout="yxYX", **rotate),
    )
    refused("`mode` must be one of", lambda: ndd.bbox_rotate(good, mode="x", **rotate))
    refused(
        "`remove_threshold` must lie in [0, 1), got 1",
        lambda: ndd.bbox_rotate(good, remove_threshold=1.0, **rotate),
    )
    refused(
        "`keep_size` and `size` exclude each other",
        lambda: ndd.bbox_rotate(good, keep_size=True, size=[5, 5], **rotate),
    )
    refused("`size` must have 2 values", lambda: ndd.bbox_rotate(good, size=[5], **rotate))
    refused(
        "there are 3 labels and 7 boxes in sample 0",
        lambda: ndd.bbox_rotate(good, np.arange(3), **rotate),
    )
    refused(
        "labels must have the shape (n,) or (n, 1), got (7, 2)",
        lambda: ndd.bbox_rotate(good, np.zeros((7, 2), np.int32), **rotate),
    )
    refused(
        "`input_shape` has 1 values, fewer than `shape_layout` 'HW'",
        lambda: ndd.bbox_rotate(good, angle=1.0, input_shape=[5]),
    )
    refused(
        "`shape_layout` must name H and W, got 'XY'",
        lambda: ndd.bbox_rotate(good, shape_layout="XY", **rotate),
    )
    refused(
        "`input_shape` must be positive, got (0, 5)",
        lambda: ndd.bbox_rotate(good, angle=1.0, input_shape=[0, 5]),
    )
