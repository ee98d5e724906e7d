"""Measures when a table of 256 entries pays: `TABLE_MIN_COST` and `TABLE_MIN_ELEMENTS`.

Prints ns per element of a u8 → f32 chain of growing length, computed and looked up, and the number
of elements at which filling the table has paid off.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from ndd.kernels.cpu import render as cpu
from ndd.kernels.cpu import runtime as cpu_runtime
from ndd.kernels.ir import dtypes as dt
from ndd.kernels.ir import expr as ex
from ndd.kernels.ir.spec import Access, KernelSpec

N = 224 * 224 * 3
ROUNDS, SAMPLES = 15, 32


def chain(length: int, gamma: bool) -> KernelSpec:
    """`length` multiply-adds on one byte, optionally a power."""
    from ndd.kernels.ir import mathlib

    v = ex.cast(ex.Expr("load", dt.uint8, attr=0), dt.float32)
    a = ex.Expr("load", dt.float32, attr=1)
    for k in range(length):
        v = v * a + float(k)
    if gamma:
        v = mathlib.pow(v, ex.const(0.45, dt.float32))
    accesses = (Access(dt.uint8, (1,)), Access(dt.float32, (0,)))
    return KernelSpec(("chain",), (None,), accesses, (Access(dt.float32, (1,)),), (v,))


def compiled(spec: KernelSpec, table: bool) -> cpu_runtime.CpuKernel:
    """The kernel, with or without the table, regardless of the number of elements."""
    before, cpu.TABLE_MIN_ELEMENTS = cpu.TABLE_MIN_ELEMENTS, 0
    try:
        return cpu_runtime.get_kernel(replace(spec, is_tabulated=table))
    finally:
        cpu.TABLE_MIN_ELEMENTS = before


def nanoseconds(spec: KernelSpec, sizes: Sequence[int]) -> dict[int, tuple[float, float]]:
    """Median CPU time of a sample for each number of elements, computed and looked up, in turn."""
    kernels = [compiled(spec, table) for table in (False, True)]
    source = np.random.default_rng(0).integers(0, 256, max(sizes), dtype=np.uint8)
    target, factor = np.empty(max(sizes), np.float32), np.array(0.99, np.float32)
    values = {("out", 0): target.ctypes.data, ("in", 0): source.ctypes.data,
              ("in", 1): factor.ctypes.data}  # fmt: skip
    times: dict[int, tuple[list[float], list[float]]] = {n: ([], []) for n in sizes}
    for _ in range(ROUNDS):
        for n in sizes:
            row = [(values | {("n", 0): n})[c] for c in spec.columns]
            rows = np.array([row] * SAMPLES, np.int64)  # in one call, because a call takes 3 µs
            calls = max(1, 1_000_000 // (n * SAMPLES))
            for kernel, seen in zip(kernels, times[n], strict=True):
                start = time.process_time()
                for _ in range(calls):
                    kernel.run(rows.ctypes.data, 0, SAMPLES)
                seen.append((time.process_time() - start) / (calls * SAMPLES) * 1e9)
    return {n: (median(direct), median(table)) for n, (direct, table) in times.items()}


def main() -> list[object]:
    print("\ntabulated bytes: ns per element (150528 elements), computed and looked up")
    for length, gamma in ((1, False), (4, False), (8, False), (16, False), (32, False), (4, True)):
        spec = chain(length, gamma)
        direct, table = nanoseconds(spec, [N])[N]
        name = f"{length} multiply-adds" + (" and a power" if gamma else "")
        print(f"  {name:30s} cost {ex.cost(spec.values[0]):4d}: {direct / N:6.3f} {table / N:6.3f}")
    for length, gamma in ((12, False), (16, False), (32, False), (4, True)):
        spec = chain(length, gamma)
        for n, (direct, table) in nanoseconds(spec, (128, 256, 512, 1024, 2048, 4096)).items():
            print(
                f"  cost {ex.cost(spec.values[0]):4d}, {n:5d} elements: "
                f"{direct:8.0f} {table:8.0f} ns, looked up / computed {table / direct:5.2f}"
            )
    return []


if __name__ == "__main__":
    main()
