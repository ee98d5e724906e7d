"""Devices: names, ordinals and other libraries' device objects enter, a `Device` leaves."""

from __future__ import annotations

import operator
import threading
from typing import Any, ClassVar, TypeAlias, overload

from ndd.kernels.gpu import env as gpu_env

__all__ = ["Device", "DeviceLike", "device"]

# Codes of dlpack.h that DALI accepts; it rejects pinned and managed memory (3, 13), as we do.
_DLPACK_TYPES = {1: "cpu", 2: "gpu"}


class _LocalDevice(threading.local):
    def __init__(self) -> None:
        self.stack: tuple[Device, ...] = ()
        # The GPU to restore when the matching entry of `stack` is removed.
        self.previous_ids: tuple[int | None, ...] = ()


_local = _LocalDevice()


def _split_name(name: str, device_id: int | None) -> tuple[str, int | None]:
    base, colon, suffix = name.partition(":")
    if colon:
        if device_id is not None:
            raise ValueError(
                f"Invalid device name: {name}\n"
                f"Ordinal ':{suffix}' should not appear in device name when device_id is provided"
            )
        if not (suffix.isascii() and suffix.isdigit()):
            raise ValueError(
                f"Invalid device name: {name!r}: the ordinal after ':' must be a number"
            )
        return _checked_type(base), int(suffix)
    if device_id is not None:
        try:
            device_id = operator.index(device_id)
        except TypeError:
            raise TypeError(
                f"Device: `device_id` must be an integer or None, got {type(device_id).__name__}"
            ) from None
    return _checked_type(base), device_id


def _checked_type(name: str) -> str:
    if name == "cuda":
        return "gpu"
    if name == "mixed":
        raise ValueError(
            "Invalid device type: mixed. Dynamic mode has no 'mixed' device: "
            'use device="gpu", which also takes inputs on the CPU'
        )
    if name not in ("cpu", "gpu"):
        raise ValueError(f"Invalid device type: {name}. It must be 'cpu', 'gpu' or 'gpu:<id>'")
    return name


