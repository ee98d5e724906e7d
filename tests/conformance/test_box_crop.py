"""random_bbox_crop: distributions and boxes against the oracle, invariants, modes, errors."""

from __future__ import annotations

import warnings

import numpy as np
import nvidia.dali.experimental.dynamic as upstream
import pytest

import ndd
from ndd.core.handle import executor_of
from ndd.runtime.rng import below

from ..helpers import arrays
from .modes import error_everywhere, same_everywhere
from .oracle import _call, _results, record_draws
from .test_boxes import boxes, xywh

TWO = np.float32([[0.3, 0.3, 0.6, 0.6], [0.1, 0.1, 0.3, 0.9]])
WHOLE = np.float32([[0, 0, 1, 1]])
VOLUME = np.float32([[0, 0, 0, 1, 1, 1]])
COUNT = 1024


def drawn(lib, box, count=COUNT, labels=None, seed=3, **kwargs):
    """Outputs for `count` samples with the same boxes."""
    inputs = [lib.batch([box] * count)]
    if labels is not None:
        inputs.append(lib.batch([labels] * count))
    arguments = {"quiet": True, **kwargs, "rng": lib.random.RNG(seed)}
    return [r.arrays for r in _results(_call(lib, "random_bbox_crop", inputs, arguments))]


def same_distribution(box, tolerance=0.06, **kwargs):
    """Quantiles of windows and numbers of boxes agree; standard errors are below 0.017."""
    ours, theirs = drawn(ndd, box, **kwargs), drawn(upstream, box, **kwargs)
    record_draws("random_bbox_crop", *([np.hstack(v) for v in zip(*r[:2], strict=True)]
                                       for r in (ours, theirs)))  # fmt: skip
    for mine, other in zip(ours[:2], theirs[:2], strict=True):
        at = [0.1, 0.25, 0.5, 0.75, 0.9]
        a, b = (np.quantile(np.stack(v).astype(float), at, axis=0) for v in (mine, other))
        assert np.abs(a - b).max() < tolerance, (kwargs, a, b)
    counts = [np.bincount([len(a) for a in v[2]], minlength=len(box) + 1) for v in (ours, theirs)]
    assert np.abs(counts[0] - counts[1]).max() < 0.07 * COUNT, (kwargs, counts)


SHAPED = dict(scaling=[0.3, 1.0], aspect_ratio=[0.5, 2.0])


@pytest.mark.parametrize(
    ("box", "arguments"),
    [
        (WHOLE, dict(SHAPED, allow_no_crop=False)),
        (WHOLE, dict(scaling=[0.3, 1.0], allow_no_crop=False)),
        (WHOLE, dict(scaling=[0.3, 1.0], aspect_ratio=[0.5, 0.5], input_shape=[200, 100],
                     allow_no_crop=False)),
        (TWO, dict(SHAPED, aspect_ratio=[1.0, 1.2], input_shape=[100, 200], shape_layout="HW")),
        (TWO, dict(SHAPED, thresholds=[0.1, 0.3, 0.5])),
        (TWO, dict(SHAPED, thresholds=[0.1, 0.9], threshold_type="overlap", num_attempts=5,
                   total_num_attempts=7)),
        (TWO, dict(SHAPED, thresholds=[0.1, 0.3, 0.9], all_boxes_above_threshold=False,
                   num_attempts=5, total_num_attempts=7)),
        (TWO, dict(SHAPED, thresholds=[0.9], allow_no_crop=False, total_num_attempts=20)),
        (TWO, dict(SHAPED, thresholds=[0.0, 0.2], bbox_prune_threshold=0.5)),
        (VOLUME, dict(SHAPED, allow_no_crop=False)),
        (VOLUME, dict(scaling=[0.3, 1.0], allow_no_crop=False,
                      aspect_ratio=[2.0, 2.0, 1.0, 4.0, 1.0, 4.0])),
        (VOLUME, dict(scaling=[0.3, 1.0], allow_no_crop=False,
                      aspect_ratio=[0.1, 4.0, 0.1, 4.0, 2.0, 2.0])),
    ],
)  # fmt: skip
def test_distributions(box, arguments):
    same_distribution(box, **arguments)


# Ranges of x/y, x/z and y/z of which one is a single number: an axis follows from another.
ONE_EXACT = [
    [2.0, 2.0, 1.0, 4.0, 1.0, 4.0],
    [0.1, 4.0, 2.0, 2.0, 0.1, 4.0],
    [0.1, 4.0, 0.1, 4.0, 2.0, 2.0],
]


