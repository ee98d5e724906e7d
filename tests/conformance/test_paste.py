"""paste and multi_paste against the oracle."""

from __future__ import annotations

import numpy as np
import pytest

import ndd

from ..helpers import arrays, kernels, nothing_compiled
from .modes import error_everywhere, same_everywhere
from .oracle import check, ndd_call, per_sample
from .test_color import images

SIZES = [(9, 12), (7, 8), (16, 11)]

# -- paste ---------------------------------------------------------------------------------------


def paste(x, **kwargs):
    return check("paste", x, layout="HWC", fill_value=[7, 200, 300], **kwargs)


def test_paste():
    x = images(sizes=SIZES)
    paste(x, ratio=1.5)
    paste(x, ratio=1.0)
    paste(x, ratio=2.7, paste_x=0.0, paste_y=1.0)
    paste(x, ratio=1.5, min_canvas_size=17.9)
    paste(x, ratio=per_sample([1.1, 3.0, 1.0]), paste_x=per_sample([0.1, 0.9, 1.0]))
    paste(x, ratio=1.3, min_canvas_size=per_sample([0.0, 40.0, 18.0]), batch=False)
    check("paste", x, layout="HWC", ratio=1.5, fill_value=[-1])
    check("paste", x, ratio=1.5, fill_value=9)
    check(
        "paste", images(channels=4, sizes=SIZES), ratio=1.5, fill_value=[1, 2, 3, 4], n_channels=4
    )
    check("paste", images(channels=1, sizes=[(1, 1), (0, 5)]), ratio=2.5, fill_value=[5],
          n_channels=1)  # fmt: skip


