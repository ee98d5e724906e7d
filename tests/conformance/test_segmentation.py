"""ndd.segmentation against the oracle: equal supports, equal odds, polygons, modes, errors."""

from __future__ import annotations

from collections import Counter

import numpy as np
import nvidia.dali.experimental.dynamic as upstream
import pytest

import ndd
from ndd.ops.segmentation import objects

from ..helpers import arrays
from .modes import error_everywhere, same_everywhere
from .oracle import _call, _results, check, record_draws

OBJECT, PIXEL = "segmentation.random_object_bbox", "segmentation.random_mask_pixel"
COUNT = 400
SMALL = np.zeros((6, 8), np.uint8)
SMALL[[0, 1, 5], [0, 1, 7]] = 1
SMALL[3:5, 2:6] = 2
NOISE = np.random.default_rng(0).integers(0, 4, (5, 7)).astype(np.uint8)
VOLUME = np.random.default_rng(1).integers(0, 3, (3, 3, 4)).astype(np.int16)
LABELS = "bool int8 uint8 int16 uint16 int32 uint32".split()


def counted(lib, op, mask, count=COUNT, seed=1, **kwargs):
    """How often each result appears."""
    inputs = [lib.batch([np.ascontiguousarray(mask)] * count)]
    found = [
        r.arrays for r in _results(_call(lib, op, inputs, {**kwargs, "rng": lib.random.RNG(seed)}))
    ]
    assert all(a.dtype == (np.int64 if op is PIXEL else np.int32) for v in found for a in v)
    return Counter(
        tuple(np.concatenate([np.atleast_1d(v) for v in row]).tolist())
        for row in zip(*found, strict=True)
    )


def same_odds(op, mask, **kwargs):
    ours, theirs = counted(ndd, op, mask, **kwargs), counted(upstream, op, mask, **kwargs)
    record_draws(op, ours, theirs)
    names = ours.keys() | theirs.keys()
    rare = {n for n in names if ours[n] + theirs[n] < 20}
    assert ours.keys() - rare == theirs.keys() - rare, (kwargs, ours, theirs)
    # the sum of squared differences over sums has the mean and half the variance of χ²
    square = sum((ours[n] - theirs[n]) ** 2 / (ours[n] + theirs[n]) for n in names)
    freedom = max(len(names) - 1, 1)
    assert square < freedom + 5 * (2 * freedom) ** 0.5, (kwargs, ours, theirs)


@pytest.mark.parametrize(
    "arguments",
    [
        {}, {"ignore_class": True}, {"foreground_prob": 0.3, "output_class": True},
        {"k_largest": 2, "format": "box"}, {"threshold": 2, "format": "start_end"},
        {"threshold": 2, "k_largest": 1, "ignore_class": True},
        {"background": 1, "output_class": True}, {"classes": [2], "output_class": True},
        {"classes": [1, 2], "class_weights": [0.2, 0.8], "output_class": True},
        {"class_weights": [0.2, 0.8], "output_class": True},
        {"class_weights": [0.2, 0.8], "background": 1, "output_class": True},
        {"classes": [0, 1], "foreground_prob": 0.5, "output_class": True},
        {"classes": [77], "output_class": True}, {"class_weights": [0.0, 0.0]},
        {"cache_objects": True, "ignore_class": True},
    ],
    ids=str,
)  # fmt: skip
def test_objects(arguments):
    for mask in (SMALL, NOISE, VOLUME):
        same_odds(OBJECT, mask, **arguments)


def test_objects_of_all_types_and_ranks():
    want = counted(ndd, OBJECT, SMALL, 50)
    for name in LABELS[1:]:
        assert counted(ndd, OBJECT, SMALL.astype(name), 50) == want
    same_odds(OBJECT, SMALL.astype(bool))
    same_odds(OBJECT, SMALL[3])
    same_odds(OBJECT, NOISE.reshape(1, 5, 1, 7), output_class=True)
    same_odds(OBJECT, np.zeros((0, 4), np.uint8))
    same_odds(OBJECT, np.int16([[-3, 0, -3], [7, 0, 7]]), output_class=True)
    same_odds(OBJECT, np.uint32([[2**31 + 3, 0, 5]]), output_class=True)


def slow_objects(labels):
    """Labels and boxes of all objects, by flooding."""
    seen, found = np.zeros(labels.shape, bool), []
    for start in np.ndindex(labels.shape):
        if seen[start]:
            continue
        todo, places = [start], []
        seen[start] = True
        while todo:
            p = todo.pop()
            places.append(p)
            for axis in range(labels.ndim):
                for step in (-1, 1):
                    q = (*p[:axis], p[axis] + step, *p[axis + 1 :])
                    inside = 0 <= q[axis] < labels.shape[axis]
                    if inside and not seen[q] and labels[q] == labels[p]:
                        seen[q] = True
                        todo.append(q)
        box = np.array(places)
        found.append((int(labels[start]), box.min(0).tolist(), (box.max(0) + 1).tolist()))
    return found


