"""Plans and tables of reductions: what is fused into them, what stays hot, what is bound again."""

from __future__ import annotations

from itertools import product
from typing import Any

import cv2
import numpy as np
import pytest

import ndd
from ndd.core import known_graphs
from ndd.core.schema import OPS
from ndd.fusion.graph.shapes import Shapes
from ndd.fusion.kinds.reduce import merged_dimensions
from ndd.fusion.run import binder, pipeline
from ndd.kernels.ir import dtypes as dt
from ndd.kernels.ir import expr as ex
from ndd.kernels.ir.reduction import bits_of
from tests.decoders.fixtures import as_bytes, encoded, photo
from tests.helpers import arrays, assert_same, kernels

R = ndd.reductions


def images(count: int = 3, size: tuple[int, int] = (40, 50), seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    made = [rng.integers(0, 256, (*size, 3), dtype=np.uint8) for _ in range(count)]
    return ndd.batch(made, layout="HWC")


def groups(x: Any) -> list[tuple[str, ...]]:
    return [g.ops for g in ndd.explain(x).groups]


def test_pointwise_work_is_done_inside_of_the_reduction() -> None:
    with ndd.EvalMode.deferred:
        found = ndd.explain(R.mean(ndd.brightness(images(), brightness=0.5) * 2.0, axes=[0, 1]))
    assert len(found.groups) == 1
    group = found.groups[0]
    assert group.read_bytes < 3 * 40 * 50 * 3 + 64 and group.written_bytes == 3 * 3 * 4


def test_channels_that_are_computed_differently_are_stored_before_a_loop_over_them() -> None:
    with ndd.EvalMode.deferred:
        x = images()
        twisted = ndd.explain(R.mean(ndd.color_twist(x, hue=20.0)))
        reason = "reductions.mean loops over channels that are computed differently"
        assert twisted.groups[0].reason == reason
        by_channel = x * ndd.tensor(np.float32([1, 2, 3]))
        assert len(groups(R.mean(by_channel * 2.0))) == 2
        assert len(groups(R.mean(x * 2.0))) == 1
        for axes in ([0, 1], [1]):  # channels are not reduced
            assert len(groups(R.mean(ndd.color_twist(x, hue=20.0), axes=axes))) == 1


def test_one_kernel_sums_integers_and_their_squares() -> None:
    """It also computes what follows from both sums, and stores the mean if someone reads it."""
    with ndd.EvalMode.deferred:
        x = images()
        for axes in (None, [0, 1], [1]):
            assert len(groups(R.variance(x, R.mean(x, axes=axes), axes=axes))) == 1
            mean = R.mean(x, axes=axes)
            deviation = R.std_dev(x, mean, axes=axes)
            assert kernels(mean, deviation) == 1
        assert len(groups(ndd.normalize(x, axes=[0, 1]))) == 2
        assert len(groups(ndd.normalize(x, mean=120.0))) == 2
        # A mean along other axes needs other loops, and sums of floats have an order.
        assert len(groups(R.variance(x, R.mean(x), axes=[0, 1]))) == 2
        y = x * 0.5
        assert len(groups(R.variance(y, R.mean(y)))) == 2


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
def test_sums_and_squares_of_one_kernel_are_those_of_two(
    dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For extreme values, and for runs that are longer than the lanes of a block can hold."""
    info, rng = np.iinfo(dtype), np.random.default_rng(7)

    def both() -> list[list[np.ndarray]]:
        found = []
        for (shape, layout), low in product(
            [((300, 70, 3), "HWC"), ((700, 100), "HW"), ((3, 5, 41), "CHW"), ((1, 1, 4), "HWC")],
            (info.min, info.max),
        ):
            made = [rng.integers(low, info.max, shape, dtype, endpoint=True) for _ in range(2)]
            x = ndd.batch(made, layout=layout)
            for axes in (None, [0, 1], [1]):
                mean = R.mean(x, axes=axes)
                found.append(arrays(R.variance(x, mean, axes=axes)) + arrays(mean))
        return found

    with ndd.EvalMode.deferred:
        together, rng = both(), np.random.default_rng(7)
        monkeypatch.setenv("NDD_FUSION", "0")
        for got, wanted in zip(together, both(), strict=True):
            assert_same(got, wanted)


def test_known_graphs_are_those_that_the_body_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second call of the same kind copies the nodes of the first, for its own inputs."""

    def calls(x: Any, y: Any) -> list[Any]:
        row = ndd.batch([np.arange(3, dtype=np.uint8)] * x.batch_size)
        a, b = (ndd.batch([np.float32(v)] * x.batch_size) for v in (1, 2))
        return [
            R.variance(x, R.mean(x)), R.sum(y, axes=[0], keep_dims=True), R.variance(row, row, axes=[]),
            ndd.normalize(x, mean=3.0), ndd.normalize(x, mean=4.0), ndd.normalize(y, epsilon=1.0),
            ndd.normalize(x, shift=1.0), ndd.normalize(x, scale=2.0, shift=2.0), ndd.equalize(x),
            R.max(x, axis_names="HW"), R.std_dev(a, a), R.std_dev(a, b),
        ]  # fmt: skip

    sizes = ((4, 6), (4, 6), (6, 4), (4, 6))
    batches = [(images(3, s, k), images(3, s, k + 9)) for k, s in enumerate(sizes)]
    with ndd.EvalMode.deferred:
        known = [[arrays(v) for v in calls(*b)] for b in batches]
        monkeypatch.setattr(known_graphs, "_key", lambda *_: None)
        built = [[arrays(v) for v in calls(*b)] for b in batches]
        monkeypatch.undo()

        def body(*_: Any, **__: Any) -> None:
            raise AssertionError("the body ran again")

        monkeypatch.setattr(OPS["reductions.mean"], "body", body)
        R.mean(images(3, (6, 4), 5)).evaluate()
    for got, wanted in zip(known, built, strict=True):
        for g, w in zip(got, wanted, strict=True):
            assert_same(g, w)


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_decoded_image_is_normalised_while_it_is_hot(
    monkeypatch: pytest.MonkeyPatch, by_hand: bool
) -> None:
    """No batch of decoded images exists: only the result gets memory of its own."""
    files = ndd.batch([as_bytes(encoded(".jpg", photo(120, 160, s))) for s in range(3)])
    taken: list[int] = []

    def allocate(shapes: Shapes, itemsize: int) -> Any:
        taken.append(shapes.packed(itemsize)[1])
        return original(shapes, itemsize)

    original = pipeline.allocate
    monkeypatch.setattr(pipeline, "allocate", allocate)
    with ndd.EvalMode.deferred:
        x = ndd.decoders.image(files)
        y = x - R.mean(x, axes=[0, 1]) if by_hand else ndd.normalize(x, axes=[0, 1])
        del x
        assert "each sample stays in scratch memory until group 2" in str(ndd.explain(y))
        y.evaluate()
    assert taken == [3 * 120 * 160 * 3 * 4]


def counted_tables(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets an element for each table that is filled anew; all templates are dropped."""
    made: list[int] = []

    def table(self: Any, *arguments: Any) -> Any:
        made.append(1)
        return original(self, *arguments)

    original = binder.Binder.table
    monkeypatch.setattr(binder.Binder, "table", table)
    binder._templates.clear()
    return made


def test_uniform_batches_use_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that was made for a shape serves the next batch of that shape, and no other."""
    made = counted_tables(monkeypatch)
    for repeat in range(3):
        for k, size in enumerate(((40, 50), (50, 40), (7, 3))):
            made.clear()
            x = images(2 + k, size, seed=repeat)
            for got, image in zip(arrays(ndd.normalize(x, axes=[0, 1])), arrays(x), strict=True):
                wide = image.astype(np.float64)
                mean, deviation = wide.mean(axis=(0, 1)), wide.std(axis=(0, 1))
                np.testing.assert_allclose(got, (wide - mean) / deviation, atol=1e-5)
            assert len(made) == (2 if repeat == 0 else 0), (size, repeat)


def test_tables_of_windows_are_kept_for_equal_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows that all samples share are part of what a table is made from; others are not kept."""
    made = counted_tables(monkeypatch)
    x = images(3, (12, 40), seed=5)
    for repeat in range(2):
        for size in ([3, 3], [5, 3], [1, 2]):
            made.clear()
            got = arrays(ndd.experimental.dilate(x, mask_size=size))
            for result, image in zip(got, arrays(x), strict=True):
                mask = np.ones(size[::-1], np.uint8)
                np.testing.assert_array_equal(result, cv2.dilate(image, mask))
            assert len(made) == (repeat == 0), (size, repeat)
    for _ in range(2):
        made.clear()
        ndd.experimental.dilate(x, mask_size=ndd.batch([3, 5, 1])).evaluate()
        assert made


def test_sums_of_bytes_neither_overflow_nor_miss_a_byte() -> None:
    """Bytes and their squares are summed in blocks, whose lanes are emptied in time."""
    rng = np.random.default_rng(1)
    rows = [np.full(n, 255, np.uint8) for n in (0, 1, 63, 64, 65, (1 << 22) + 1)]
    rows += [rng.integers(0, 256, n, dtype=np.uint8) for n in (31, 33, 191, 5000)]
    wide = [a.astype(np.uint64) for a in rows]
    x = ndd.batch(rows)
    assert [int(a) for a in arrays(R.sum(x))] == [int(a.sum()) for a in wide]
    mean = R.mean_square(ndd.batch(rows[1:]), dtype=ndd.float32)
    wanted = [np.float32((a * a).sum() / a.size) for a in wide[1:]]
    assert [float(a) for a in arrays(mean)] == wanted


@pytest.mark.parametrize("view", ["crop", "ragged", "strided"])
def test_other_batches_do_not(view: str) -> None:
    """Offsets, sizes that differ and strides are numbers of one run."""
    rng = np.random.default_rng(0)
    for k in range(4):
        whole = [rng.integers(0, 256, (20 + k % 2 * n, 30, 3), dtype=np.uint8) for n in range(3)]
        if view == "crop":
            all_ = ndd.batch(whole, layout="HWC")
            x = ndd.crop(all_, crop=[9, 8], crop_pos_x=k / 22, crop_pos_y=0.0)
            wanted = [a[:9, k : k + 8] for a in whole]
        elif view == "strided":
            wanted = [a[k : 16 + k, ::2] for a in whole]
            x = ndd.as_batch(wanted, layout="HWC")
        else:
            x, wanted = ndd.batch(whole, layout="HWC"), whole
        got = arrays(R.sum(x, axes=[0, 1]))
        assert [g.tolist() for g in got] == [w.sum(axis=(0, 1)).tolist() for w in wanted], k


def test_dimensions_are_merged_for_one_number_and_for_many() -> None:
    """One number for all samples and one per sample give the same extents."""
    with ndd.EvalMode.deferred:
        x = images()
        y = R.sum(x)
        step = ndd.explain(y).groups[0]
    spec = step.spec
    assert spec is not None
    for pitch, wanted in ((150, [1, 1, 6000]), (160, [40, 1, 150])):
        assert merged_dimensions([40, 50, 3], {(0, 0): pitch}, spec) == wanted
    pitches = {(0, 0): np.array([150, 160])}
    both = merged_dimensions([40, np.array([50, 50]), 3], pitches, spec)
    assert np.transpose(both).tolist() == [[1, 1, 6000], [40, 1, 150]]


def test_bits_of_values() -> None:
    types = (dt.uint8, dt.int8, dt.uint16, dt.float32)
    u8, i8, u16, f32 = (ex.body_input(k, t) for k, t in enumerate(types))
    wide = ex.cast(u8, dt.uint32)
    assert bits_of(u8) == bits_of(wide) == 8
    assert bits_of(ex.cast(u8, dt.int32)) == 9
    assert bits_of(ex.cast(i8, dt.int32)) == 8
    assert bits_of(ex.cast(i8, dt.uint32)) == 32
    assert bits_of(wide * wide) == 16
    assert bits_of(ex.cast(u16, dt.uint32) * wide) == 24
    assert bits_of(u8 * u8) == (u8 * u8).dtype.bits
    assert bits_of(wide + wide) == 32
    assert bits_of(ex.cast(f32, dt.int32)) == 32
