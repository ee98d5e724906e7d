"""When a table of 256 entries beats computing: the two constants of kernels/cpu.py.

Prints ns per element of a u8 → f32 chain of growing length, computed and looked up, and the number
of elements at which filling the table has paid off.
"""

from __future__ import annotations

import time
from statistics import median

import numpy as np

from ndd.kernels import cpu, cpu_runtime
from ndd.kernels import dtypes as dt
from ndd.kernels import expr as ex
from ndd.kernels.spec import Access, KernelSpec

N = 224 * 224 * 3


def chain(length: int, gamma: bool) -> KernelSpec:
    """`length` multiply-adds on one byte, optionally a power."""
    from ndd.kernels import mathlib

    v = ex.cast(ex.Expr("load", dt.uint8, attr=0), dt.float32)
    a = ex.Expr("load", dt.float32, attr=1)
    for k in range(length):
        v = v * a + float(k)
    if gamma:
        v = mathlib.pow(v, ex.const(0.45, dt.float32))
    accesses = (Access(dt.uint8, (1,)), Access(dt.float32, (0,)))
    return KernelSpec(("chain",), (None,), accesses, (Access(dt.float32, (1,)),), (v,))


def nanoseconds(spec: KernelSpec, n: int, table: bool) -> float:
    """Time per call for `n` elements, with or without the table."""
    before = cpu.TABLE_MIN_COST, cpu.TABLE_MIN_ELEMENTS
    cpu.TABLE_MIN_COST, cpu.TABLE_MIN_ELEMENTS = (0, 0) if table else (10**9, 0)
    try:
        cpu_runtime._kernels.pop(spec, None)
        cpu_runtime.kernel_file.cache_clear()
        kernel = cpu_runtime.get_kernel(spec)
    finally:
        cpu.TABLE_MIN_COST, cpu.TABLE_MIN_ELEMENTS = before
        cpu_runtime._kernels.pop(spec, None)
        cpu_runtime.kernel_file.cache_clear()
    source = np.random.default_rng(0).integers(0, 256, n, dtype=np.uint8)
    target, factor = np.empty(n, np.float32), np.array(0.99, np.float32)
    values = {("n", 0): n, ("out", 0): target.ctypes.data, ("in", 0): source.ctypes.data,
              ("in", 1): factor.ctypes.data}  # fmt: skip
    row = np.array([[values[c] for c in spec.columns]], np.int64)
    times = []
    for _ in range(15):
        start = time.perf_counter()
        for _ in range(max(1, 2_000_000 // n)):
            kernel.run(row.ctypes.data, 0, 1)
        times.append((time.perf_counter() - start) / max(1, 2_000_000 // n))
    return median(times) * 1e9


def main() -> list[object]:
    print("\ntabulated bytes: ns per element (150528 elements), computed and looked up")
    for length, gamma in ((1, False), (4, False), (8, False), (16, False), (32, False), (4, True)):
        spec = chain(length, gamma)
        direct, table = (nanoseconds(spec, N, t) / N for t in (False, True))
        name = f"{length} multiply-adds" + (" and a power" if gamma else "")
        print(f"  {name:30s} cost {ex.cost(spec.values[0]):4d}: {direct:6.3f} {table:6.3f}")
    for length, gamma in ((16, False), (4, True)):
        spec = chain(length, gamma)
        for n in (128, 256, 512, 1024, 2048, 4096):
            direct, table = (nanoseconds(spec, n, t) for t in (False, True))
            print(
                f"  cost {ex.cost(spec.values[0]):4d}, {n:5d} elements: "
                f"{direct:8.0f} {table:8.0f} ns"
            )
    return []


if __name__ == "__main__":
    main()