def test_every_object_is_found():
    """Random maps with few and many objects, spirals, odd widths, all ranks."""
    rng = np.random.default_rng(3)
    spiral = np.zeros((15, 33), np.uint8)
    for k in range(0, 7, 2):
        spiral[k : 15 - k, k : 33 - k] = (k // 2) % 2 + 1
        spiral[k + 1, k] = 0
    maps = [spiral, np.ones((1, 1), np.uint8)]
    for shape in ((40,), (9, 31), (17, 64), (4, 5, 9), (2, 3, 2, 3, 2, 5)):
        for classes in (2, 5):
            maps.append(rng.integers(0, classes, shape).astype(np.uint8))
            maps.append(np.repeat(maps[-1], 3, axis=-1).astype(np.int32) - 1)
    for labels in maps:
        got = objects._search(labels, None)
        mine = [(int(n), *b.tolist()) for n, b in zip(got.labels, got.boxes, strict=True)]
        assert mine == slow_objects(labels)
        rest = objects._search(labels, 1)
        assert [int(n) for n in rest.labels] == [n for n, *_ in mine if n != 1]


def test_remembered_objects(monkeypatch):
    """A map that was seen before is not searched again; a changed one is."""
    objects._known.clear()
    searched = []
    search = objects._search
    monkeypatch.setattr(objects, "_search", lambda *a: searched.append(1) or search(*a))
    find = lambda m, **k: [
        a.tolist()
        for o in ndd.segmentation.random_object_bbox(
            ndd.batch([m, SMALL]), rng=ndd.random.RNG(4), **k
        )
        for a in arrays(o)
    ]
    want = find(SMALL)
    assert len(searched) == 2
    assert find(SMALL, cache_objects=True) == want and find(SMALL, cache_objects=True) == want
    assert len(searched) == 4  # two samples alike, searched together, once
    for k in range(SMALL.size):
        changed = SMALL.copy()
        changed.flat[k] += 1
        assert find(changed, cache_objects=True) == find(changed)
    assert len(objects._known) == 1 + SMALL.size
    assert find(SMALL.astype(np.int8), cache_objects=True) == want
    assert find(SMALL, cache_objects=True, background=1) == find(SMALL, background=1)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"foreground": 1}, {"foreground": -7, "threshold": 1.0}, {"foreground": 1, "threshold": 0.5},
     {"foreground": 1, "threshold": -1.0}, {"foreground": 1, "value": 1},
     {"foreground": 1, "value": 9}, {"foreground": 1, "value": 257}, {"foreground": 1, "threshold": 9.0}],
    ids=str,
)  # fmt: skip
def test_pixels(arguments):
    same_odds(PIXEL, SMALL, **arguments)
    same_odds(PIXEL, SMALL.astype(np.float32)[None], **arguments)


def test_pixels_of_all_types():
    want = counted(ndd, PIXEL, SMALL, 50, foreground=1)
    for name in (*LABELS, "int64", "uint64", "float16", "float32", "float64"):
        assert counted(ndd, PIXEL, SMALL.astype(name), 50, foreground=1) == want
    large = np.zeros((300, 400), np.uint8)
    large[[7, 299, 299], [3, 0, 399]] = 1
    assert counted(ndd, PIXEL, large, 60, foreground=1).keys() == {(7, 3), (299, 0), (299, 399)}
    huge = np.int64([2**53, 2**53 + 1])
    assert counted(ndd, PIXEL, huge, 9, foreground=1, threshold=2.0**53).keys() == {(1,)}


POLYGONS = np.int32([[0, 0, 3], [1, 3, 7], [2, 7, 10]])
VERTICES = np.arange(20, dtype=np.float32).reshape(10, 2)


def test_select_masks():
    def select(ids, *rest, **kwargs):
        return check("segmentation.select_masks", np.int32(ids), *rest, **kwargs)

    for reindexes in (False, True):
        for ids in ([1], [2, 0], [], [0, 1, 2]):
            select(ids, POLYGONS, VERTICES, reindex_masks=reindexes)
    select([1, 0], np.int32([[0, 0, 5], [1, 3, 7]]), VERTICES)  # shared vertices
    select([1], np.int32([[1, 5, 6], [2, 5, 300]]), VERTICES)  # what is not chosen may be wrong
    for name in (*LABELS, "int64", "uint64", "float16", "float64"):
        select([2, 1], POLYGONS, VERTICES.astype(name))
    select([2, 1], POLYGONS, np.arange(30, dtype=np.float32).reshape(10, 3))
    ids = [np.int32([1]), np.int32([0, 2]), np.int32([])]
    check("segmentation.select_masks", ids, [POLYGONS] * 3, [VERTICES, VERTICES + 1, VERTICES])


def test_all_polygons_of_a_mask_are_kept():
    """Upstream keeps only the last one."""
    pieces = np.int32([[1, 0, 3], [2, 3, 5], [1, 5, 8]])
    chosen, points = ndd.segmentation.select_masks(np.int32([1]), pieces, VERTICES)
    assert np.array(chosen).tolist() == [[1, 0, 3], [1, 3, 6]]
    assert np.array(points).tolist() == VERTICES[[0, 1, 2, 5, 6, 7]].tolist()