def largest_distance(a, b):
    """The Kolmogorov-Smirnov distance of two samples."""
    both = np.sort(np.concatenate([a, b]))
    a, b = (np.searchsorted(np.sort(x), both, side="right") / len(x) for x in (a, b))
    return np.abs(a - b).max()


@pytest.mark.parametrize("ratios", ONE_EXACT)
def test_exact_ratios_of_volumes(ratios):
    """Extents and starts have upstream's distributions; chance makes 0.016 of 20000 draws."""
    arguments = dict(scaling=[0.3, 1.0], aspect_ratio=ratios, allow_no_crop=False, count=20000)
    ours, theirs = (drawn(lib, VOLUME, **arguments) for lib in (ndd, upstream))
    for mine, other in zip(ours[:2], theirs[:2], strict=True):
        for a, b in zip(np.stack(mine).T, np.stack(other).T, strict=True):
            assert largest_distance(a, b) < 0.018


@pytest.mark.parametrize("ratios", ONE_EXACT)
def test_the_start_along_x_tells_the_order_of_the_axes(ratios):
    """Upstream takes both from one random number, so shapes depend on starts."""
    ratios = [r if r == 2 else 0.01 + 99 * (i % 2) for i, r in enumerate(ratios)]
    shapes = []
    for lib in (ndd, upstream):
        start, shape, _ = drawn(lib, VOLUME, 600, scaling=[0.5, 0.5], aspect_ratio=ratios,
                                allow_no_crop=False, bbox_prune_threshold=0.0)  # fmt: skip
        start, shape = np.stack(start).astype(float), np.stack(shape).astype(float)
        sixth = np.minimum((6 * start[:, 0] / (1 - shape[:, 0])).astype(int), 5)
        shapes.append(
            [sorted({tuple(v) for v in shape[sixth == k].round(4).tolist()}) for k in range(6)]
        )
    assert shapes[0] == shapes[1] and [len(found) for found in shapes[0]] == [1] * 6


@pytest.mark.parametrize(
    "arguments",
    [
        dict(scaling=[0.5, 0.9], input_shape=[440, 48, 58], allow_no_crop=False,
             aspect_ratio=[0.2, 5.0, 1.0, 1.0, 0.2, 5.0], num_attempts=13, total_num_attempts=2),
        dict(scaling=[0.5, 0.9], input_shape=[202, 44, 269], thresholds=[0.5, 0.9],
             aspect_ratio=[2.0, 2.0, 0.2, 5.0, 0.2, 5.0], num_attempts=13, total_num_attempts=50),
        dict(scaling=[0.5, 0.5], input_shape=[202, 44, 269], thresholds=[0.5], allow_no_crop=False,
             aspect_ratio=[2.0, 2.0, 0.2, 5.0, 0.2, 5.0], num_attempts=50, total_num_attempts=50,
             all_boxes_above_threshold=False, bbox_prune_threshold=0.0),
    ],
    ids=["extents", "choices", "ties"],
)  # fmt: skip
def test_refused_windows(arguments):
    """What is drawn after a refused window depends on it upstream, and so does the best of windows
    that fit equally well but for rounding errors; 0.026 is chance for 10000 draws."""
    box = np.float32([[0.52, 0.11, 0.39, 0.73, 0.43, 0.59], [0.43, 0.48, 0.1, 0.8, 0.58, 0.16]])
    arguments = {"total_num_attempts": 50, **arguments, "count": 10000}
    ours, theirs = (drawn(lib, box, **arguments) for lib in (ndd, upstream))
    for mine, other in zip(ours[:2], theirs[:2], strict=True):
        for a, b in zip(np.stack(mine).round(4).T, np.stack(other).round(4).T, strict=True):
            assert largest_distance(a, b) < 0.026


