"""Broken kernels and broken hosts: the emulated driver catches each of them, every time."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import re
import signal
import types

import numpy as np
import pytest
from cuda.bindings import driver

import ndd
from ndd.kernels.gpu import cuda
from ndd.kernels.gpu.cuda import CudaGpu
from ndd.kernels.gpu.runtime import GpuRuntime
from tests.emulator import ptx
from tests.emulator.kernels import checked, gpu, launch
from tests.emulator.translate import translate

pytestmark = pytest.mark.gpu
N = 100
ILLEGAL_ADDRESS, MISALIGNED = 700, 716


@pytest.fixture(autouse=True)
def first_gpu():
    yield gpu(0)
    gpu(0)


class Work:
    """A stream with two arrays of N numbers, the first of which is 0 … N-1."""

    def __init__(self, ordinal: int = 0) -> None:
        self.device = gpu(ordinal)
        self.stream = self.device.create_stream()
        self.source, self.out = (self.device.allocate(4 * N, stream=self.stream) for _ in range(2))
        numbers = np.arange(N, dtype=np.int32)
        self.copy(int(self.source.handle), numbers.ctypes.data)

    def copy(self, to: int, source: int) -> None:
        checked(driver.cuMemcpyAsync(to, source, 4 * N, int(self.stream.handle)))

    def read(self, address: int | None = None) -> np.ndarray:
        found = np.zeros(N, np.int32)
        self.copy(found.ctypes.data, address or int(self.out.handle))
        return found

    def sync(self) -> int:
        return int(driver.cuStreamSynchronize(int(self.stream.handle))[0])


def caught(emulator, *texts: str) -> None:
    fault = emulator.fault
    emulator.clear()
    for text in texts:
        assert text in fault, fault


def test_a_correct_kernel(emulator):
    work = Work()
    assert launch(work.stream, int(work.source.handle), int(work.out.handle), N) == 0
    np.testing.assert_array_equal(work.read(), np.arange(N) + 1)


@pytest.mark.parametrize("which", ["load", "store"])
def test_out_of_bounds(emulator, which):
    work = Work()
    larger = work.device.allocate(8 * N, stream=work.stream)
    source, out = int(work.source.handle), int(larger.handle)
    assert launch(work.stream, *((source, out) if which == "load" else (out, source)), N + 1) == 0
    assert work.sync() == ILLEGAL_ADDRESS
    assert work.sync() == ILLEGAL_ADDRESS  # a context does not recover
    caught(
        emulator,
        f"{which} of 4 bytes",
        f"byte {4 * N} of an allocation of {4 * N} bytes on GPU 0",
        "thread 100",
    )


def test_misaligned(emulator):
    work = Work()
    launch(work.stream, int(work.source.handle) + 2, int(work.out.handle), 5)
    assert work.sync() == MISALIGNED
    caught(emulator, "not aligned")


def test_use_after_free(emulator):
    work = Work()
    address = int(work.source.handle)
    work.source.close(work.stream)
    launch(work.stream, address, int(work.out.handle), N)
    assert work.sync() == ILLEGAL_ADDRESS
    caught(emulator, "GPU 0, freed")


def test_double_free(emulator):
    work = Work()
    address = int(work.out.handle)
    work.out.close(work.stream)
    assert int(driver.cuMemFreeAsync(address, int(work.stream.handle))[0]) == 1
    caught(emulator, "freed a second time")


def test_missing_wait(emulator):
    """Another stream reads what has been submitted but not waited for."""
    work, other = Work(), Work()
    launch(work.stream, int(work.source.handle), int(work.out.handle), N)
    launch(other.stream, int(work.out.handle), int(other.out.handle), N)
    assert other.sync() == ILLEGAL_ADDRESS  # not even its allocation has run
    caught(emulator, "has not run yet in its stream")

    work, other = Work(), Work()
    work.sync()
    launch(work.stream, int(work.source.handle), int(work.out.handle), N)
    launch(other.stream, int(work.out.handle), int(other.out.handle), N)
    assert (other.read() != np.arange(N) + 2).all()  # garbage, each time
    event = work.stream.record()
    other.stream.wait(event)
    launch(other.stream, int(work.out.handle), int(other.out.handle), N)
    np.testing.assert_array_equal(other.read(), np.arange(N) + 2)


def test_wrong_device(emulator):
    """Memory of another GPU, a kernel of another architecture, an event of another GPU."""
    work, other = Work(0), Work(3)
    work.sync()
    launch(other.stream, int(work.source.handle), int(other.out.handle), N)
    assert other.sync() == ILLEGAL_ADDRESS
    caught(emulator, "on GPU 3: byte 0 of an allocation of 400 bytes on GPU 0")
    newer = Work(2)
    assert launch(newer.stream, int(newer.source.handle), int(newer.out.handle), N, arch=80) == 209
    caught(emulator, "compiled for sm_80", "GPU 2, an sm_120")
    event = checked(driver.cuEventCreate(0))
    assert int(driver.cuEventRecord(event, int(other.stream.handle))[0]) == 400
    caught(emulator, "an event of GPU 2 is recorded on a stream of GPU 3")


def test_eager_execution_hides_a_missing_wait(emulator):
    """Which is why lazy execution is the rule."""
    with emulator.eager():
        work, other = Work(), Work()
        launch(work.stream, int(work.source.handle), int(work.out.handle), N)
        launch(other.stream, int(work.out.handle), int(other.out.handle), N)
        np.testing.assert_array_equal(other.read(), np.arange(N) + 2)


def test_pinned_memory_is_read_late(emulator):
    """A copy from pinned memory reads it when the stream gets there."""
    work = Work()
    pinned = checked(driver.cuMemAllocHost(4 * N))
    numbers = np.frombuffer((ctypes.c_int32 * N).from_address(int(pinned)), np.int32)
    numbers[:] = 5
    work.copy(int(work.source.handle), int(pinned))
    numbers[:] = 7  # too early
    assert (work.read(int(work.source.handle)) == 7).all()
    work.copy(int(work.source.handle), int(pinned))
    checked(driver.cuMemFreeHost(pinned))
    assert work.sync() == ILLEGAL_ADDRESS
    caught(emulator, "pinned host memory, freed")


def test_the_host_cannot_read_device_memory():
    work = Work()
    work.sync()
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        ctypes.string_at(int(work.source.handle), 4)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGSEGV


def test_ndd_without_its_waits(emulator, monkeypatch):
    """ndd itself, broken: a copy between GPUs that does not wait for the first one."""
    monkeypatch.setattr(GpuRuntime, "wait_for", lambda self, other: None)
    x = ndd.tensor(np.arange(12, dtype=np.float32), device="gpu:0") + 1
    with pytest.raises(Exception, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        np.asarray(x.gpu(3).cpu())
    caught(emulator, "has not run yet in its stream")


def test_ndd_that_frees_too_early(emulator, monkeypatch):
    """ndd itself, broken: it does not keep the pinned memory from which a kernel's table is copied."""
    monkeypatch.setattr(CudaGpu, "_keep", lambda self, alive: None)
    x = ndd.tensor(np.arange(12, dtype=np.float32), device="gpu:0")
    with pytest.raises(Exception, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        np.asarray((x + 1).cpu())
    caught(emulator, "pinned host memory, freed")


def test_a_missing_barrier(monkeypatch):
    """The sums of a blur's rows go from warp to warp through shared memory."""
    image = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)

    def blurred(device):
        x = ndd.batch([image], layout="HWC", device=device)
        return np.asarray(ndd.gaussian_blur(x, sigma=1.0).tensors[0].cpu())

    class Unsynchronised(cuda.LoadedKernel):
        def __init__(self, compiled):
            code = re.sub(rb"bar\.sync[ \t]+0;", lambda m: b" " * len(m[0]), compiled.asm["cubin"])
            assert code != compiled.asm["cubin"]
            super().__init__(types.SimpleNamespace(asm={"cubin": code}, metadata=compiled.metadata))

    np.testing.assert_array_equal(blurred("gpu"), blurred("cpu"))
    monkeypatch.setattr(cuda, "_loaded", {})
    monkeypatch.setattr(cuda, "LoadedKernel", Unsynchronised)
    assert (blurred("gpu") != blurred("cpu")).mean() > 0.5


MODULE = """
.version 8.8
.target sm_80
.address_size 64
.visible .entry k(
	.param .u64 k_param_0
)
.reqntid 32
{
	.reg .b32 	%r<9>;
	INSTRUCTION
	ret;
}
"""


@pytest.mark.parametrize(
    "text",
    ["frobnicate.b32 %r1, 2;", "add.rz.f32 %r1, 0f3F800000, 0f3F800000;", "ex2.approx.f32 %r1, 0f3F800000;",
     "ld.local.b32 %r1, [%r2];", "mov.b32 %r1, %clock;", "add.sat.s32 %r1, 1, 2;"],
)  # fmt: skip
def test_unknown_instructions_are_refused(text):
    with pytest.raises(ptx.UnknownPtx):
        translate(ptx.parse(MODULE.replace("INSTRUCTION", text)))
