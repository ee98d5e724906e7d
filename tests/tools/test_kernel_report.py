"""`ndd.kernel_report`: figures of GPU kernels from their machine code, with no GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ndd
from ndd.kernels.gpu import cubin
from ndd.kernels.gpu.kernel import COMPUTED_BLOCK, Variant
from ndd.kernels.ir.separable import TAP_OPERATIONS
from ndd.tools import roofline
from ndd.tools.roofline import GPUS, Gpu

pytestmark = pytest.mark.gpu
SHAPES = [(16, 12, 3), (10, 30, 3)]
IMAGES = [np.zeros(s, np.uint8) for s in SHAPES]
BYTES = sum(a.size for a in IMAGES)


def test_a_cpu_value_is_reported_as_on_a_gpu() -> None:
    """`rotate` uses a special expression on the CPU, so its GPU kernel differs."""
    with ndd.EvalMode.deferred:
        x = ndd.batch(IMAGES, layout="HWC")
        y = ndd.brightness(
            ndd.rotate(x, angle=20.0, size=[8, 9]), brightness=2.0, dtype=ndd.float32
        )
        report = ndd.kernel_report(y)
        explained = ndd.explain(y)
    (k,) = report.kernels
    assert report.gpu.name == "H100" and k.code.arch == 90
    assert k.name.startswith("rotate_brightness__u8_f32__") and k.ops == "rotate → brightness"
    assert {line.rpartition(":")[0] for line in k.lines} == {__file__}
    assert f"Ops: {k.ops}\n" in k.source.read_text() and k.source.stem == k.name
    # two samples of 8×9 pixels, a tile each
    assert k.launch.variant == Variant("uniform", False, False)
    assert (k.launch.programs, k.launch.block) == (2, COMPUTED_BLOCK)
    assert 16 <= k.code.registers <= 128 and k.code.local_bytes == 0
    assert k.code.shared_bytes == 0  # positions begin at marks that another kernel has computed
    assert k.code.occupancy == cubin.occupancy(k.code.registers, k.code.shared_bytes, 4, 90)
    mix = k.code.mix
    assert sum(mix.values()) == k.code.instructions
    assert mix.get("other", 0) == 0
    # four taps of three channels are loaded and become floats, three results are stored
    assert k.code.loads[8] == 12 and sum(k.code.stores.values()) == 3
    assert mix["global memory"] == sum(k.code.loads.values()) + 3
    assert mix["convert"] >= 12 and mix["float"] >= 3 * 8 and mix["integer"] > 0
    group = explained.groups[-1]
    assert (k.read_bytes, k.written_bytes) == (group.read_bytes, group.written_bytes)
    assert k.written_bytes == 2 * 8 * 9 * 3 * 4
    text = str(report)
    for part in (
        f"registers {k.code.registers}",
        "spills 0 bytes",
        "occupancy",
        "SASS",
        "roofline",
    ):
        assert part in text
    assert "nothing was run" in text and __file__ in text


# -- without compiling ---------------------------------------------------------------------------


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(spec: Any, arch: int, variant: Variant) -> cubin.CubinReport:
        report = cubin.CubinReport("k", arch, variant, 4, 32, 0, 0, 1.0, b"")
        report.__dict__["mnemonics"] = ["FADD", "LDG.U8"]  # as if it had been disassembled
        return report

    monkeypatch.setattr(cubin, "compile_cubin", compiled)


def figures(make: Any, gpu: str = "H100") -> list[roofline.KernelFigures]:
    with ndd.EvalMode.deferred:
        value = make(ndd.batch(IMAGES, layout="HWC"))
        return list(ndd.kernel_report(value, gpu=gpu).kernels)


@pytest.mark.usefixtures("uncompiled")
def test_bytes_and_operations() -> None:
    # to float, times, plus; then to the type that it has
    (k,) = figures(lambda x: ndd.cast(x, dtype=ndd.float32) * 2.0 + 1.0, "A100")
    assert (k.read_bytes, k.written_bytes) == (BYTES + 8, 4 * BYTES)
    assert k.operations == 3 * BYTES and k.code.arch == 80
    assert k.launch.variant == Variant("ragged", False, True)
    assert k.launch.programs == 2
    assert k.bound == "memory" and k.best_seconds == pytest.approx((5 * BYTES + 8) / 2039e9)
    assert figures(lambda x: x.slice[:0] + 1) == []  # nothing to launch


@pytest.mark.usefixtures("uncompiled")
def test_operations_of_an_interpolation() -> None:
    (k,) = figures(lambda x: ndd.resize(x, size=[8, 6], dtype=ndd.float32))
    # ⌈2 · in / out⌉ taps of a triangular filter: 16 → 8 and 12 → 6, then 10 → 8 and 30 → 6
    taps = [4 * 4, 3 * 10]
    # each of three channels becomes a float, is multiplied and added
    tap = 3 * (1 + 2) + TAP_OPERATIONS
    assert k.operations == sum(8 * 6 * n * tap for n in taps)


@pytest.mark.usefixtures("uncompiled")
def test_a_program_on_a_gpu_is_reported_without_its_cpu_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NDD_GPU", "simulate")
    (k,) = figures(lambda x: ndd.flip(ndd.hue(x, hue=3.0).gpu()))
    assert k.ops == "flip"


def test_arithmetic_or_memory() -> None:
    gpu = Gpu("toy", 90, 1000, 20)
    assert gpu.ridge == 10
    for operations, bound, seconds in ((99, "memory", 10e-12), (400, "arithmetic", 40e-12)):
        k = roofline.KernelFigures(gpu, "", (), None, None, None, 4, 6, operations)  # type: ignore[arg-type]
        assert k.bound == bound and k.best_seconds == pytest.approx(seconds)


def test_gpus_can_be_modelled() -> None:
    for gpu in GPUS.values():
        assert cubin.occupancy(32, 0, 4, gpu.arch) == 1.0


def test_families_of_instructions() -> None:
    for mnemonic, wanted in {
        "LDG.E.64": "global memory", "ULDC.64": "constants", "IMAD.MOV.U32": "move", "FFMA": "float",
        "IMAD.WIDE": "integer", "UIADD3": "integer", "REDUX.MAX.S32": "integer", "I2FP.F32.U32": "convert", "MUFU.RCP": "special",
        "@x": "other", "UISETP.GE.AND": "integer", "BRA": "control", "DADD": "double", "HFMA2": "half",
    }.items():  # fmt: skip
        assert cubin.family(mnemonic) == wanted, mnemonic


def test_what_cannot_be_reported() -> None:
    x = ndd.zeros(shape=[2, 2])
    with pytest.raises(ValueError, match=r"has been computed.*EvalMode.deferred"):
        ndd.kernel_report(x.evaluate())
    with pytest.raises(TypeError, match="wanted a Tensor or a Batch, got list"):
        ndd.kernel_report([1])
    with pytest.raises(TypeError, match="at least one value"):
        ndd.kernel_report()
    with pytest.raises(ValueError, match=r"must be one of A100, .*got 'V100'"):
        ndd.kernel_report(x, gpu="V100")
