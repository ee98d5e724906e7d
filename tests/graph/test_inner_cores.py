"""A core inside of a core: windows over resampled images are one kernel, without an image between.

The rows that a window keeps are computed one by one by the resampling (kernels/cpu/rows.py).
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import ndd
from ndd.fusion.plan.planner import PLANNER
from ndd.fusion.plan.program import collect
from ndd.fusion.run.binder import Binder
from ndd.fusion.run.regions import regions_of
from ndd.kernels.cpu import render, streamed_rows
from ndd.kernels.ir import dtypes as dt
from ndd.kernels.ir.expr import Expr
from ndd.kernels.ir.separable import SeparableSum
from ndd.kernels.ir.spec import Access, KernelSpec
from ndd.kernels.ir.windows import WindowSum
from tests.decoders.fixtures import encoded, photo
from tests.helpers import arrays, assert_same, kernels, nothing_compiled

SHAPES = ((31, 47, 3), (9, 64, 3), (120, 11, 3), (1, 1, 3))


def numbers(*values: float) -> ndd.Batch:
    return ndd.batch([np.float32(v) for v in values])


def images(dtype: Any = np.uint8, channels: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (h, w, channels)).astype(dtype) for h, w, _ in SHAPES]


def ssl_chain(x: Any, size: Any = (40, 56), sigma: Any = (0.4, 1.0, 2.5, 9.0)) -> Any:
    x = ndd.resize(x, size=list(size))
    x = ndd.color_twist(x, brightness=numbers(0.8, 1.1, 1.0, 1.3), hue=20.0, saturation=1.4)
    x = ndd.gaussian_blur(x, sigma=numbers(*sigma))
    x = ndd.flip(x, horizontal=numbers(0, 1, 1, 0), vertical=numbers(0, 0, 1, 1))
    return ndd.crop_mirror_normalize(x, mean=[100.0, 90.0, 80.0], std=[50.0, 51.0, 52.0], mirror=1)


def blurred(x: Any) -> Any:
    return ndd.gaussian_blur(ndd.resize(x, size=[30, 21]), sigma=1.5)


def moved_before(x: Any) -> Any:
    """The window reads a part of the resampled image, upside down."""
    x = ndd.flip(ndd.resize(x, size=[33, 40]), vertical=1, horizontal=numbers(1, 0, 1, 0))
    return ndd.gaussian_blur(ndd.crop(x, crop=[20, 25], crop_pos_x=0.9), sigma=1.0)


def moved_after(x: Any) -> Any:
    x = ndd.gaussian_blur(ndd.resize(x, size=[33, 40]), sigma=[2.0, 1.0])
    return ndd.crop(ndd.flip(x, vertical=1), crop=[9, 31], crop_pos_y=0.2)


def smaller(x: Any) -> Any:
    """Many taps, and a window that is larger than the image."""
    return ndd.gaussian_blur(ndd.resize(x, size=[5, 3]), sigma=4.0)


def cubic(x: Any) -> Any:
    x = ndd.resize(
        x, size=[64, 19], interp_type=ndd.types.DALIInterpType.INTERP_CUBIC, antialias=False
    )
    return ndd.gaussian_blur(x, window_size=5, dtype=ndd.float32)


def nearest(x: Any) -> Any:
    x = ndd.resize(x, size=[17, 50], interp_type=ndd.types.DALIInterpType.INTERP_NN)
    return ndd.gaussian_blur(x, sigma=0.7)


def edges(x: Any) -> Any:
    """Several separable parts, each with a factor."""
    return ndd.laplacian(ndd.resize(x, size=[22, 34]), window_size=5, dtype=ndd.float32)


def by_channel(x: Any) -> Any:
    """Numbers that differ between channels, but not between pixels."""
    x = ndd.resize(x, size=[15, 28], dtype=ndd.float32)
    return ndd.gaussian_blur(x * ndd.tensor([0.5, 1.0, 3.0]) + ndd.tensor([7.0, 0, 1]), sigma=1.0)


def shared(x: Any) -> Any:
    """The resampled image is needed elsewhere, too."""
    x = ndd.resize(x, size=[20, 24], dtype=ndd.float32)
    return x - ndd.gaussian_blur(x, sigma=1.0)


def twice(x: Any) -> Any:
    return ndd.gaussian_blur(blurred(x), sigma=0.8)


ONE_KERNEL = [ssl_chain, blurred, moved_before, moved_after, smaller, cubic, nearest, edges]


def filtered(border: str) -> Any:
    rng = np.random.default_rng(4)
    window = ndd.tensor(rng.normal(size=(3, 5)).astype(np.float32))

    def program(x: Any) -> Any:
        fill = {"fill_value": 77.0} if border == "constant" else {}
        return ndd.filter(ndd.resize(x, size=[26, 19]), window, border=border, **fill)

    return program


BORDERS = ["reflect_101", "reflect_1001", "clamp", "wrap", "constant"]


def without_fusion(program: Any, x: Any) -> list[np.ndarray]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NDD_FUSION", "0")
        return arrays(program(x))


@pytest.mark.parametrize("program", ONE_KERNEL)
def test_it_is_one_kernel_and_nothing_lies_between(program: Any) -> None:
    with ndd.EvalMode.deferred:
        result = program(ndd.batch(images(), layout="HWC"))
        found = ndd.explain(result)
    assert len(found.groups) == 1
    plan, _ = PLANNER.plan_for(collect([result._node]), True)
    assert [len(step.spec.cores) for step in plan.steps] == [2]
    assert not any(segment.slots for segment in plan.segments)


@pytest.mark.parametrize("program", [*ONE_KERNEL, by_channel, shared, twice])
def test_fusion_keeps_the_bits(program: Any) -> None:
    x = ndd.batch(images(), layout="HWC")
    with ndd.EvalMode.deferred:
        assert_same(program(x), without_fusion(program, x))


@pytest.mark.parametrize("border", BORDERS)
def test_borders(border: str) -> None:
    x, program = ndd.batch(images(), layout="HWC"), filtered(border)
    with ndd.EvalMode.deferred:
        assert len(ndd.explain(program(x)).groups) == 1
        assert_same(program(x), without_fusion(program, x))


@pytest.mark.parametrize(
    ("layout", "dtype"),
    [("HWC", np.int16), ("HWC", np.float16), ("CHW", np.uint8), ("CHW", np.float32),
     ("FHWC", np.uint8)],
)  # fmt: skip
def test_types_and_layouts(layout: str, dtype: Any) -> None:
    data = [(i / 2).astype(dtype) for i in images(np.float32)]
    if layout == "CHW":
        data = [np.moveaxis(i, -1, 0) for i in data]
    elif layout == "FHWC":
        data = [np.stack([i, i[::-1]]) for i in data]
    x = ndd.batch(data, layout=layout)
    with ndd.EvalMode.deferred:
        assert len(ndd.explain(blurred(x)).groups) == 1
        assert_same(blurred(x), without_fusion(blurred, x))


@pytest.mark.parametrize("channels", [1, 4, 7])
def test_channels(channels: int) -> None:
    x = ndd.batch(images(channels=channels), layout="HWC")
    with ndd.EvalMode.deferred:
        assert len(ndd.explain(blurred(x)).groups) == 1
        assert_same(blurred(x), without_fusion(blurred, x))


def test_all_modes_and_threads_give_the_same_bits(mode: str) -> None:
    x = ndd.batch(images(), layout="HWC")
    wanted = without_fusion(ssl_chain, x)
    for threads in (1, 2):
        with ndd.EvalContext(num_threads=threads):
            assert_same(ssl_chain(x), wanted, f"{threads} threads")


@pytest.mark.gpu
def test_a_gpu_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPU kernels keep no rows, so they store the resampled image; the blur is one kernel."""
    monkeypatch.setenv("NDD_GPU", "simulate")
    x = ndd.batch([i[:20, :20] for i in images()], layout="HWC")
    small: Any = {"size": (9, 14), "sigma": (0.4, 1.0, 0.7, 0.5)}
    wanted = arrays(ssl_chain(x, **small))
    with ndd.EvalMode.deferred:
        result = ssl_chain(x.gpu(), **small)
        assert kernels(result) == 2
        assert_same(result, wanted)


