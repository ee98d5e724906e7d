"""ndd's host side on the emulated driver: devices, streams, events, hand-over, allocators."""

from __future__ import annotations

import ctypes
import sys
import threading
import types

import numpy as np
import pytest
from cuda.bindings import driver
from cuda.core import Device, DeviceMemoryResource

import ndd
from ndd.core import dlpack
from ndd.kernels.gpu import allocators
from ndd.kernels.gpu import cuda as gpu_cuda
from ndd.kernels.gpu.streams import Event, Stream
from ndd.runtime.gpu_runtimes import runtime_of
from tests.emulator.kernels import checked, gpu

pytestmark = pytest.mark.gpu
START = np.arange(12, dtype=np.float32).reshape(3, 4)
USED = b"used_dltensor"  # a capsule keeps the address of its name


@pytest.fixture(autouse=True)
def first_gpu():
    gpu(0)
    yield
    gpu(0)


def host(x):
    return np.asarray(x.cpu())


# -- devices and streams ---------------------------------------------------------------------------


def test_two_gpus_of_one_architecture_share_a_loaded_kernel():
    x = ndd.tensor(START)
    first = host(x.gpu(0) * 3)
    loaded = len(gpu_cuda._loaded)
    second = host(x.gpu(3) * 3)
    np.testing.assert_array_equal(first, START * 3)
    np.testing.assert_array_equal(second, START * 3)
    assert len(gpu_cuda._loaded) == loaded  # compiled and loaded once, valid on both


def test_the_stream_of_a_context_is_for_its_own_gpu_only():
    with ndd.EvalContext(cuda_stream=Stream(device_id=0)) as context:
        assert runtime_of(context, 0).stream is context.cuda_stream
        assert runtime_of(context, 3).stream.device_id == 3
        on_first = ndd.tensor(START, device="gpu:0") + 1
        on_second = ndd.tensor(START, device="gpu:3") + 2
        np.testing.assert_array_equal(host(on_second), START + 2)
        np.testing.assert_array_equal(host(on_first), START + 1)


def test_an_event_belongs_to_the_gpu_of_its_stream(emulator):
    first, second = Stream(device_id=0), Stream(device_id=1)
    assert Device().device_id == 0
    event = second.record_event()  # the current GPU is another one
    first.wait_event(event)
    event.record(first)  # and it may move to another GPU
    event.synchronize()
    assert event.query() and Event().query()
    assert Device().device_id == 0  # nothing of this has changed the current GPU


def test_values_go_from_gpu_to_gpu(mode):
    x = ndd.tensor(START, device="gpu:0") * 2
    y = x.gpu(2) + 1  # another architecture
    z = y.gpu(0) - 1
    np.testing.assert_array_equal(host(z), START * 2)
    np.testing.assert_array_equal(host(y), START * 2 + 1)
    turned = ndd.transpose(x, perm=[1, 0])  # a strided value is packed on its own GPU
    np.testing.assert_array_equal(host(turned.gpu(3)), START.T * 2)


def test_results_of_other_contexts_and_threads(mode):
    with ndd.EvalContext(device_id=0):
        x = ndd.tensor(START, device="gpu") + 1
    with ndd.EvalContext(device_id=0):
        y = x * 2
        np.testing.assert_array_equal(host(y), (START + 1) * 2)
    found = {}

    def work(k):
        with ndd.EvalMode[mode], ndd.EvalContext(device_id=k % 4):
            found[k] = host(ndd.tensor(START, device="gpu") * k + x.gpu(k % 4))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k in range(6):
        np.testing.assert_array_equal(found[k], START * k + START + 1)


def test_a_cpu_build_of_torch_does_no_harm():
    import torch

    assert torch.version.cuda is None and not allocators._torch_has_cuda()
    np.testing.assert_array_equal(host(ndd.tensor(START, device="gpu") + 1), START + 1)


def test_no_work_runs_before_something_waits(emulator):
    with ndd.EvalMode.sync_cpu:
        x = ndd.tensor(START, device="gpu")
        before = emulator.calls("waits")
        y = (x + 1).evaluate()
        assert emulator.pending > 0 and emulator.calls("waits") == before
        np.testing.assert_array_equal(host(y), START + 1)
    with ndd.EvalMode.sync_full:
        y = ndd.tensor(START, device="gpu") + 2
        del y


def test_memory_and_staging_are_given_back():
    """A loop takes no more memory than one iteration."""
    runtime = runtime_of(None, 0)
    x = ndd.tensor(START, device="gpu")
    for _ in range(20):
        host(x * 2 + 1)
    staged = sum(map(len, runtime._device._staging._free.values()))
    for _ in range(20):
        host(x * 2 + 1)
    assert sum(map(len, runtime._device._staging._free.values())) == staged
    assert len(runtime._device._running) == 0