def test_windows_in_pixels_equal_upstream():
    """Few windows are possible, and for each of them the boxes are the same; so are the odds."""
    many = boxes(9, 5)
    for shape, image, layout in (([7, 5], [9, 6], "xyXY"), ([11, 3], [9, 4], "xyWH")):
        x = many if layout == "xyXY" else xywh(many)
        kwargs = dict(crop_shape=shape, input_shape=image, bbox_layout=layout,
                      output_bbox_indices=True, labels=np.arange(9, dtype=np.int32))  # fmt: skip
        found = []
        for lib in (ndd, upstream):
            by_start = {}
            for start, size, *rest in zip(*drawn(lib, x, 600, **kwargs), strict=True):
                assert size.tolist() == shape
                by_start.setdefault(tuple(start.tolist()), []).append(rest)
            found.append(by_start)
        assert found[0].keys() == found[1].keys() and len(found[0]) > 4
        for start, mine in found[0].items():
            other = found[1][start]
            assert abs(len(mine) - len(other)) < 0.1 * 600
            for a, b in zip(mine[0], other[0], strict=True):
                assert a.shape == b.shape and a.dtype == b.dtype
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_draws_are_those_of_the_generator():
    """The native generator gives the words of the others."""
    start, *_ = drawn(ndd, WHOLE, 50, seed=11, crop_shape=[40, 30], input_shape=[1000, 70],
                      bbox_prune_threshold=0.0)  # fmt: skip
    words = ndd.random.RNG(11)._draw().blocks(0, np.arange(50))
    want = [below(w, np.array(room + 1)) for w, room in zip(words, (960, 40), strict=False)]
    assert np.stack(start).astype(int).T.tolist() == [w.tolist() for w in want]


def overlaps(box, start, shape, kind):
    low, high = np.maximum(box[:, :2], start), np.minimum(box[:, 2:], start + shape)
    common = np.maximum(high - low, 0).prod(axis=1)
    own = (box[:, 2:] - box[:, :2]).prod(axis=1)
    return common / (own if kind == "overlap" else own + shape.prod() - common)


@pytest.mark.parametrize("kind", ["iou", "overlap"])
@pytest.mark.parametrize("needs_all", [True, False])
def test_invariants(kind, needs_all):
    """Windows lie inside, thresholds are met, and boxes keep their labels and their places."""
    for count, threshold in ((1, 0.4), (4, 0.0), (20, 0.0)):
        x = TWO[:1] if count == 1 else boxes(count, count)
        labels = np.arange(100, 100 + count, dtype=np.int64)
        start, shape, kept, names, index = drawn(
            ndd, x, 100, labels=labels, **SHAPED, thresholds=[threshold], threshold_type=kind,
            allow_no_crop=False, all_boxes_above_threshold=needs_all, num_attempts=40,
            output_bbox_indices=True,
        )  # fmt: skip
        pick = min if needs_all else max
        for a, s, b, n, k in zip(start, shape, kept, names, index, strict=True):
            a, s = a.astype(float), s.astype(float)
            assert (a >= 0).all() and (a + s <= 1 + 1e-7).all()
            assert 0.5 - 1e-6 <= s[0] / s[1] <= 2 + 1e-6 and (s >= 0.3 - 1e-6).all()
            assert pick(overlaps(x.astype(float), a, s, kind)) >= threshold
            centres = (x[:, :2].astype(float) + x[:, 2:]) / 2
            inside = ((centres > a) & (centres < a + s)).all(axis=1)
            assert len(k) > 0 and k.tolist() == np.flatnonzero(inside).tolist()
            assert n.tolist() == labels[k].tolist()
            want = np.clip((x[k].reshape(-1, 2, 2) - a) / s, 0, 1)
            np.testing.assert_allclose(b.reshape(-1, 2, 2), want, atol=2e-6)


def test_layouts_say_the_same():
    """The same boxes in another order of columns give the same boxes in that order."""
    x = boxes(6, 1)
    flat = dict(SHAPED, thresholds=[0.1])
    start, _, want = drawn(ndd, x, 20, **flat)
    for layout in ("yxYX", "XYxy", "xXyY"):
        columns = ["xyXY".index(c) for c in layout]
        got = drawn(ndd, np.ascontiguousarray(x[:, columns]), 20, bbox_layout=layout, **flat)
        assert [a.tolist() for a in got[0]] == [a.tolist() for a in start]
        assert [a.tolist() for a in got[2]] == [a[:, columns].tolist() for a in want]
    sized = drawn(ndd, xywh(x), 20, bbox_layout="xyWH", **flat)[2]
    old = drawn(ndd, xywh(x), 20, ltrb=False, **flat)[2]
    for a, b, c in zip(sized, old, want, strict=True):
        assert a.tolist() == b.tolist()
        np.testing.assert_allclose(a, xywh(c), atol=1e-6)


def test_no_boxes_and_odd_boxes():
    empty = drawn(ndd, np.zeros((0, 4), np.float32), 20, **SHAPED, allow_no_crop=False)
    assert all(a.shape == (0, 4) for a in empty[2]) and not (np.stack(empty[1]) == 1).all()
    line = np.float32([[0.5, 0.2, 0.5, 0.4], [1, 1, 1, 1]])
    for kwargs in ({}, {"bbox_prune_threshold": 0.0}):  # without a crop, all boxes are kept
        assert {len(a) for a in drawn(ndd, line, 20, thresholds=[1.0], scaling=[0.3, 0.5],
                                      total_num_attempts=1000, **kwargs)[2]} == {2}  # fmt: skip