def test_modes_threads_and_devices(monkeypatch):
    monkeypatch.setenv("NDD_GPU", "simulate")
    masks = [SMALL, NOISE, np.repeat(SMALL, 3, axis=0), NOISE[:1]]

    def program(device=None):
        rng = ndd.random.RNG(8)
        x = ndd.transpose(ndd.batch(masks, device=device), perm=[1, 0])
        s = ndd.segmentation
        boxes = s.random_object_bbox(
            x, foreground_prob=ndd.batch(np.float32([1, 0.5, 1, 1])), output_class=True, rng=rng,
            classes=ndd.batch([np.int32(c) for c in ([1], [1, 2], [2, 3], [])]),
        )  # fmt: skip
        pixel = s.random_mask_pixel(x, foreground=ndd.batch(np.int32([1, 0, 1, 1])), rng=rng)
        ids, pieces, points = (
            ndd.batch([a] * 2, device=device) for a in (np.int32([2, 0]), POLYGONS, VERTICES)
        )
        return *boxes, pixel, *s.select_masks(ids, pieces, points)

    same_everywhere(program)
    for mine, theirs in zip(program(), program("gpu"), strict=True):
        assert theirs.device.device_type == "gpu"
        for a, b in zip(arrays(mine), arrays(theirs), strict=True):
            assert a.shape == b.shape and a.tobytes() == b.tobytes()
    with ndd.EvalContext(num_threads=8):
        again = program()
    for mine, other in zip(program(), again, strict=True):
        assert [a.tolist() for a in arrays(mine)] == [a.tolist() for a in arrays(other)]


find, pixel, select = (
    ndd.segmentation.random_object_bbox, ndd.segmentation.random_mask_pixel,
    ndd.segmentation.select_masks,
)  # fmt: skip
REFUSED = [
    ("label maps must have 1 to 6 dimensions, got 7",
     lambda: find(np.zeros((1,) * 7, np.uint8))),
    ("`k_largest` must be at least 1, got 0", lambda: find(SMALL, k_largest=0)),
    ("`ignore_class` excludes `classes`, `class_weights` and `output_class`",
     lambda: find(SMALL, ignore_class=True, output_class=True)),
    ("`threshold` must have 1 or 2 values, got 3", lambda: find(SMALL, threshold=[1, 2, 3])),
    ("`format` must be one of anchor_shape, start_end, box, got 'x'", lambda: find(SMALL, format="x")),
    ("`class_weights` must have as many values as `classes`: got 1 and 2 in sample 0",
     lambda: find(SMALL, classes=[1, 2], class_weights=[1.0])),
    ("`classes` contains the background label 2 in sample 0",
     lambda: find(SMALL, classes=[1, 2], background=2)),
    ("`class_weights` must be finite, got [nan]", lambda: find(SMALL, class_weights=[np.nan])),
    ("`threshold` and `value` exclude each other", lambda: pixel(SMALL, threshold=0.5, value=1)),
    ("masks must have at least 1 dimension, got a number", lambda: pixel(np.uint8(1))),
    ("masks must not be empty, got shape (0, 4) in sample 0",
     lambda: pixel(np.zeros((0, 4), np.uint8))),
    ("`mask_ids` must have 1 dimensions, got 2",
     lambda: select(np.int32([[1]]), POLYGONS, VERTICES)),
    ("`polygons` must have 3 columns (mask, first vertex, end), got shape (3, 2) in sample 0",
     lambda: select(np.int32([1]), POLYGONS[:, :2].copy(), VERTICES)),
    ("`vertices` must have 2 dimensions, got 1",
     lambda: select(np.int32([1]), POLYGONS, VERTICES[0].copy())),
    ("mask 5 of `mask_ids` has no polygon in sample 0",
     lambda: select(np.int32([1, 5]), POLYGONS, VERTICES)),
    ("mask 1 of `mask_ids` is repeated in sample 0",
     lambda: select(np.int32([1, 1]), POLYGONS, VERTICES)),
    ("polygon 0 of sample 0 ends before it begins: 5 to 3",
     lambda: select(np.int32([1]), np.int32([[1, 5, 3]]), VERTICES)),
    ("polygon 0 of sample 0 has the vertices -3 to 3, but there are 10",
     lambda: select(np.int32([1]), np.int32([[1, -3, 3]]), VERTICES)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "program"), REFUSED, ids=[t for t, _ in REFUSED])
def test_errors(text, program):
    error_everywhere(ValueError, text, program)


def test_wrong_types():
    for text, program in (
        (
            "labels must be integers of up to 32 bits, got f32",
            lambda: find(SMALL.astype(np.float32)),
        ),
        ("`mask_ids` must be int32, got i64", lambda: select(np.int64([1]), POLYGONS, VERTICES)),
    ):
        error_everywhere(
            TypeError, f"segmentation.{'random' if 'labels' in text else 'select'}", program
        )
        error_everywhere(TypeError, text, program)