def test_denormals_are_not_flushed():
    """Triton's default makes `floor` and `ceil` flush them, in compiled code only."""
    tiny = np.float32([1e-40, -1e-40, 0.5, -0.5])
    with ndd.EvalMode.deferred:
        for device in range(3):
            x = ndd.tensor(tiny, device=f"gpu:{device}")
            np.testing.assert_array_equal(host(ndd.math.floor(x)), np.floor(tiny))
            np.testing.assert_array_equal(host(ndd.math.ceil(x)), np.ceil(tiny))


# -- allocators ------------------------------------------------------------------------------------


class CountingResource:
    """A user's own allocator."""

    def __init__(self):
        self.resource, self.sizes = DeviceMemoryResource(0), []

    def allocate(self, nbytes, *, stream):
        self.sizes.append(nbytes)
        return self.resource.allocate(nbytes, stream=stream)


def test_an_allocator_of_the_user():
    own = CountingResource()
    with ndd.EvalContext(device_id=0, allocator=own):
        np.testing.assert_array_equal(host(ndd.tensor(START, device="gpu") + 1), START + 1)
    assert START.nbytes in own.sizes
    with ndd.EvalContext(device_id=0, allocator="cuda"):
        taken = len(own.sizes)
        host(ndd.tensor(START, device="gpu") + 1)
        assert len(own.sizes) == taken


def test_torchs_allocator_is_the_default_where_torch_has_cuda(monkeypatch):
    """torch itself has no CUDA here: a stand-in has its two functions, over the driver's."""
    live = {}

    def take(nbytes, device, stream):
        address = int(checked(driver.cuMemAlloc(nbytes)))
        live[address] = nbytes, device, stream
        return address

    def give_back(address):
        del live[address]

    stand_in = types.ModuleType("torch")
    stand_in.Tensor = type("Tensor", (), {})
    stand_in.cuda = types.SimpleNamespace(
        is_available=lambda: True, caching_allocator_alloc=take, caching_allocator_delete=give_back
    )
    monkeypatch.setitem(sys.modules, "torch", stand_in)
    stream = Stream(device_id=0)
    with ndd.EvalContext(cuda_stream=stream), ndd.EvalMode.sync_full:
        y = ndd.tensor(START, device="gpu") + 1
        taken = set(live.values())
        assert (START.nbytes, 0, stream.handle) in taken
        np.testing.assert_array_equal(host(y), START + 1)
        count = len(live)
        del y
        assert len(live) < count


def test_cupys_pool_takes_memory_on_the_stream_of_the_context(monkeypatch):
    """CuPy does not run here: a stand-in has what CuPy 14 offers, over the driver's functions.

    `ExternalStream`, which it deprecates, is missing.
    """
    current, taken = [], []

    class Current:
        def __init__(self, what):
            self.what = what

        @classmethod
        def from_external(cls, stream):
            version, handle = stream.__cuda_stream__()
            assert version == 0
            return cls(handle)

        def __enter__(self):
            current.append(self.what)

        def __exit__(self, *exc):
            current.pop()

    def alloc(nbytes):
        taken.append((nbytes, *current))
        return types.SimpleNamespace(ptr=int(checked(driver.cuMemAlloc(nbytes))))

    stand_in = types.ModuleType("cupy")
    stand_in.cuda = types.SimpleNamespace(Stream=Current, Device=Current, alloc=alloc)
    monkeypatch.setitem(sys.modules, "cupy", stand_in)
    stream = Stream(device_id=3)
    with ndd.EvalContext(cuda_stream=stream, allocator="cupy"):
        np.testing.assert_array_equal(host(ndd.tensor(START, device="gpu") + 1), START + 1)
    assert (START.nbytes, 3, stream.handle) in taken


def test_a_wrong_allocator_is_named():
    with pytest.raises(ValueError, match="`allocator` must be one of 'cuda', 'torch', 'cupy', or"):
        ndd.EvalContext(allocator="malloc")


# -- hand-over -------------------------------------------------------------------------------------


class Producer:
    """Another library's memory: filled on its own stream, which nobody has waited for."""

    def __init__(self, value: int, ordinal: int = 0, **more):
        self.device = gpu(ordinal)
        self.stream = self.device.create_stream()
        self.memory = self.device.allocate(START.nbytes, stream=self.stream)
        checked(
            driver.cuMemsetD32Async(
                int(self.memory.handle), value, START.size, int(self.stream.handle)
            )
        )
        self.interface = {
            "version": 3, "shape": START.shape, "typestr": "<i4", "strides": None,
            "data": (int(self.memory.handle), False), "stream": int(self.stream.handle), **more,
        }  # fmt: skip
        gpu(0)


