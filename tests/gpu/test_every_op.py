"""Every op on the simulated GPU: the same bits as on the CPU. For compiled kernels see test_emulated.py."""

from __future__ import annotations

import numpy as np
import pytest

import ndd
from ndd.kernels.gpu import runtime as gpu_runtime
from tests.gpu.programs import INEXACT, PROGRAMS, REORDERED

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def simulated(monkeypatch):
    monkeypatch.setenv("NDD_GPU", "simulate")


def results(name, device):
    samples, layout, program = PROGRAMS[name]
    batch = ndd.batch(samples, layout=layout)
    with ndd.EvalMode.deferred:  # so that fusion does not depend on timing
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
        elif name in REORDERED:
            assert np.abs(on_cpu - on_gpu).max() <= 1e-6 * np.abs(on_cpu).max()
        else:
            np.testing.assert_array_equal(on_cpu, on_gpu)
    if name not in ("permute_batch", "select", "reshape", "reinterpret"):  # no data moves
        assert gpu_runtime.launch_count > launches