class Device:
    """Device on which data is stored and operators are executed: the CPU or one GPU.

    >>> Device("cpu")
    Device(device_type='cpu')
    >>> str(Device("cpu"))
    'cpu'

    Inside ``with`` it is the thread's current device.

    >>> with Device("cpu"):
    ...     print(Device.current())
    cpu

    Parameters
    ----------
    name : str
        ``"cpu"``, ``"gpu"`` or ``"gpu:<id>"`` where ``<id>`` is a CUDA device ordinal. ``"cuda"``
        is accepted for ``"gpu"``.
    device_id : int, optional
        The ordinal; the current CUDA device if omitted. Leave it out for the CPU, and if `name`
        contains it.
    """

    CPU: ClassVar[Device]

    device_type: str
    device_id: int | None

    __slots__ = ("__weakref__", "device_id", "device_type")

    def __init__(self, name: str, device_id: int | None = None) -> None:
        if not isinstance(name, str):
            raise TypeError(
                f"Device: the name must be a string such as 'cpu' or 'gpu:0', "
                f"got {type(name).__name__}"
            )
        device_type, ordinal = _split_name(name, device_id)
        if device_type == "cpu":
            if ordinal is not None:
                raise ValueError(
                    f"Invalid device id: {ordinal} for device type: cpu. Must be `None`"
                )
        else:
            spelled = "gpu" if ordinal is None else f"gpu:{ordinal}"
            gpu_env.require_gpu(f'Device("{spelled}")')
            if ordinal is None:
                ordinal = gpu_env.current_device_id()
            count = gpu_env.device_count()
            if not 0 <= ordinal < count:
                raise ValueError(
                    f"Invalid device id: {ordinal} for device type: gpu. "
                    f"Must be in range [0..{count - 1}]"
                )
        self.device_type = device_type
        self.device_id = ordinal

    @staticmethod
    def current() -> Device:
        """The innermost device that this thread has entered, or the default GPU, or the CPU."""
        if _local.stack:
            return _local.stack[-1]
        return Device("gpu") if gpu_env.gpu_available() else Device.CPU

    @staticmethod
    def default_device_id(device_type: str) -> int | None:
        """Ordinal used when none is given: ``None`` for the CPU, the current CUDA device for a GPU.

        >>> print(Device.default_device_id("cpu"))
        None
        """
        if _checked_type(device_type) == "cpu":
            return None
        gpu_env.require_gpu('Device("gpu")')
        return gpu_env.current_device_id()

    @staticmethod
    def from_dlpack(dlpack_device: Any) -> Device:
        """The device of an object with ``__dlpack_device__``, or of the tuple that this returns.

        >>> Device.from_dlpack((1, 0))
        Device(device_type='cpu')
        """
        if not isinstance(dlpack_device, tuple):
            if not hasattr(dlpack_device, "__dlpack_device__"):
                raise TypeError(
                    "Device.from_dlpack: expected an object with __dlpack_device__ or a "
                    f"(type, id) tuple, got {type(dlpack_device).__name__}"
                )
            dlpack_device = dlpack_device.__dlpack_device__()
        code, ordinal = dlpack_device
        if Device.type_from_dlpack(code) == "cpu":
            return Device.CPU
        return Device("gpu", int(ordinal))

    @staticmethod
    def type_from_dlpack(dev_type: Any) -> str:
        """Name of a DLPack device type code.

        >>> Device.type_from_dlpack(2)
        'gpu'
        """
        name = _DLPACK_TYPES.get(int(dev_type))
        if name is None:
            raise ValueError(f"Unsupported device type: {dev_type}")
        return name

    def __enter__(self) -> Device:
        previous = None
        if self.device_id is not None:
            previous = gpu_env.current_device_id()
            gpu_env.set_current_device(self.device_id)
        # Only assignments from here on, so that an interrupt comes before all of them.
        _local.stack = (*_local.stack, self)
        _local.previous_ids = (*_local.previous_ids, previous)
        return self

    def __exit__(self, *exc: object) -> None:
        if not _local.stack:
            raise RuntimeError(f"Device({str(self)!r}) was not entered in this thread")
        previous = _local.previous_ids[-1]
        _local.stack, _local.previous_ids = _local.stack[:-1], _local.previous_ids[:-1]
        if previous is not None:
            gpu_env.set_current_device(previous)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Device):
            return NotImplemented
        return self.device_type == other.device_type and self.device_id == other.device_id

    def __hash__(self) -> int:
        return hash((self.device_type, self.device_id))

    def __str__(self) -> str:
        if self.device_id is None:
            return self.device_type
        return f"{self.device_type}:{self.device_id}"

    def __repr__(self) -> str:
        if self.device_id is None:
            return f"Device(device_type={self.device_type!r})"
        return f"Device(device_type={self.device_type!r}, device_id={self.device_id})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Device, (self.device_type, self.device_id)


Device.CPU = Device("cpu")

# Any stands for torch.device, because we do not import torch.
DeviceLike: TypeAlias = Device | str | Any


@overload
def device(obj: None, id: int | None = None) -> None: ...
@overload
def device(obj: Device | str, id: int | None = None) -> Device: ...
@overload
def device(obj: Any, id: int | None = None) -> Device | None: ...
def device(obj: Any, id: int | None = None) -> Device | None:
    """Convert a name, a ``torch.device`` or a `Device` to a `Device`.

    >>> device("cpu")
    Device(device_type='cpu')
    >>> device(None) is None
    True

    Parameters
    ----------
    obj : Device, str, torch.device or None
        The object to convert. Strings are ``"cpu"``, ``"gpu"``, ``"gpu:<id>"``, ``"cuda"`` and
        ``"cuda:<id>"``. ``None`` stays ``None``.
    id : int, optional
        The ordinal, if `obj` is a string that does not contain it.
    """
    if obj is None:
        return None
    if isinstance(obj, str):
        return Device.CPU if obj == "cpu" and id is None else Device(obj, id)
    if isinstance(obj, Device):
        if id is not None:
            raise ValueError("Cannot specify id when passing a Device instance")
        return obj
    # Recognise a torch.device by its attributes: importing torch here would cost a second.
    if type(obj).__module__ == "torch" and hasattr(obj, "type") and hasattr(obj, "index"):
        if id is not None:
            raise ValueError("Cannot specify id when passing a torch.device")
        # torch also has cpu:0; our CPU has no ordinal.
        return Device.CPU if obj.type == "cpu" else Device(obj.type, obj.index)
    raise TypeError(f"Cannot convert {type(obj)} to Device")


def entered_gpu_id() -> int | None:
    """Ordinal of the innermost GPU entered by this thread, or None; does not ask CUDA."""
    for entered in reversed(_local.stack):
        if entered.device_id is not None:
            return entered.device_id
    return None