def test_paste_rounds_in_single_precision():
    """Tenths times extents are often just below or above an integer."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 30, (300, 2))
    x = images(channels=1, sizes=[tuple(s) for s in sizes.tolist()])
    tenths = [per_sample(list((rng.integers(*r, 300) / 10).astype(np.float32)))
              for r in ((10, 30), (0, 11), (0, 11))]  # fmt: skip
    check("paste", x, layout="HWC", ratio=tenths[0], paste_x=tenths[1], paste_y=tenths[2],
          fill_value=[1], n_channels=1)  # fmt: skip


@pytest.mark.parametrize("dtype", ["int16", "uint16", "float16", "float32"])
def test_paste_other_types(dtype):
    """Upstream pastes only bytes."""
    (x,) = images(dtype, sizes=[(3, 4)])
    (got,) = ndd_call("paste", x, layout="HWC", ratio=2.0, fill_value=[1, 2, 3], paste_x=1.0)
    want = np.tile(np.array([1, 2, 3], x.dtype), (6, 8, 1))
    want[1:4, 4:] = x
    assert got.arrays[0].dtype == x.dtype and np.array_equal(got.arrays[0], want)


# -- multi_paste ---------------------------------------------------------------------------------


def regions(rng, extents, canvas, count):
    """Random sources, shapes and places that fit."""
    shape = rng.integers(0, np.minimum(extents, canvas) + 1, (count, 2))
    start = rng.integers(0, extents - shape + 1)
    place = rng.integers(0, np.asarray(canvas) - shape + 1)
    return [v.astype(np.int32) for v in (start, shape, place)]


def test_one_input():
    x = images(sizes=[(6, 5)] * 3)
    check("multi_paste", x, layout="HWC")
    check("multi_paste", x, output_size=[8, 9])
    check("multi_paste", x, batch=False, output_size=[6, 7])
    check("multi_paste", x, in_ids=[2, 0], output_size=[9, 9])
    check("multi_paste", x, in_ids=1)
    check("multi_paste", images(sizes=SIZES), output_size=[16, 12])
    sizes = per_sample([[9, 12], [8, 9], [16, 16]])
    check("multi_paste", images(sizes=SIZES), output_size=sizes)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float32"])
def test_regions_that_overlap(dtype):
    """A different number of regions in every sample, none in one of them."""
    rng = np.random.default_rng(1)
    x = images(dtype, sizes=SIZES)
    canvas = np.int32([[14, 15], [6, 9], [20, 4]])
    ids = [np.int32([2, 0, 1, 1, 0]), np.int32([0, 1]), np.int32([])]
    parts = []
    for s, row in enumerate(ids):
        extents = np.array([x[i].shape[:2] for i in row], np.int64).reshape(-1, 2)
        parts.append(regions(rng, extents, canvas[s], len(row)))
    start, shape, place = (per_sample([p[k] for p in parts], np.int32) for k in range(3))
    common = dict(in_ids=per_sample(ids, np.int32), output_size=per_sample(list(canvas)))
    check("multi_paste", x, layout="HWC", **common, in_anchors=start, shapes=shape,
          out_anchors=place)  # fmt: skip
    check("multi_paste", x, layout="HWC", **common, shapes=shape, out_anchors=place)


def test_several_inputs():
    x, y, z = (images(sizes=SIZES, lead=()) for _ in range(3))
    y, z = ([np.roll(a, k, axis=1) for a in part] for k, part in ((1, y), (2, z)))
    places = np.int32([[0, 0], [3, 1], [1, 2]])
    check("multi_paste", x, y, z, layout="HWC", output_size=[20, 15], out_anchors=places)
    shapes = per_sample([np.int32([[7, 8], [1, 1], [3, 5]])] * 3, np.int32)
    check(
        "multi_paste",
        x,
        y,
        z,
        output_size=[20, 15],
        shapes=shapes,
        in_anchors=np.zeros_like(places),
    )
    check("multi_paste", x, y, output_size=[16, 12])


def test_relative_regions():
    """Anchors are rounded down and shapes up, in single precision."""
    rng = np.random.default_rng(2)
    count = 300
    sizes = rng.integers(1, 30, (count, 2))
    x = images(channels=1, sizes=[tuple(s) for s in sizes.tolist()])
    tenths = [(rng.integers(0, 11, (count, 1, 2)) / 10).astype(np.float32) for _ in range(2)]
    check("multi_paste", x, output_size=[30, 30], shapes_rel=per_sample(list(tenths[0])))
    check("multi_paste", x, output_size=[30, 30], in_anchors_rel=per_sample(list(tenths[0])))
    points = images(channels=1, sizes=[(1, 1)] * count)
    check("multi_paste", points, output_size=per_sample(list(sizes.astype(np.int32))),
          out_anchors_rel=per_sample(list(np.minimum(tenths[1], np.float32(0.9)))))  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "out"), [("float32", "uint8"), ("uint8", "float32"), ("int32", "int16")]
)
def test_other_type(dtype, out):
    x = images(dtype, sizes=SIZES)
    check("multi_paste", x, output_size=[16, 13], dtype=out)
    halves = [np.float32([[[0.5], [1.5], [2.5], [-0.5], [300.0], [-7.0]]])]
    check("multi_paste", halves, output_size=[2, 6], dtype="uint8")


def test_channels_may_differ_between_samples():
    x = [np.ones((2, 3, c), np.uint8) * c for c in (2, 3, 1)]
    check("multi_paste", x, layout="HWC", output_size=[3, 3])


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint16", "int64"])
def test_types_that_upstream_lacks(dtype):
    (x,) = images(dtype, sizes=[(2, 3)])
    (got,) = ndd_call("multi_paste", x, output_size=[3, 4], out_anchors=np.int32([[1, 1]]))
    want = np.zeros((3, 4, 3), x.dtype)
    want[1:, 1:] = x
    assert np.array_equal(got.arrays[0], want)


def test_sequences():
    """Upstream fails for all sequences ("kernel instance is of different type")."""
    x = images(lead=(2,), sizes=[(3, 4), (3, 4)])
    anchors = [[0, 0], [1, 2]]
    (got,) = ndd_call("multi_paste", x, layout="FHWC", in_ids=[0, 1], output_size=[5, 7],
                      out_anchors=anchors)  # fmt: skip
    want = np.zeros((2, 5, 7, 3), np.uint8)
    want[:, :3, :4] = x[0]
    want[:, 1:4, 2:6] = x[1]
    assert got.layout == "FHWC" and all(np.array_equal(a, want) for a in got.arrays)


def test_many_regions():
    """A mosaic of 40 tiles, against NumPy."""
    rng = np.random.default_rng(3)
    x = images(sizes=[(9, 9)] * 4)
    ids = rng.integers(0, 4, 40).astype(np.int32)
    start, shape, place = regions(rng, np.full((40, 2), 9), (50, 60), 40)
    args = dict(in_ids=ids, in_anchors=start, shapes=shape, out_anchors=place)
    (got,) = check("multi_paste", x, layout="HWC", output_size=[50, 60], **args)
    want = np.zeros((50, 60, 3), np.uint8)
    for i, (r, c), (h, w), (y, z) in zip(ids, start, shape, place, strict=True):
        want[y : y + h, z : z + w] = x[i][r : r + h, c : c + w]
    assert np.array_equal(got.arrays[0], want) and len(np.unique(want)) > 100


@pytest.mark.parametrize("threads", [1, 3])
def test_many_regions_of_sequences(threads):
    """Sources and canvases of several sizes; samples have six, no and five regions."""
    rng = np.random.default_rng(4)
    extents = [(9, 8), (5, 12), (11, 6)]
    x = [rng.integers(1, 256, (3, h, w, 2)).astype(np.uint16) for h, w in extents]
    ids = [rng.integers(0, 3, n).astype(np.int32) for n in (6, 0, 5)]
    sizes = np.int32([[20, 15], [7, 9], [16, 21]])
    regions_of = [[], [], []]
    for s, chosen in enumerate(ids):
        for i in chosen:
            shape = rng.integers(1, 6, 2)
            start = rng.integers(0, np.array(extents[i]) - shape + 1)
            regions_of[s].append((start, shape, rng.integers(0, sizes[s] - shape + 1)))
    start, shape, place = (
        ndd.batch([np.int32([r[k] for r in rows]).reshape(-1, 2) for rows in regions_of])
        for k in range(3)
    )
    with ndd.EvalContext(num_threads=threads):
        got = ndd.multi_paste(
            ndd.batch(x, layout="FHWC"), in_ids=ndd.batch(ids), in_anchors=start, shapes=shape,
            out_anchors=place, output_size=ndd.batch(list(sizes)),
        )  # fmt: skip
        found = arrays(got)
    for s, (rows, chosen) in enumerate(zip(regions_of, ids, strict=True)):
        want = np.zeros((3, *sizes[s], 2), np.uint16)
        for i, ((r, c), (h, w), (y, z)) in zip(chosen, rows, strict=True):
            want[:, y : y + h, z : z + w] = x[i][:, r : r + h, c : c + w]
        assert np.array_equal(found[s], want)


def test_fuses_with_its_neighbours():
    x = ndd.batch(images(sizes=SIZES), layout="HWC")

    def program(size, place):
        canvas = ndd.paste(ndd.brightness(x, brightness=1.5), ratio=1.5, fill_value=[1, 2, 3])
        both = ndd.multi_paste(x, canvas, output_size=size, out_anchors=[[0, 0], place])
        return ndd.flip(both) + 1

    with ndd.EvalMode.deferred:
        y = program([30, 30], [1, 2])
        assert kernels(y) == 1
        arrays(y)
        with nothing_compiled():
            arrays(program([40, 31], [3, 0]))


def test_modes_and_devices(monkeypatch):
    monkeypatch.setenv("NDD_GPU", "simulate")
    x = images(sizes=SIZES)

    def program(device=None):
        b = ndd.batch(x, layout="HWC", device=device)
        canvas = ndd.paste(b, ratio=ndd.batch([1.0, 2.0, 1.5]), fill_value=[1, 2, 3], paste_x=0.2)
        ids = ndd.batch([np.int32([1, 0]), np.int32([2]), np.int32([0, 1, 2])])
        return canvas, ndd.multi_paste(b, in_ids=ids, output_size=[16, 12], dtype=ndd.float32)

    same_everywhere(program)
    for ours, theirs in zip(program(), program("gpu"), strict=True):
        for a, b in zip(arrays(ours), arrays(theirs), strict=True):
            assert a.shape == b.shape and a.tobytes() == b.tobytes()


def test_errors():
    (image,) = images(sizes=[(3, 4)])
    x = ndd.batch(images(sizes=SIZES), layout="HWC")

    def refused(text, program, kind=ValueError):
        error_everywhere(kind, text, program)

    refused("`ratio` must be at least 1, got 0.5 for sample 0",
            lambda: ndd.paste(image, ratio=0.5, fill_value=[1]))  # fmt: skip
    refused("`paste_x` must lie in [0, 1], got 1.5 for sample 0",
            lambda: ndd.paste(image, ratio=2.0, fill_value=[1], paste_x=1.5))  # fmt: skip
    refused("`paste_y` must lie in [0, 1], got nan for sample 0",
            lambda: ndd.paste(image, ratio=2.0, fill_value=[1], paste_y=float("nan")))  # fmt: skip
    refused("`ratio` is out of range: inf",
            lambda: ndd.paste(image, ratio=float("inf"), fill_value=[1]))  # fmt: skip
    refused("the result is too large", lambda: ndd.paste(image, ratio=1e9, fill_value=[1]))
    refused("`fill_value` must have 1 or 3 (`n_channels`) values, got 2",
            lambda: ndd.paste(image, ratio=2.0, fill_value=[1, 2]))  # fmt: skip
    refused("`fill_value` has 3 values, but sample 0 has 1 channels",
            lambda: ndd.paste(image[..., :1].copy(), ratio=2.0, fill_value=[1, 2, 3]))  # fmt: skip
    refused("the layout 'CHW' does not match",
            lambda: ndd.paste(ndd.tensor(image, layout="CHW"), ratio=2.0, fill_value=[1]))  # fmt: skip

    paste = ndd.multi_paste
    refused("inputs of different sizes need `output_size`", lambda: paste(x))
    refused("`in_ids` of sample 0 names sample 3 of a batch of 3",
            lambda: paste(x, in_ids=[3], output_size=[20, 20]), IndexError)  # fmt: skip
    refused("`in_ids` chooses samples of one input, got 2 inputs",
            lambda: paste(x, x, in_ids=[0], output_size=[20, 20]))  # fmt: skip
    refused("region 0 of sample 0 leaves the canvas: start (0, 0), shape (9, 12), canvas (8, 20)",
            lambda: paste(x, output_size=[8, 20]))  # fmt: skip
    refused("region 0 of sample 0 leaves the source: start (1, 1), shape (9, 2), source (9, 12)",
            lambda: paste(x, output_size=[20, 20], in_anchors=[[1, 1]], shapes=[[9, 2]]))  # fmt: skip
    refused("`out_anchors` must have a row of 2 numbers for each of the 2 regions of sample 0, got "
            "shape (1, 2)", lambda: paste(x, x, output_size=[20, 20], out_anchors=[[1, 1]]))  # fmt: skip
    refused("`shapes` and `shapes_rel` exclude each other",
            lambda: paste(x, output_size=[20, 20], shapes=[[1, 1]], shapes_rel=[[1.0, 1.0]]))  # fmt: skip
    refused("inputs must have one type, got u8 and i16 (input 1)",
            lambda: paste(x, ndd.cast(x, dtype=ndd.int16), output_size=[20, 20]), TypeError)  # fmt: skip
    refused("regions of sample 0 differ in channels: (3,) and (1,) (region 1)",
            lambda: paste(x, ndd.batch(images(channels=1, sizes=SIZES)), output_size=[20, 20]))  # fmt: skip
    refused("`output_size` must have 2 values", lambda: paste(x, output_size=[20]))
    refused("`shapes_rel` is out of range: nan",
            lambda: paste(x, output_size=[20, 20], shapes_rel=[[float("nan"), 1.0]]))  # fmt: skip
    refused("inputs must be images (HWC) or all sequences (FHWC), got layout 'CHW'",
            lambda: paste(ndd.tensor(image, layout="CHW")))  # fmt: skip
