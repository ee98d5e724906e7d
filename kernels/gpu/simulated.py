"""Launches and copies → results in host memory, by Triton's interpreter: a simulated GPU."""

from __future__ import annotations

import collections
import ctypes
import dataclasses
from typing import Any

import numpy as np

from ..common.buffers import POOL
from .kernel import Array, GpuKernel, Launch
from .streams import Stream
from .triton_cache import interpreting

# The interpreter takes milliseconds per program, whatever its size, so programs are large.
SIMULATED_BLOCK = 65536


class SimulatedGpu:
    """Host memory and Triton's interpreter in place of a GPU; work runs in stream order."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        # What each piece of queued work reads and writes; a list becomes empty when it has run.
        self._running: collections.deque[list[Any]] = collections.deque()

    def take(self, nbytes: int) -> Any:
        return POOL.take(nbytes)

    def block_for(self, table: Array, kernel: GpuKernel) -> int:
        core = kernel.spec.core
        if core is not None and core.gpu_renderer().has_fixed_block:
            return kernel.block
        # A smaller block saves a small batch from computing mostly masked lanes.
        points = int(kernel.points(table).sum())
        return min(SIMULATED_BLOCK, max(128, 1 << (max(points, 1) - 1).bit_length()))

    def launch(self, kernel: GpuKernel, plan: Launch, table: Array, alive: list[Any]) -> None:
        interpreted = kernel.interpreted

        def run() -> None:
            interpret(interpreted, plan, table)
            alive.clear()

        alive = self._kept([*alive, table])
        self._stream.submit(run)

    def copy(self, runs: list[tuple[int, int, int]], alive: list[Any]) -> None:
        def run() -> None:
            for to, source, nbytes in runs:
                ctypes.memmove(to, source, nbytes)
            alive.clear()

        alive = self._kept([*alive])
        self._stream.submit(run)

    def _kept(self, alive: list[Any]) -> list[Any]:
        while self._running and not self._running[0]:
            self._running.popleft()
        self._running.append(alive)
        return alive

    def is_using(self, owners: list[Any]) -> bool:
        return any(a is b for alive in [*self._running] for a in [*alive] for b in owners)

    def synchronize(self) -> None:
        self._stream.synchronize()


def interpret(function: Any, plan: Launch, table: Array) -> None:
    """Run a kernel in Triton's interpreter, on the calling thread."""
    import triton.language as tl
    from triton.runtime import interpreter

    def scalar(value: int, dtype: Any, held: Any) -> Any:
        # Typed explicitly, because the interpreter derives the type of a number from its value.
        return tl.tensor(interpreter.TensorHandle(np.array([value], held), dtype), dtype)

    tiles = 0 if plan.tiles is None else plan.tiles.ctypes.data
    arguments = (
        scalar(table.ctypes.data, tl.int64, np.int64), scalar(tiles, tl.int64, np.int64),
        scalar(len(table), tl.int32, np.int32), scalar(plan.n_points, tl.int64, np.int64),
        scalar(plan.tiles_per_row, tl.int32, np.int32),
    )  # fmt: skip
    builder = interpreter.interpreter_builder

    def binary_op(lhs: Any, rhs: Any, op: Any) -> Any:
        # The interpreter gives a comparison the type of its operands. A scalar one that is
        # broadcast over lanes would become an integer and could not be a mask.
        result = type(builder).binary_op(builder, lhs, rhs, op)
        is_bool = result.data.dtype == np.bool_
        return interpreter.TensorHandle(result.data, tl.int1) if is_bool else result

    with interpreting, np.errstate(all="ignore"):
        options = builder.options
        # Our integers wrap on purpose, and the overflow check computes everything twice.
        builder.options = dataclasses.replace(options, sanitize_overflow=False)
        builder.binary_op = binary_op
        try:
            function[(plan.programs,)](*arguments, plan.block, *plan.variant)
        finally:
            builder.options = options
            del builder.binary_op