def test_labels_of_any_shape_and_type():
    x = boxes(5, 2)
    for labels in (np.arange(10.0).reshape(5, 2), np.int8([1, 2, 3, 4, 5]), np.zeros((5, 0))):
        found = drawn(ndd, x, 9, labels=labels, **SHAPED, output_bbox_indices=True)
        for got, k in zip(found[3], found[4], strict=True):
            assert got.dtype == labels.dtype and got.tolist() == labels[k].tolist()


def test_modes_threads_and_devices(monkeypatch):
    monkeypatch.setenv("NDD_GPU", "simulate")
    samples = [boxes(n, n) for n in (7, 1, 0, 20)]
    labels = [np.arange(len(b), dtype=np.int32) for b in samples]

    def program(device=None):
        x = ndd.batch(samples, device=device)
        y = ndd.bb_flip(x, ltrb=True)
        return ndd.random_bbox_crop(
            y, ndd.batch(labels, device=device), **SHAPED, thresholds=[0.0, 0.1],
            output_bbox_indices=True, rng=ndd.random.RNG(5),
        )  # fmt: skip

    same_everywhere(program)
    for mine, theirs in zip(program(), program("gpu"), strict=True):
        assert theirs.device.device_type == "gpu"
        for a, b in zip(arrays(mine), arrays(theirs), strict=True):
            assert a.shape == b.shape and a.tobytes() == b.tobytes()
    one = ndd.random_bbox_crop(ndd.tensor(samples[0]), **SHAPED, thresholds=[0.0, 0.1],
                               rng=ndd.random.RNG(5))  # fmt: skip
    assert not isinstance(one[0], ndd.Batch) and one[2].shape[1] == 4
    many = ndd.random_bbox_crop(ndd.tensor(samples[0]), batch_size=5, scaling=[0.4, 0.6],
                                allow_no_crop=False)  # fmt: skip
    assert many[0].batch_size == 5 and len({tuple(a.tolist()) for a in arrays(many[0])}) == 5


def test_nothing_is_left_for_the_background():
    """The call computes its results at once, so eager mode has nothing to run in another thread."""
    with ndd.EvalMode.eager, ndd.EvalContext(num_threads=1) as context:
        found = ndd.random_bbox_crop(ndd.batch([TWO] * 3), **SHAPED)
        executor = executor_of(context)
        assert executor._pending == [] and executor._worker is None
    assert all(x._node.storage is not None for x in found)


def test_the_last_samples_may_lose_all_boxes():
    """Their (empty) results do not lie behind the memory of the others."""
    samples = [TWO, WHOLE, np.zeros((0, 4), np.float32)]
    found = ndd.random_bbox_crop(
        ndd.batch(samples), ndd.batch([np.int32([1, 2]), np.int32([3]), np.zeros(0, np.int32)]),
        output_bbox_indices=True,
    )[2:]  # fmt: skip
    for x in found:
        node = x._node
        begin, held = node.stored.owner.address, node.stored.owner.nbytes
        item = node.dtype.bytes
        assert (
            (node.stored.addresses >= begin) & (node.stored.addresses + item <= begin + held)
        ).all()
        assert [a.shape[0] for a in arrays(x + 1)] == [2, 1, 0]


def test_per_sample_shapes():
    shapes, crops = [np.int32([50, 80]), np.int32([9, 9])], [np.int32([10, 80]), np.int32([4, 5])]
    start, shape, _ = ndd.random_bbox_crop(
        ndd.batch([WHOLE] * 2), crop_shape=ndd.batch(crops), input_shape=ndd.batch(shapes)
    )
    for a, s, crop, image in zip(arrays(start), arrays(shape), crops, shapes, strict=True):
        assert s.tolist() == crop.tolist() and (a >= 0).all() and (a + s <= image).all()


