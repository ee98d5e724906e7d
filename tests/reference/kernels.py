"""A third back-end, in NumPy: runs a KernelSpec from its table, point by point of its meaning.

It needs no compiler, so thousands of random programs can be planned, lowered, bound and run in the
time in which Numba compiles a few hundred kernels; and Numba's kernels can be compared with it.
"""

from __future__ import annotations

import ctypes

import numpy as np

from ndd.kernels.expr import Expr, walk
from ndd.kernels.interp import evaluate_all
from ndd.kernels.spec import Access, KernelSpec


class ReferenceKernel:
    """Like `CpuKernel`: `run(table address, first row, end row)`."""

    def __init__(self, spec: KernelSpec) -> None:
        self.spec = spec
        self.name = "reference"

    def run(self, table: int, begin: int, end: int) -> int:
        columns = self.spec.columns
        if len(columns) and end > begin:
            cells = (ctypes.c_int64 * (len(columns) * end)).from_address(table)
            rows = np.ctypeslib.as_array(cells).reshape(end, len(columns))
            for s in range(begin, end):
                self._sample({name: int(rows[s, k]) for name, k in columns.items()})
        return 0

    def _sample(self, row: dict[tuple[str | int, ...], int]) -> None:
        axes = self.spec.loop_axes
        extents = [row["n", a] for a in axes]
        if 0 in extents:
            return
        grid = np.meshgrid(*(np.arange(n) for n in extents), indexing="ij", sparse=True)
        stored = []
        for point in self.spec.static_points:
            position = {**dict(zip(axes, grid, strict=True)), **point}
            values = self.spec.at_point(point)
            env = self._leaves(values, row, position)
            for k, value in enumerate(evaluate_all(values, env)):
                where = _offsets("out", k, self.spec.stores[k], row, position)
                stored.append((row["out", k], where, value, self.spec.stores[k]))
        for address, where, value, access in stored:
            where, value = np.broadcast_arrays(np.broadcast_to(where, extents), value)
            _memory(address, where, access)[where - where.min()] = value

    def _leaves(self, values, row, position) -> dict[Expr, np.ndarray]:
        env: dict[Expr, np.ndarray] = {}
        for e in walk(values):
            if e.op == "load":
                slot, pinned = e.attr
                access = self.spec.loads[slot]
                where = _offsets("in", slot, access, row, {**position, **dict(pinned)})
                if e.args:
                    where = np.where(evaluate_all(e.args, env)[0], where, 0)
                env[e] = _read(row["in", slot], where, access)
            elif e.op == "lookup":
                where = evaluate_all(e.args, env)[0].astype(np.int64)
                env[e] = _read(row["in", e.attr], where, self.spec.loads[e.attr])
            elif e.op == "window":
                slot, pinned = e.attr
                at = {**position, **dict(pinned)}
                tests = [
                    (row["lo", slot, a] <= at[a]) & (at[a] < row["hi", slot, a])
                    for a in self.spec.windows[slot]
                ]
                env[e] = np.logical_and.reduce(np.broadcast_arrays(*tests))
            elif e.op == "index":
                slot, pinned = e.attr
                index = self.spec.indices[slot]
                at = 0 if index.axis is None else {**position, **dict(pinned)}[index.axis]
                env[e] = at if index.identity else row["step", slot] * at + row["offset", slot]
        return env


def _offsets(kind, k, access: Access, row, position) -> np.ndarray:
    total = np.int64(row.get((f"{kind}_first", k), 0))
    for axis, stride in enumerate(access.strides):
        if stride != 0:
            by = row[f"{kind}_stride", k, axis] if stride is None else stride
            total = total + np.int64(by) * position[axis]
    return np.asarray(total)


def _memory(address: int, where: np.ndarray, access: Access) -> np.ndarray:
    """The elements from the lowest offset to the highest."""
    low, high = int(where.min()), int(where.max())
    item = access.dtype.bytes
    cells = (ctypes.c_uint8 * ((high - low + 1) * item)).from_address(address + low * item)
    return np.ctypeslib.as_array(cells).view(access.dtype.np)


def _read(address: int, where: np.ndarray, access: Access) -> np.ndarray:
    values = _memory(address, where, access)[where - where.min()]
    return values != 0 if access.dtype.name == "bool" else values
