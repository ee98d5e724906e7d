"""Environment and driver → the GPUs of this process, real or simulated, and the current one."""

from __future__ import annotations

import ctypes
import functools
import os
import threading

from . import driver

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
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if library.cuInit(0) != 0 or library.cuDeviceGetCount(ctypes.byref(count)) != 0:
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
    """Ordinal of the calling thread's current GPU; for a real GPU, as the CUDA driver has it."""
    if simulating():
        return _local.device_id
    return driver.current_device()


def set_current_device(device_id: int) -> None:
    """Make `device_id` the calling thread's current GPU."""
    if simulating():
        _local.device_id = device_id
    else:
        driver.set_current_device(device_id)
