"""Environment and driver → the GPUs of this process, real or simulated, and the current one."""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import threading
from collections.abc import Callable
from typing import Any

# Two, so that multi-GPU code can be tried on a laptop while a wrong ordinal is still an error.
SIMULATED_DEVICES = 2


class _LocalGpu(threading.local):
    device_id: int = 0


_local = _LocalGpu()


def simulating() -> bool:
    """Whether ``NDD_GPU=simulate`` asks for a GPU made of host memory and Triton's interpreter.

    >>> simulating()
    False
    """
    value = os.environ.get("NDD_GPU")
    if not value:
        return False
    if value.strip().lower() == "simulate":
        return True
    raise ValueError(f'NDD_GPU: got {value!r}; the only value is "simulate" (or leave it unset)')


@functools.cache
def driver_device_count() -> int:
    """Number of CUDA devices the driver reports; 0 without a driver. Imports no framework."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def device_count() -> int:
    """Number of GPUs, real or simulated."""
    return SIMULATED_DEVICES if simulating() else driver_device_count()


def gpu_available() -> bool:
    """Whether ``device="gpu"`` can work in this process."""
    return device_count() > 0


def require_gpu(what: str) -> None:
    """Raise the error that `what` needs a GPU, if there is none.

    >>> require_gpu('Device("gpu")')
    Traceback (most recent call last):
    RuntimeError: Device("gpu") needs a CUDA GPU and there is none: use device="cpu", or set \
NDD_GPU=simulate to simulate a GPU
    """
    if not gpu_available():
        raise RuntimeError(
            f'{what} needs a CUDA GPU and there is none: use device="cpu", '
            "or set NDD_GPU=simulate to simulate a GPU"
        )


def current_device_id() -> int:
    """Ordinal of the calling thread's current GPU; for a real GPU, as the CUDA runtime has it."""
    if simulating():
        return _local.device_id
    return cuda().current_device()


def set_current_device(device_id: int) -> None:
    """Make `device_id` the calling thread's current GPU."""
    if simulating():
        _local.device_id = device_id
    else:
        cuda().set_device(device_id)


class Cuda:
    """The few CUDA runtime calls that we need, taken from CuPy or, without it, from PyTorch.

    Streams and events are the framework's objects. In both frameworks they have the methods
    ``wait_event``, ``synchronize`` and ``record``.
    """

    current_device: Callable[[], int]
    set_device: Callable[[int], None]
    new_stream: Callable[[int], Any]
    wrap_stream: Callable[[int, int], Any]
    handle_of: Callable[[Any], int]
    new_event: Callable[[], Any]
    is_done: Callable[[Any], bool]


def _cuda_from_cupy(cupy: Any) -> Cuda:
    api = Cuda()
    api.current_device = cupy.cuda.runtime.getDevice
    api.set_device = cupy.cuda.runtime.setDevice

    def new_stream(device_id: int) -> Any:
        with cupy.cuda.Device(device_id):
            return cupy.cuda.Stream(non_blocking=True)

    api.new_stream = new_stream
    api.wrap_stream = cupy.cuda.ExternalStream
    api.handle_of = lambda stream: int(stream.ptr)
    api.new_event = lambda: cupy.cuda.Event(disable_timing=True)
    api.is_done = lambda event: bool(event.done)
    return api


def _cuda_from_torch(torch: Any) -> Cuda:
    api = Cuda()
    api.current_device = torch.cuda.current_device
    api.set_device = torch.cuda.set_device
    api.new_stream = lambda device_id: torch.cuda.Stream(device=device_id)
    api.wrap_stream = lambda handle, device_id: torch.cuda.ExternalStream(handle, device=device_id)
    api.handle_of = lambda stream: int(stream.cuda_stream)
    api.new_event = lambda: torch.cuda.Event()
    api.is_done = lambda event: bool(event.query())
    return api


@functools.cache
def cuda() -> Cuda:
    """The CUDA runtime of a real GPU; imports CuPy or PyTorch on first use."""
    if driver_device_count() == 0:
        raise RuntimeError("no CUDA driver (libcuda.so.1) or no CUDA device was found")
    for name, adapt in (("cupy", _cuda_from_cupy), ("torch", _cuda_from_torch)):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        return adapt(module)
    raise RuntimeError("device='gpu' needs CuPy or PyTorch for CUDA: pip install cupy-cuda13x")
