"""Fusion of interpolating ops: the groups, the pixels that are read, and unchanged bits."""

from __future__ import annotations

import numpy as np
import pytest

import ndd
from ndd.kernels.cpu import runtime as cpu_runtime
from ndd.kernels.cpu.cores import Scratch, columns_of
from tests.helpers import arrays


def images(count: int = 3, channels: int = 3, dtype=np.uint8) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    sizes = [(31 + 9 * k, 47 - 5 * k) for k in range(count)]
    return [rng.integers(0, 255, (*s, channels)).astype(dtype) for s in sizes]


def chain(x):
    x = ndd.resize(x, size=[24, 30])
    x = ndd.crop(x, crop=[17, 20], crop_pos_x=0.3, crop_pos_y=0.8)
    x = ndd.flip(x, horizontal=1)
    x = ndd.brightness_contrast(x, brightness=1.3, contrast=0.8)
    return ndd.crop_mirror_normalize(x, mean=[100.0, 90.0, 80.0], std=[50.0, 51.0, 52.0], mirror=1)


def warped(x):
    x = ndd.cast(x, dtype=ndd.float32)
    x = ndd.rotate(x, angle=33.0, fill_value=3.0)
    x = ndd.crop(x, crop=[20, 20])
    return ndd.cast(x * 2.0 + 1.0, dtype=ndd.int16)


def before(x):
    """Views and cheap arithmetic before a resampling op are computed as it loads its pixels."""
    x = ndd.flip(ndd.crop(x, crop=[20, 25]), vertical=1)
    return ndd.resize(ndd.cast(x, dtype=ndd.float32), size=[11, 37])


def one_channel(x):
    """A channel of a resized image: fewer lanes than when the image is stored."""
    return ndd.resize(x, size=[24, 30], dtype=ndd.float32).slice[:, :, 1]


def padded(x):
    return ndd.crop_mirror_normalize(
        ndd.resize(x, size=[12, 14]), crop=[20, 9], out_of_bounds_policy="pad", fill_values=[5.0]
    )


PROGRAMS = [chain, warped, before, one_channel, padded]


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_is_one_group(program) -> None:
    with ndd.EvalMode.deferred:
        result = program(ndd.batch(images(), layout="HWC"))
        assert len(ndd.explain(result).groups) == 1


