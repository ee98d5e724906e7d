"""A kernel of the tests' own, compiled by Triton and launched through cuda.bindings: `out[i] = in[i] + 1`."""

from __future__ import annotations

import ctypes
import functools

import triton
import triton.language as tl
from cuda.bindings import driver
from cuda.core import Device, ObjectCode
from triton.backends.compiler import GPUTarget

BLOCK = 128


@triton.jit(do_not_specialize=["source", "out", "n"])
def add_one(source, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(source.to(tl.pointer_type(tl.int32)) + at, mask=at < n)
    tl.store(out.to(tl.pointer_type(tl.int32)) + at, x + 1, mask=at < n)


@functools.cache
def compiled(arch: int):
    signature = {"source": "i64", "out": "i64", "n": "i32", "BLOCK": "constexpr"}
    source = triton.compiler.ASTSource(add_one, signature, {"BLOCK": BLOCK})
    options = {"num_warps": 4, "enable_fp_fusion": False}
    code = triton.compile(source, GPUTarget("cuda", arch, 32), options)
    kernel = ObjectCode.from_cubin(code.asm["cubin"]).get_kernel("add_one")
    return kernel, code.metadata.shared


def checked(result):
    status, *values = result
    assert int(status) == 0, driver.cuGetErrorName(status)
    return values[0] if values else None


def launch(stream, source: int, out: int, n: int, arch: int = 80) -> int:
    """Add one to n numbers; returns the status of the launch."""
    kernel, shared = compiled(arch)
    types = (ctypes.c_int64, ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
    values = (source, out, n, 0, 0)[: kernel.num_arguments]
    handle = driver.CUfunction(int(kernel.handle))
    (status,) = driver.cuLaunchKernel(
        handle,
        -(-n // BLOCK),
        1,
        1,
        128,
        1,
        1,
        shared,
        int(stream.handle),
        (values, types[: len(values)]),
        0,
    )
    return int(status)


def gpu(ordinal: int = 0) -> Device:
    device = Device(ordinal)
    device.set_current()
    return device
