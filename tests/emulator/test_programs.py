"""Every program of tests/gpu/programs.py: PTX of three architectures gives the bits of the CPU."""

from __future__ import annotations

import os

import numpy as np
import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import ndd
from ndd.kernels.gpu.kernel import get_kernel
from tests.emulator.plugin import ARCHITECTURES
from tests.emulator.ptx import stack_bytes
from tests.gpu.programs import INEXACT, PROGRAMS, REORDERED, planned_kernels

pytestmark = pytest.mark.gpu


def results(name, device):
    samples, layout, program = PROGRAMS[name]
    with ndd.EvalMode.deferred:  # so that fusion does not depend on timing
        out = program(ndd.batch(samples, layout=layout, device=device))
        return [np.asarray(t) for t in out.cpu()]


def assert_equal(name, wanted, got):
    for on_cpu, on_gpu in zip(wanted, got, strict=True):
        assert on_cpu.dtype == on_gpu.dtype and on_cpu.shape == on_gpu.shape
        if name in INEXACT:
            np.testing.assert_array_max_ulp(on_cpu, on_gpu, maxulp=4)
        elif name in REORDERED:
            assert np.abs(on_cpu - on_gpu).max() <= 1e-6 * np.abs(on_cpu).max()
        else:
            np.testing.assert_array_equal(on_cpu, on_gpu)


# Several processes may share the programs: "1/2" is every second one, from the second on.
PART, PARTS = map(int, os.environ.get("NDD_TEST_PART", "0/1").split("/"))
CHOSEN = list(PROGRAMS)[PART::PARTS]
RAN = set()


@pytest.mark.parametrize("name", CHOSEN)
def test_ptx_equals_cpu(name, emulator):
    wanted = results(name, "cpu")
    RAN.add(name)
    for device in range(len(ARCHITECTURES)):
        with ndd.Device("gpu", device):
            assert_equal(name, wanted, results(name, f"gpu:{device}"))
            with emulator.eager():
                assert_equal(name, wanted, results(name, f"gpu:{device}"))
    spilled = {k: v for k, v in emulator.stacks.items() if v}
    assert not spilled


def test_all_kernels_were_compiled_for_all_architectures(emulator):
    """Runs last: none of the kernels that the programs plan has been left out."""
    planned = {get_kernel(spec).name for name in CHOSEN for spec in planned_kernels(name)}
    assert len(planned) > len(CHOSEN) / 2
    ran = {arch: {n for n, a in emulator.stacks if a == arch} for arch in ARCHITECTURES}
    if set(CHOSEN) <= RAN:  # not if only some tests were chosen
        for names in ran.values():
            assert planned <= names


def test_local_memory_is_found():
    """So that the tests above can fail: a kernel with few registers spills."""
    kernel = get_kernel(next(s for s in planned_kernels("long chain")))
    options = {"num_warps": 4, "enable_fp_fusion": False, "maxnreg": 24}
    names = {
        "table": "i64",
        "tiles": "i64",
        "n_rows": "i32",
        "n_points": "i64",
        "tiles_per_row": "i32",
    }
    constants = {"BLOCK": 512, "GRID": "ragged", "WIDE": False, "ALIGNED": False}
    source = ASTSource(kernel.jit, names | dict.fromkeys(constants, "constexpr"), constants)
    compiled = triton.compile(source, GPUTarget("cuda", 80, 32), options)
    assert stack_bytes(compiled.asm["cubin"]) > 0
