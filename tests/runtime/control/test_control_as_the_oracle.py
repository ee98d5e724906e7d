"""Modes, devices and numbers of threads behave as the oracle's."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ndd.kernels.common.threads import cgroup_cpu_quota, default_num_threads
from ndd.kernels.gpu.streams import Stream
from ndd.runtime.context import (
    EvalContext,
    EvalMode,
)
from ndd.runtime.device import Device, device
from tests.runtime.control.helpers import (
    cpu_only,
)


@pytest.fixture(scope="module")
def dali() -> Any:
    return pytest.importorskip("nvidia.dali.experimental.dynamic")


def outcome(fn: Callable[[], Any]) -> tuple[str, str]:
    try:
        value = fn()
    except Exception as error:
        return "error", type(error).__name__
    return repr(value), str(value)


def test_modes_as_the_oracle(dali: Any) -> None:
    ours, theirs = list(EvalMode), list(dali.EvalMode)
    assert [(m.name, m.value, repr(m), str(m)) for m in ours] == [
        (m.name, m.value, repr(m), str(m)) for m in theirs
    ]
    assert repr(EvalMode.default) == repr(dali.EvalMode.default)
    assert repr(EvalMode.current()) == repr(dali.EvalMode.current())


@cpu_only
@pytest.mark.parametrize(
    "expression",
    [
        "Device('cpu')",
        "Device('cpu', 0)",
        "Device('mixed')",
        "Device('foo')",
        "Device('gpu:x')",
        "Device.CPU",
        "Device.current()",
        "Device.default_device_id('cpu')",
        "Device.default_device_id('gpu')",
        "Device.default_device_id('x')",
        "Device.type_from_dlpack(1)",
        "Device.type_from_dlpack(2)",
        "Device.type_from_dlpack(3)",
        "Device.type_from_dlpack(13)",
        "Device.from_dlpack(np.zeros(3))",
        "Device('gpu')",
        "device('cpu')",
        "device('cpu:0')",
        "device('cpu', 0)",
        "device('gpu')",
        "device('cuda')",
        "device('foo')",
        "device(None)",
        "device(3)",
        "device(Device.CPU, 0)",
        "vars_of(Device('cpu'))",
    ],
)
def test_devices_as_the_oracle(dali: Any, expression: str) -> None:
    def evaluate(device_class: Any, device_function: Any) -> tuple[str, str]:
        scope = {
            "Device": device_class,
            "device": device_function,
            "np": np,
            "vars_of": lambda d: (d.device_type, d.device_id),
        }
        return outcome(lambda: eval(expression, scope))

    assert evaluate(Device, device) == evaluate(dali.Device, dali.device)


@pytest.mark.parametrize(
    ("ours", "name"),
    [(Device, "Device"), (EvalContext, "EvalContext"), (Stream, "Stream")],
)
def test_members_as_the_oracle(dali: Any, ours: type, name: str) -> None:
    public = {member for member in dir(getattr(dali, name)) if not member.startswith("_")}
    assert public <= set(dir(ours))


def test_thread_count_as_the_oracle(dali: Any) -> None:
    quota = cgroup_cpu_quota()
    if quota is None or quota >= len(os.sched_getaffinity(0)):
        assert default_num_threads() == dali.get_num_threads()