def test_new_sizes_and_sigmas_compile_nothing() -> None:
    with ndd.EvalMode.deferred:
        arrays(ssl_chain(ndd.batch(images(), layout="HWC")))
        with nothing_compiled():
            for size, sigma in (((7, 90), (1, 2, 3, 4)), ((64, 64), (0.5, 11, 0.1, 2))):
                x = ndd.batch([i[:, : i.shape[1] // 2 + 1] for i in images()], layout="HWC")
                result = arrays(ssl_chain(x, size, sigma))
                assert result[0].shape == (3, *size)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: ndd.gaussian_blur(ndd.transpose(ndd.resize(x, size=[9, 12]), perm=[1, 0, 2],
                                                  transpose_layout=False), sigma=1.0),
        lambda x: ndd.gaussian_blur(ndd.resize(x, size=[9, 12]).slice[:, :, :1], sigma=1.0),
    ],
    ids=["transposed", "one channel"],
)  # fmt: skip
def test_rows_that_do_not_fit(program: Any) -> None:
    """A plan may store the resampled image; the bits are the same."""
    x = ndd.batch(images(), layout="HWC")
    with ndd.EvalMode.deferred:
        assert_same(program(x), without_fusion(program, x))


def test_volumes_have_two_kernels() -> None:
    rng = np.random.default_rng(1)
    x = ndd.batch([rng.integers(0, 256, (6, 9, 8, 2), np.uint8)], layout="DHWC")

    def program(x: Any) -> Any:
        return ndd.gaussian_blur(ndd.resize(x, size=[5, 7, 11]), sigma=1.0)

    with ndd.EvalMode.deferred:
        assert len(ndd.explain(program(x)).groups) == 2
        assert_same(program(x), without_fusion(program, x))


def test_only_the_region_is_decoded() -> None:
    """A crop after the blur limits the resampled rows, and these limit the decoded ones."""
    sizes = ((300, 200), (120, 400))
    with ndd.EvalMode.deferred:
        x = ndd.decoders.image(
            ndd.batch([np.frombuffer(encoded(".jpg", photo(*size)), np.uint8) for size in sizes])
        )
        x = ndd.gaussian_blur(ndd.resize(x, size=[100, 100]), sigma=1.0)
        x = ndd.crop(x, crop=[10, 10], crop_pos_x=0.0, crop_pos_y=0.0)
        program = collect([x._node])
        plan, _ = PLANNER.plan_for(program, True)
        binder = Binder(program.nodes, [n.storage for n in program.nodes], lambda a, d: 0)
        (region,) = regions_of(plan.regional, binder).values()
    extents = np.array(sizes)
    # 10 of 100 rows, 3 for the window, and a few pixels for interpolation and rounding.
    assert (region.start == 0).all()
    assert (region.size <= np.ceil(0.13 * extents) + 4).all()
    assert (region.size >= np.floor(0.13 * extents)).all()


# -- source --------------------------------------------------------------------------------------


def spec_of(*cores: str) -> KernelSpec:
    """A kernel with these cores, the outer one first, over bytes of one channel."""
    first = 2 + 4 * (len(cores) - 1)
    strides = (*[0] * first, None, 1)
    tap = Expr("cast", dt.float32, (Expr("load", dt.uint8, (), 0),))
    read = Expr("core", dt.float32, (), ("at", 0))
    core: Any = None
    for depth in range(len(cores) - 1, -1, -1):
        axes = (0, 1) if depth == 0 else (2, 3)
        value = tap if core is None else read
        if cores[depth] == "window":
            core = WindowSum(value, axes, 0, "reflect_101", 1, inner=core)
        else:
            core = SeparableSum(value, axes, 0)
    return KernelSpec(
        ("x",), (None, None), (Access(dt.uint8, strides), Access(dt.float32, (0, 0))),
        (Access(dt.float32, (None, 1)),), (read,), core=core,
    )  # fmt: skip


def assigned(source: str) -> set[str]:
    """Names that a kernel assigns, without numbered temporaries and what every kernel has."""
    body = source.partition("def k(")[2]
    names: set[str] = set()
    for targets in re.findall(r"^\s*(?:for )?([\w, ]+?) (?:=|in) ", body, re.MULTILINE):
        names.update(targets.split(", "))
    common = r"(s|row|scratch|[a-z]\d+|(slot|base)\d+|(n|o|in|out)_.*|area_.*|win_.*|tap_[a-z]+_\d)"
    return {n for n in names if not re.fullmatch(common, n)}


def test_two_cores_have_no_name_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither with each other, nor with the loops that store rows past the caches."""

    def named(*cores: str) -> set[str]:
        return assigned(render.render(spec_of(*cores), "k"))

    streamed = named("window") & named("taps")
    for module in (render, streamed_rows):
        monkeypatch.setattr(module, "streamed_runs", lambda _spec: ())
    window, taps = named("window"), named("taps")
    assert {"ring_0", "raw", "line", "at_0"} <= window and {"sums", "tap_line"} <= taps
    assert not window & taps
    assert {"streams", "piece_0", "tile"} <= streamed and not streamed & (window | taps)
    assert window | taps <= named("window", "taps")