@pytest.mark.parametrize(
    ("program", "layout"),
    [*((p, "HWC") for p in PROGRAMS), *((p, "CHW") for p in (warped, before, padded))],
)
def test_fusion_keeps_the_bits(program, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = [np.moveaxis(i, -1, 0) if layout == "CHW" else i for i in images()]
    with ndd.EvalMode.deferred:
        fused = arrays(program(ndd.batch(data, layout=layout)))
        monkeypatch.setenv("NDD_FUSION", "0")
        unfused = arrays(program(ndd.batch(data, layout=layout)))
    for a, b in zip(fused, unfused, strict=True):
        np.testing.assert_array_equal(a, b)


def test_two_resamples_are_two_groups() -> None:
    with ndd.EvalMode.deferred:
        x = ndd.resize(ndd.batch(images(), layout="HWC"), size=[20, 20])
        result = ndd.explain(ndd.rotate(x, angle=10.0))
    assert len(result.groups) == 2


def test_two_resampled_values_meet() -> None:
    x = ndd.batch(images(), layout="HWC")
    with ndd.EvalMode.deferred:
        a = ndd.resize(x, size=[20, 20], dtype=ndd.float32)
        b = ndd.resize(x, size=[20, 20], dtype=ndd.float32, interp_type=ndd.types.INTERP_NN)
        total = a + b
        assert len(ndd.explain(total).groups) == 2
    for t, p, q in zip(arrays(total), arrays(a), arrays(b), strict=True):
        np.testing.assert_array_equal(t, p + q)


def test_a_result_and_its_consumer_are_both_right() -> None:
    """A resized image is read after a kernel has fused it away."""
    for _ in range(3):
        x = ndd.batch(images(), layout="HWC")
        y = ndd.resize(x, size=[20, 20])
        z = ndd.cast(y, dtype=ndd.float32) * 2.0
        doubled, plain = arrays(z), arrays(y)
        for a, b in zip(doubled, plain, strict=True):
            np.testing.assert_array_equal(a, b.astype(np.float32) * 2)


def test_only_the_needed_window_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and columns outside of a crop are not read: they hold nan."""
    image = np.zeros((64, 64, 3), np.float32)
    image[40:, :] = np.nan
    image[:, 40:] = np.nan
    with ndd.EvalMode.deferred:
        small = ndd.resize(ndd.tensor(image, layout="HWC"), size=[32, 32])
        window = ndd.crop(small, crop=[16, 16], crop_pos_x=0.0, crop_pos_y=0.0)
        assert len(ndd.explain(window).groups) == 1
        assert np.isfinite(np.asarray(window)).all()

    areas = []
    divide = Scratch.divide

    def spy(self, table) -> int:
        room = divide(self, table)
        areas.append(int(table[0, columns_of(self._spec)["area", "sums"]]))
        return room

    monkeypatch.setattr(Scratch, "divide", spy)
    with ndd.EvalMode.deferred:
        small = ndd.resize(ndd.tensor(image, layout="HWC"), size=[32, 32])
        ndd.crop(small, crop=[4, 4]).evaluate()
        small = ndd.resize(ndd.tensor(image, layout="HWC"), size=[32, 32])
        small.evaluate()
    assert areas[0] < areas[1]  # weights are computed for four outputs, not for 32


def test_no_new_size_or_angle_compiles() -> None:
    def run(size: int, angle: float) -> None:
        x = ndd.batch([i[:size] for i in images()], layout="HWC")
        chain(ndd.resize(x, size=[40, 40])).evaluate()
        ndd.rotate(x, angle=angle).evaluate()
        ndd.warp_affine(x, matrix=np.float32([[1, angle, 0], [0, 1, 2]])).evaluate()

    run(20, 10.0)
    before = cpu_runtime.compile_count
    for size, angle in ((21, -77.5), (1, 180.0), (30, 1e-3)):
        run(size, angle)
    assert cpu_runtime.compile_count == before


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_agree(threads: int) -> None:
    data = [np.tile(i, (5, 5, 1)) for i in images(8)]
    with ndd.EvalContext(num_threads=threads):
        got = arrays(chain(ndd.batch(data, layout="HWC")))
    want = [arrays(chain(ndd.batch([d], layout="HWC")))[0] for d in data]
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


# -- merge_resamples -------------------------------------------------------------------------------


def smooth(height: int = 60, width: int = 80) -> np.ndarray:
    y, x = np.mgrid[:height, :width].astype(np.float32)
    return np.stack([2 * x, 3 * y, x + y], axis=-1)


def close_in_the_middle(got: np.ndarray, want: np.ndarray) -> None:
    """Compare away from the borders: only the unmerged program has those of the intermediate image."""
    assert got.shape == want.shape
    rows, columns = (slice(n // 3, -(n // 3)) for n in got.shape[:2])
    np.testing.assert_allclose(got[rows, columns], want[rows, columns], atol=0.5)


MERGED = {
    "resize+rotate": lambda x: ndd.rotate(ndd.resize(x, size=[48, 70]), angle=20.0, keep_size=True),
    "resize+resize": lambda x: ndd.resize(ndd.resize(x, size=[50, 70]), size=[33, 41]),
    "rotate+resize": lambda x: ndd.resize(ndd.rotate(x, angle=-15.0), size=[40, 50]),
    "rotate+warp_affine": lambda x: ndd.warp_affine(
        ndd.rotate(x, angle=30.0, keep_size=True), matrix=[0.9, 0.1, 2.0, -0.1, 1.1, 1.0]
    ),
    "warp_affine+rotate": lambda x: ndd.rotate(
        ndd.warp_affine(x, matrix=np.float32([[1, 0.2, -3], [0, 0.9, 4]])), angle=7.0
    ),
    "resize+rotate+resize": lambda x: ndd.resize(
        ndd.rotate(ndd.resize(x, size=[48, 70]), angle=20.0), size=[30, 30]
    ),
}


@pytest.mark.parametrize("name", MERGED)
@pytest.mark.parametrize("mode", [ndd.EvalMode.deferred, ndd.EvalMode.eager])
def test_merged_resamples_are_one_sampling(name: str, mode) -> None:
    """A smooth image looks the same sampled once or twice; `explain` says which of the two was done."""
    x = ndd.tensor(smooth(), layout="HWC")
    with mode:
        want = MERGED[name](x)
        with ndd.fusion_options(merge_resamples=True):
            got = MERGED[name](x)
        explained = ndd.explain(got)
    assert next(op for g in explained.groups for op in g.ops if "+" in op) == name
    assert len([g for g in explained.groups if g.kind == "kernel"]) == 1
    assert f"sampled once: {name}" in str(explained)
    close_in_the_middle(np.asarray(got), np.asarray(want))


def test_merging_is_off_by_default_and_ends_with_its_block() -> None:
    x = ndd.batch(images(), layout="HWC")
    with ndd.fusion_options(merge_resamples=True):
        small = ndd.resize(x, size=[20, 30])
    with ndd.EvalMode.deferred:
        plain = ndd.explain(ndd.rotate(small, angle=5.0))
        assert not any("+" in op for g in plain.groups for op in g.ops)
        merged = ndd.fusion_options(merge_resamples=True)(ndd.rotate)(small, angle=5.0)
        assert "resize+rotate" in str(ndd.explain(merged))


def test_a_merged_batch_has_its_own_matrices() -> None:
    x = ndd.batch([smooth(), smooth(40, 50)], layout="HWC")
    angles = ndd.batch([np.float32(10), np.float32(-40)])
    with ndd.fusion_options(merge_resamples=True):
        got = arrays(ndd.rotate(ndd.resize(x, size=[44, 55]), angle=angles, keep_size=True))
    want = arrays(ndd.rotate(ndd.resize(x, size=[44, 55]), angle=angles, keep_size=True))
    for a, b in zip(got, want, strict=True):
        close_in_the_middle(a, b)