class ArrayInterface(Producer):
    @property
    def __cuda_array_interface__(self):
        return self.interface


class DlpackOnly(Producer):
    def __dlpack_device__(self):
        return (2, self.device.device_id)

    def __dlpack__(self, *, stream):
        event = checked(driver.cuEventCreate(0))
        checked(driver.cuEventRecord(event, int(self.stream.handle)))
        checked(driver.cuStreamWaitEvent(stream, event, 0))
        address, ordinal = int(self.memory.handle), self.device.device_id
        return dlpack.export(self, address, START.shape, None, ndd.int32, ordinal)


@pytest.mark.parametrize("kind", [ArrayInterface, DlpackOnly])
def test_import_waits_for_its_producer(kind, mode):
    x = ndd.as_tensor(kind(41))
    assert x.device == ndd.Device("gpu", 0) and x.dtype == ndd.int32
    y = x + 1
    np.testing.assert_array_equal(host(y), np.full(START.shape, 42))


def test_import_without_the_stream_reads_garbage(emulator):
    """So that the test above can fail: the interface says that nothing needs to be waited for."""
    with ndd.EvalMode.sync_cpu, pytest.raises(Exception, match="add: CUDA_ERROR_ILLEGAL_ADDRESS"):
        host(ndd.as_tensor(ArrayInterface(41, stream=None)) + 1)
    assert "has not run yet in its stream" in emulator.fault
    emulator.clear()


def test_import_finds_the_gpu_of_the_memory():
    y = ndd.as_tensor(ArrayInterface(6, ordinal=3))
    assert y.device == ndd.Device("gpu", 3)
    np.testing.assert_array_equal(host(y * 7), np.full(START.shape, 42))
    with ndd.EvalContext(device_id=3):  # not the context that has imported it
        np.testing.assert_array_equal(host(y * 6), np.full(START.shape, 36))


class Consumer:
    """A reader of DLPack capsules, written from dlpack.h alone."""

    def __init__(self, tensor, stream=None, **kwargs):
        self.device = gpu(tensor.__dlpack_device__()[1])
        self.stream = self.device.create_stream()
        self.given = int(self.stream.handle) if stream is None else stream
        self.capsule = tensor.__dlpack__(stream=self.given, **kwargs)
        self.name = b"dltensor_versioned" if kwargs.get("max_version") else b"dltensor"
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        self.words = (ctypes.c_int64 * 12).from_address(pointer(self.capsule, self.name))
        # versioned: version, context, deleter, flags, then the tensor
        self.first = 4 if self.name != b"dltensor" else 0
        self.flags = self.words[3] if self.first else 0
        self.address = self.words[self.first]
        device, rank_and_type = self.words[self.first + 1], self.words[self.first + 2]
        self.where = (device & 0xFFFFFFFF, device >> 32)
        self.rank, self.kind = rank_and_type & 0xFFFFFFFF, rank_and_type >> 32
        shape = (ctypes.c_int64 * self.rank).from_address(self.words[self.first + 3])
        strides = (ctypes.c_int64 * self.rank).from_address(self.words[self.first + 4])
        self.shape, self.strides = tuple(shape), tuple(strides)

    def read(self, dtype=np.float32):
        found = np.zeros(self.shape, dtype)
        checked(
            driver.cuMemcpyAsync(
                found.ctypes.data, self.address, found.nbytes, int(self.stream.handle)
            )
        )
        return found

    def give_back(self):
        deleter = self.words[2] if self.first else self.words[7]
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter)(ctypes.addressof(self.words))
        ctypes.pythonapi.PyCapsule_SetName(self.capsule, USED)


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_dlpack_export(mode, version):
    kwargs = {"max_version": version} if version else {}
    x = ndd.tensor(START, device="gpu") + 1
    found = Consumer(x, **kwargs)
    assert (found.where, found.shape, found.strides) == ((2, 0), (3, 4), (4, 1))
    assert found.kind == 2 | 32 << 8 | 1 << 16  # one lane of a 32-bit float
    np.testing.assert_array_equal(found.read(), START + 1)
    held = len(dlpack._exported)
    found.give_back()
    assert len(dlpack._exported) == held - 1


