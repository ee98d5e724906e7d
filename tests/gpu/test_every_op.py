"""Every op on the simulated GPU: the same bits as on the CPU, and kernels that compile for real GPUs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import ndd
from ndd.fusion.plan import KernelStep, plan_for
from ndd.fusion.program import collect
from ndd.kernels import gpu_runtime
from ndd.kernels.cubin import ARCHS, compile_all
from tests.gpu.programs import INEXACT, PROGRAMS

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def simulated(monkeypatch):
    monkeypatch.setenv("NDD_GPU", "simulate")


def results(name, device):
    samples, layout, program = PROGRAMS[name]
    batch = ndd.batch(samples, layout=layout)
    with ndd.EvalMode.deferred:  # so that what is fused does not depend on timing
        out = program(batch.gpu() if device == "gpu" else batch)
        assert out.device.device_type == device
        return [np.asarray(t) for t in out.cpu()]


@pytest.mark.parametrize("name", PROGRAMS)
def test_gpu_equals_cpu(name):
    launches = gpu_runtime.launch_count
    for on_cpu, on_gpu in zip(results(name, "cpu"), results(name, "gpu"), strict=True):
        assert on_cpu.dtype == on_gpu.dtype and on_cpu.shape == on_gpu.shape
        if name in INEXACT:
            np.testing.assert_array_max_ulp(on_cpu, on_gpu, maxulp=4)
        else:
            np.testing.assert_array_equal(on_cpu, on_gpu)
    if name not in ("permute_batch", "select", "reshape", "reinterpret"):  # no data moves
        assert gpu_runtime.launch_count > launches


def planned(name):
    """The kernels of a program, from its plan: nothing needs to run."""
    samples, layout, program = PROGRAMS[name]
    with ndd.EvalMode.deferred:
        out = program(ndd.batch(samples, layout=layout, device="gpu"))
        plan, _ = plan_for(collect([out._node]), True)
    return [s.spec for s in plan.steps if isinstance(s, KernelStep) and s.device is not None]


@pytest.mark.slow
def test_kernels_compile_without_spills():
    """Every kernel of these programs, for three architectures, in a fresh Triton cache."""
    specs = list(dict.fromkeys(spec for name in PROGRAMS for spec in planned(name)))
    reports = compile_all(specs, ARCHS)
    assert len(reports) == len(specs) * len(ARCHS)
    spilled = [f"{r.name} sm_{r.arch}: {r.local_bytes} bytes" for r in reports if r.local_bytes]
    assert not spilled, spilled
    table = os.environ.get("NDD_RECORD_CUBINS")
    if table:
        rows = [
            {"kernel": r.name, "arch": r.arch, "registers": r.registers, "shared": r.shared_bytes,
             "local": r.local_bytes, "instructions": r.instructions, "occupancy": r.occupancy}
            for r in reports
        ]  # fmt: skip
        Path(table).write_text(json.dumps(rows, indent=1))
