"""Devices: names, conversions, the stack, and what is said without a GPU."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ndd.kernels.gpu import env as gpu_env
from ndd.runtime.device import Device, device
from tests.runtime.control.helpers import (
    cpu_only,
    in_thread,
    run_python,
)


def test_device_cpu() -> None:
    cpu = Device("cpu")
    assert (cpu.device_type, cpu.device_id) == ("cpu", None)
    assert (repr(cpu), str(cpu)) == ("Device(device_type='cpu')", "cpu")
    assert cpu == Device.CPU and not cpu != Device.CPU and hash(cpu) == hash(Device.CPU)
    assert cpu != "cpu"
    assert pickle.loads(pickle.dumps(cpu)) == cpu


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Device("cpu", 0), ValueError, r"id: 0 for device type: cpu. Must be `None`"),
        (lambda: Device("cpu:3"), ValueError, r"id: 3 for device type: cpu"),
        (lambda: Device("mixed"), ValueError, r'use device="gpu"'),
        (lambda: device("mixed"), ValueError, r'use device="gpu"'),
        (lambda: Device("foo"), ValueError, r"Invalid device type: foo.*'cpu', 'gpu'"),
        (lambda: Device("CPU"), ValueError, r"Invalid device type: CPU"),
        (lambda: Device("gpu:x"), ValueError, r"'gpu:x': the ordinal after ':' must be a number"),
        (lambda: Device("gpu:"), ValueError, r"must be a number"),
        (lambda: Device("gpu:1", 1), ValueError, r"':1' should not appear"),
        (lambda: Device(3), TypeError, r"must be a string.*got int"),
        (lambda: Device("cpu", "a"), TypeError, r"integer or None"),
        (lambda: device(3), TypeError, r"Cannot convert <class 'int'> to Device"),
        (lambda: device(Device.CPU, 0), ValueError, r"Cannot specify id"),
        (lambda: Device.default_device_id("x"), ValueError, r"Invalid device type: x"),
        (lambda: Device.type_from_dlpack(3), ValueError, r"Unsupported device type: 3"),
        (lambda: Device.from_dlpack(object()), TypeError, r"__dlpack_device__"),
    ],
)
def test_device_errors(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


@cpu_only
@pytest.mark.parametrize("name", ["gpu", "gpu:0", "cuda", "cuda:1"])
def test_gpu_without_gpu_is_one_clear_line(name: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        Device(name)
    message = str(caught.value)
    assert "\n" not in message
    assert "CUDA GPU" in message and "NDD_GPU=simulate" in message and 'device="cpu"' in message


@cpu_only
def test_no_framework_is_imported_without_a_driver() -> None:
    code = """
import sys
from ndd.runtime.context import EvalContext, get_current_stream
from ndd.runtime.device import Device
assert get_current_stream() is None and EvalContext().device_id is None
try:
    Device("gpu")
except RuntimeError:
    pass
print({"torch", "cupy", "triton", "numba"} & set(sys.modules))
"""
    assert run_python(code, NDD_GPU="") == "set()\n"


def test_wrong_ndd_gpu_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NDD_GPU", "yes")
    with pytest.raises(ValueError, match=r"NDD_GPU.*'yes'.*simulate"):
        gpu_env.simulating()


@pytest.mark.gpu
def test_device_simulated(simulated: None) -> None:
    gpu = Device("gpu")
    assert (gpu.device_type, gpu.device_id) == ("gpu", 0)
    assert (repr(gpu), str(gpu)) == ("Device(device_type='gpu', device_id=0)", "gpu:0")
    assert Device("gpu:1") == Device("gpu", 1) == device("cuda:1") == device("gpu", np.int64(1))
    assert Device("gpu:1") != gpu and len({gpu, Device("gpu:0"), Device("gpu:1")}) == 2
    assert pickle.loads(pickle.dumps(Device("gpu:1"))) == Device("gpu:1")
    assert Device.default_device_id("gpu") == 0 and Device.default_device_id("cpu") is None
    assert Device.from_dlpack((2, 1)) == Device("gpu:1")
    with pytest.raises(ValueError, match=r"id: 9 for device type: gpu. Must be in range \[0..\d\]"):
        Device("gpu", 9)
    with pytest.raises(ValueError, match=r"range \[0..\d\]"):
        Device("gpu", -1)


def test_device_conversions() -> None:
    assert device(None) is None
    assert device("cpu") is Device.CPU and device(Device.CPU) is Device.CPU
    assert Device.from_dlpack(np.zeros(3)) is Device.CPU
    assert Device.type_from_dlpack(1) == "cpu" and Device.type_from_dlpack(2) == "gpu"


@pytest.mark.gpu
def test_device_from_torch(simulated: None) -> None:
    torch = pytest.importorskip("torch")
    assert device(torch.device("cpu")) is Device.CPU
    assert device(torch.device("cuda:1")) == Device("gpu", 1)
    assert device(torch.device("cuda")) == Device("gpu", 0)
    with pytest.raises(ValueError, match="Invalid device type: meta"):
        device(torch.device("meta"))
    with pytest.raises(ValueError, match="Cannot specify id"):
        device(torch.device("cpu"), 0)


@cpu_only
def test_device_stack_on_cpu() -> None:
    assert Device.current() is Device.CPU
    with Device("cpu") as entered:
        assert Device.current() is entered
    with pytest.raises(RuntimeError, match="not entered"):
        Device.CPU.__exit__()


@pytest.mark.gpu
def test_device_stack_simulated(simulated: None) -> None:
    assert Device.current() == Device("gpu", 0)
    with Device("gpu", 1):
        assert Device.current() == Device("gpu", 1) == Device("gpu")
        assert Device.default_device_id("gpu") == 1
        assert in_thread(Device.current) == Device("gpu", 0)
        with Device("cpu"):
            assert Device.current() == Device.CPU
            assert Device("gpu").device_id == 1
        assert Device.current().device_id == 1
    assert Device("gpu").device_id == 0
