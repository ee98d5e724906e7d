"""The CUDA driver, through NVIDIA's cuda.core and cuda.bindings, imported on first use."""

from __future__ import annotations

import functools
from typing import Any

from ..common.memo import memoized

_LEGACY, _PER_THREAD = (0, 1), 2  # handles of CUDA's default streams


@functools.cache
def core() -> Any:
    """cuda.core: devices, streams, events, pools, code."""
    try:
        import cuda.bindings.driver
        import cuda.core
    except ImportError:
        raise RuntimeError(
            'device="gpu" needs cuda-core and cuda-bindings: pip install "ndd-fusion[gpu]"'
        ) from None
    return cuda.core


@functools.cache
def api() -> Any:
    """The driver's own functions, for the few things that cuda.core does not offer."""
    core()
    import cuda.bindings.driver

    return cuda.bindings.driver


def checked(result: tuple[Any, ...]) -> Any:
    """The value of a driver call, which returns its status first."""
    status, *values = result
    if int(status) != 0:
        _, name = api().cuGetErrorName(status)
        raise RuntimeError(f"a call of the CUDA driver failed: {name.decode()}")
    return values[0] if values else None


class OnDevice:
    """Make a GPU the calling thread's current one inside ``with``, and restore the old one."""

    __slots__ = ("_before", "_device_id")

    def __init__(self, device_id: int) -> None:
        self._device_id = device_id

    def __enter__(self) -> None:
        found = core().Device(self._device_id)  # initialises the driver
        self._before = checked(api().cuCtxGetCurrent())
        found.set_current()

    def __exit__(self, *exc: object) -> None:
        checked(api().cuCtxSetCurrent(self._before))


def current_device() -> int:
    """Ordinal of the calling thread's current GPU; 0 if it has none."""
    return int(core().Device().device_id)


def set_current_device(device_id: int) -> None:
    core().Device(device_id).set_current()


@memoized(64)
def compute_capability(device_id: int) -> int:
    """The architecture of a GPU, such as 90 for sm_90."""
    with OnDevice(device_id):
        found = core().Device(device_id).compute_capability
    return int(found.major) * 10 + int(found.minor)


def new_stream(device_id: int) -> Any:
    with OnDevice(device_id):
        return core().Device(device_id).create_stream()


def wrap_stream(handle: int) -> Any:
    """The stream of a handle, which the caller keeps alive."""
    if handle in _LEGACY:
        return core().LEGACY_DEFAULT_STREAM
    if handle == _PER_THREAD:
        return core().PER_THREAD_DEFAULT_STREAM
    return core().Stream.from_handle(handle)


def copy(to: int, source: int, nbytes: int, stream: int) -> None:
    """Copy in stream order. The driver knows which addresses are on the host and which are not."""
    checked(api().cuMemcpyAsync(to, source, nbytes, stream))


def device_of(address: int) -> int | None:
    """Ordinal of the GPU that has this memory; None if the driver does not know the address."""
    wanted = api().CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    status, ordinal = api().cuPointerGetAttribute(wanted, address)
    return int(ordinal) if int(status) == 0 else None