def test_a_poor_window_is_announced():
    arguments = dict(thresholds=[1.0], scaling=[0.3, 0.5], allow_no_crop=False)
    with pytest.warns(
        UserWarning, match=r"random_bbox_crop: no window of sample 0 was good enough"
    ):
        ndd.random_bbox_crop(TWO, total_num_attempts=3, **arguments)
    with pytest.warns(UserWarning, match=r"the whole image is used"):
        shape = ndd.random_bbox_crop(
            TWO, total_num_attempts=2, scaling=[0.3, 0.4], aspect_ratio=[50.0, 60.0],
            allow_no_crop=False,
        )[1]  # fmt: skip
    assert np.array(shape).tolist() == [1, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ndd.random_bbox_crop(TWO, total_num_attempts=3, quiet=True, **arguments)
    with pytest.warns(UserWarning, match="no window"):
        ndd.random_bbox_crop(TWO, **arguments)  # upstream never returns


CROP = dict(crop_shape=[3, 3], input_shape=[5, 5])
REFUSED = [
    ("boxes must have the shape (n, 4) or (n, 6), got (4,)", lambda: ndd.random_bbox_crop(TWO[0])),
    ("got (2, 5)", lambda: ndd.random_bbox_crop(np.zeros((2, 5), np.float32))),
    ("boxes must lie between 0 and 1, got [0.0, 0.0, 1.5, 1.0] (box 0 of sample 0)",
     lambda: ndd.random_bbox_crop(np.float32([[0, 0, 1.5, 1]]))),
    ("(box 1 of sample 0)", lambda: ndd.random_bbox_crop(np.float32([[0, 0, 1, 1], [np.nan, 0, 1, 1]]))),
    ("there are 1 labels and 2 boxes in sample 0", lambda: ndd.random_bbox_crop(TWO, np.int32([1]))),
    ("`ltrb` and `bbox_layout` exclude each other",
     lambda: ndd.random_bbox_crop(TWO, ltrb=True, bbox_layout="xyXY")),
    ("`bbox_layout` must be a permutation of xyXY or xyWH, got 'xyXH'",
     lambda: ndd.random_bbox_crop(TWO, bbox_layout="xyXH")),
    ("`bbox_layout` must be a permutation of xyzXYZ or xyzWHD, got 'xyXY'",
     lambda: ndd.random_bbox_crop(VOLUME, bbox_layout="xyXY")),
    ("`shape_layout` must be a permutation of WH, got 'XY'",
     lambda: ndd.random_bbox_crop(TWO, shape_layout="XY", **CROP)),
    ("`crop_shape` needs `input_shape`", lambda: ndd.random_bbox_crop(TWO, crop_shape=[3, 3])),
    ("`crop_shape` excludes `scaling` and `aspect_ratio`",
     lambda: ndd.random_bbox_crop(TWO, scaling=[0.1, 1.0], **CROP)),
    ("`crop_shape` must have 2 values, got 1",
     lambda: ndd.random_bbox_crop(TWO, crop_shape=[3], input_shape=[5, 5])),
    ("`input_shape` must be positive, got (0, 5) in sample 0",
     lambda: ndd.random_bbox_crop(TWO, input_shape=[0, 5])),
    ("`scaling` must have 2 values (least, largest), got 1",
     lambda: ndd.random_bbox_crop(TWO, scaling=0.5)),
    ("`scaling` must be a range of positive numbers, got [0.5, 0.2]",
     lambda: ndd.random_bbox_crop(TWO, scaling=[0.5, 0.2])),
    ("`aspect_ratio` must have 2 or 6 values, got 4",
     lambda: ndd.random_bbox_crop(TWO, aspect_ratio=[1, 2, 1, 2])),
    ("`aspect_ratio` must be a range of positive numbers, got [-1.0, 1.0]",
     lambda: ndd.random_bbox_crop(TWO, aspect_ratio=[-1, 1])),
    ("`thresholds` is empty", lambda: ndd.random_bbox_crop(TWO, thresholds=[])),
    ("`thresholds` must lie in [0, 1], got 1.5", lambda: ndd.random_bbox_crop(TWO, thresholds=[1.5])),
    ("`threshold_type` must be one of iou, overlap, got 'area'",
     lambda: ndd.random_bbox_crop(TWO, threshold_type="area")),
    ("`num_attempts` must be positive, got 0", lambda: ndd.random_bbox_crop(TWO, num_attempts=0)),
    ("`total_num_attempts` must be positive, got -5",
     lambda: ndd.random_bbox_crop(TWO, total_num_attempts=-5)),
    ("`bbox_prune_threshold` must lie in [0, 1], got 1.5",
     lambda: ndd.random_bbox_crop(TWO, bbox_prune_threshold=1.5)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "program"), REFUSED, ids=[t for t, _ in REFUSED])
def test_errors(text, program):
    error_everywhere(ValueError, text, program)


def test_wrong_types():
    error_everywhere(
        TypeError, "random_bbox_crop: boxes must be float32, got f64",
        lambda: ndd.random_bbox_crop(TWO.astype(np.float64)),
    )  # fmt: skip
