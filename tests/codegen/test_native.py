"""Native code as Python functions: memory that a call writes to lives as long as the function."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ndd.codecs.image.nvimgcodec import nvimgcodec
from ndd.kernels.common.disk_cache import cache_dir, load_object
from ndd.kernels.cpu import helpers as cpu_helpers
from ndd.kernels.cpu.decode_loop import job, nvimgcodec_c
from ndd.kernels.cpu.runtime import CpuKernel, link, machine, native

PATTERN = 0x5A5A5A5A5A5A5A5A


def headers() -> Callable[[int, int, int], int]:
    """A native helper that Python calls."""
    return cpu_helpers.function.__wrapped__("jpeg_frames")


def kernel() -> Callable[[int, int, int], int]:
    """The function of a kernel to which there is no other reference."""
    headers()
    return CpuKernel("jpeg_frames", Path(), *cpu_helpers._loaded["jpeg_frames"]).run


def sample_loop() -> Callable[[int, int, int], int]:
    """The native decode loop."""
    library = nvimgcodec_c.library(nvimgcodec)
    assert library is not None
    return job.loop.__wrapped__(library.functions)


@pytest.mark.parametrize("make", [headers, kernel, sample_loop])
def test_a_call_writes_to_memory_of_its_own(make: Callable[[], Callable[..., int]]) -> None:
    """A first pointer to freed memory would overwrite other objects, such as names of modules, with zeros."""
    run = make()
    gc.collect()
    # of the same size as the function's own memory, so that they would reuse it if it were freed
    others = [(ctypes.c_uint64 * 2)(PATTERN, PATTERN) for _ in range(5000)]
    nothing = np.zeros(64, np.int64)  # no files; for the decode loop, a job without samples
    address = nothing.ctypes.data
    assert run(address, 0, address) == 0
    assert all(list(other) == [PATTERN, PATTERN] for other in others)


def test_a_function_keeps_its_code() -> None:
    headers()
    kept = load_object(cache_dir() / "cpu" / f"helper_jpeg_frames.{machine()}.o", "jpeg_frames")
    assert kept is not None
    engine: Any
    engine, address = link(*kept)
    is_there = weakref.ref(engine)
    run = native(engine, address)
    del engine
    gc.collect()
    assert is_there() is not None
    del run
    gc.collect()
    assert is_there() is None