def test_an_unused_capsule_gives_its_memory_back():
    held = len(dlpack._exported)
    capsule = (ndd.tensor(START, device="gpu") + 1).__dlpack__()
    assert len(dlpack._exported) == held + 1
    del capsule
    assert len(dlpack._exported) == held


def test_dlpack_without_a_wait_is_the_consumers_business(emulator):
    with ndd.EvalMode.sync_cpu:
        found = Consumer(ndd.tensor(START, device="gpu") + 1, stream=-1)
    (status,) = driver.cuMemcpyAsync(
        np.zeros(12, np.float32).ctypes.data, found.address, 48, int(found.stream.handle)
    )
    assert int(status) == 700 and "has not run yet" in emulator.fault
    emulator.clear()


def test_dlpack_to_default_streams():
    for stream in (None, 1, 2):
        x = ndd.tensor(START, device="gpu") + 1
        capsule = x.__dlpack__(stream=stream)
        address = (ctypes.c_int64 * 12).from_address(
            ctypes.pythonapi.PyCapsule_GetPointer(capsule, b"dltensor")
        )[0]
        found = np.zeros_like(START)
        checked(driver.cuMemcpyAsync(found.ctypes.data, address, found.nbytes, stream or 0))
        np.testing.assert_array_equal(found, START + 1)


def test_dlpack_copies_if_asked_to():
    x = (ndd.tensor(START, device="gpu") + 1).evaluate()
    own = x.__cuda_array_interface__["data"][0]
    assert Consumer(x).address == own and Consumer(x, copy=False).address == own
    copied = Consumer(x, copy=True, max_version=(1, 0))
    assert copied.address != own and copied.flags == 2  # "is copied"
    np.testing.assert_array_equal(copied.read(), START + 1)
    np.testing.assert_array_equal(np.from_dlpack(x, device="cpu"), START + 1)
    with pytest.raises(BufferError, match="is on GPU 0"):
        x.__dlpack__(dl_device=(2, 1))


def test_writes_of_a_consumer_are_seen(mode):
    """Memory that was handed out is read at each call, as on the simulated GPU."""
    x = ndd.tensor(START, device="gpu")
    before = x * 2
    found = Consumer(x)

    def write(value):
        bits = int(np.float32(value).view(np.uint32))
        checked(driver.cuMemsetD32Async(found.address, bits, START.size, int(found.stream.handle)))
        found.stream.sync()

    write(0)
    after = x + 1
    write(5)
    last = x + 1
    np.testing.assert_array_equal(host(before), START * 2)
    np.testing.assert_array_equal(host(after), START * 0 + 1)
    np.testing.assert_array_equal(host(last), START * 0 + 6)


def test_array_interface_export():
    x = ndd.tensor(START, device="gpu:3") + 1
    found = x.__cuda_array_interface__
    stream = runtime_of(None, 3).stream
    assert found["stream"] == stream.handle and found["shape"] == (3, 4)
    np.testing.assert_array_equal(host(ndd.as_tensor(x) * 1), START + 1)


@pytest.mark.parametrize("ordinal", [0, 3])
def test_arrays_of_numba(ordinal, mode):
    """Numba's CUDA target, through its own driver bindings; its compiler would need NVVM."""
    cuda = pytest.importorskip("numba.cuda")
    with cuda.gpus[ordinal]:
        ours = ndd.tensor(START, device=f"gpu:{ordinal}") + 1
        np.testing.assert_array_equal(cuda.as_cuda_array(ours).copy_to_host(), START + 1)
        stream = cuda.stream()
        theirs = cuda.to_device(START, stream=stream)
        assert theirs.__cuda_array_interface__["stream"] == stream.handle.value
        y = ndd.as_tensor(theirs)
        assert y.device == ndd.Device("gpu", ordinal)
        np.testing.assert_array_equal(host(y * 2), START * 2)


@pytest.mark.parametrize("handle", [0, 1, 2])
def test_default_streams_of_cuda(handle):
    with ndd.EvalContext(cuda_stream=Stream(stream=handle, device_id=3)):
        np.testing.assert_array_equal(host(ndd.tensor(START, device="gpu:3") + 1), START + 1)


def test_streams_by_protocol():
    native = gpu(3).create_stream()
    gpu(0)
    wrapped = Stream(stream=native, device_id=3)
    assert wrapped.handle == int(native.handle) and wrapped.__cuda_stream__() == (0, wrapped.handle)
    with ndd.EvalContext(cuda_stream=wrapped):
        np.testing.assert_array_equal(host(ndd.tensor(START, device="gpu") + 1), START + 1)
    assert Stream(stream=wrapped.handle, device_id=3) == wrapped
