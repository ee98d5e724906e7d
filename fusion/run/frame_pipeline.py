"""Runs a decoder of videos and the kernels behind it frame by frame, on the CPU.

A video is one sample [F, H, W, C] of a batch. If every kernel of the segment reads, for a frame of
its result, one frame of the video, then a frame goes through all of them as soon as it is decoded:
scratch memory holds one frame, not the sequence, and frames that no kernel reads are not decoded.

NOTE [frame rows]. A kernel works on the samples of a table. For frame f of a sample it gets a row
of its own: the sample's row with an extent of 1 along the frame axis, with addresses moved by f
frames, and with positions counted from there.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, NamedTuple

import numpy as np

from ...kernels.common import trace
from ...kernels.common.buffers import POOL, Buffer
from ...kernels.common.threads import ThreadPool
from ...kernels.cpu.cores import AREA_ALIGNMENT
from ...kernels.ir.expr import walk
from ..graph.node import Node
from ..graph.shapes import Array, Number, numbered
from ..graph.sites import at_site
from ..graph.storage import Storage, address_of, allocate, array_at, as_array
from ..plan.steps import DecodeStep, KernelStep, Step
from .binder import Binder
from .watch import watched

Places = list[int]
Work = Callable[[int, int, Places], None]


class _FrameKernel(NamedTuple):
    """A kernel whose result follows the frames of a video along one axis."""

    step: KernelStep
    axis: int
    read: Array  # the frame that each frame of its result is made from, of all samples
    listed: frozenset[int] = frozenset()  # slots of loads that take frames by a list of positions


class FrameWork(NamedTuple):
    """A decoder, and the kernels that follow it frame by frame."""

    decode: DecodeStep
    kernels: list[_FrameKernel]


def split_frames(
    steps: list[Step],
    slots: dict[int, int],
    nodes: list[Node],
    regions: Container[int],
    binder: Binder,
) -> tuple[list[FrameWork], list[Step]]:
    """What can run frame by frame, and the other steps, which have to run before."""
    found: list[FrameWork] = []
    for decode in [s for s in steps if isinstance(s, DecodeStep)]:
        p = decode.root
        if not nodes[p].definition.kind.by_frame or (p in regions and p not in slots):
            continue  # a copy on another device needs the region
        own = _users(decode, steps)
        rest = [s for s in steps if s not in own]
        read = {q for s in own for q in s.reads}
        if any(q in slots and q in read for s in rest for q in s.writes):
            continue  # values between them would have to be in scratch memory of one thread
        kernels = _frame_kernels(decode, own[1:], slots, nodes, binder)
        if kernels is not None:
            found.append(FrameWork(decode, kernels))
            steps = rest
    return found, steps


def _users(decode: DecodeStep, steps: list[Step]) -> list[Step]:
    """A decoder and all steps that depend on it."""
    found: list[Step] = [decode]
    made = {decode.root}
    for step in steps:
        if step is not decode and made.intersection(step.reads):
            found.append(step)
            made.update(step.writes)
    return found


def _frame_kernels(
    decode: Step, steps: list[Step], slots: dict[int, int], nodes: list[Node], binder: Binder
) -> list[_FrameKernel] | None:
    # Dimension of the frames of each value, and the frames of the video that they are made from.
    framed: dict[int, tuple[int, Array]] = {}
    framed[decode.root] = 0, numbered(nodes[decode.root].shapes.rows[:, 0])
    found: list[_FrameKernel] = []
    for step in steps:
        kernel = _frame_kernel(step, decode.root, framed, binder)
        if kernel is None:
            return None
        found.append(kernel)
        for p, terms in kernel.step.recipe.stores:
            dimension = _follower(terms, kernel.axis, binder)
            if dimension is None or (p in slots and dimension):
                return None
            framed[p] = dimension, kernel.read
    return found


def _frame_kernel(
    step: Step, root: int, framed: dict[int, tuple[int, Array]], binder: Binder
) -> _FrameKernel | None:
    """How a kernel follows frames; None if it does not, or mixes them."""
    if not isinstance(step, KernelStep):
        return None
    found: list[tuple[int, Array]] = []
    listed: set[int] = set()
    for slot, (source, terms) in enumerate(step.recipe.loads):
        if source in framed:
            dimension, read = framed[source]
            axis = terms[dimension][0]
            if axis is not None and axis >= step.spec.rank and source == root:
                chosen = _listed(step, slot, axis, binder)
                listed.add(slot)
            elif axis is None or axis >= step.spec.rank:
                return None
            else:
                chosen = axis, _positions(binder, step, terms[dimension], axis)
            if chosen is None:
                return None
            axis, own = chosen
            if source != root:
                # Values between kernels are in scratch memory, which has only the same frame.
                counts = binder.nodes[source].shapes.rows[:, dimension]
                if len(own) != len(read) or not np.array_equal(own, numbered(counts)):
                    return None
                own = read
            found.append((axis, own))
    if not found or not all(a == found[0][0] and np.array_equal(r, found[0][1]) for a, r in found):
        return None
    kernel = _FrameKernel(step, *found[0], frozenset(listed))
    return kernel if _may_divide(kernel) else None


def _positions(binder: Binder, step: KernelStep, term: Any, axis: int) -> Array:
    """The position that a term takes for each frame of a kernel's result, of all samples."""
    counts = binder.nodes[step.recipe.root].shapes.rows[:, axis]
    samples = np.repeat(np.arange(len(counts)), counts)
    stride, first = binder.numbers(term)
    found: Array = _each(stride, samples) * numbered(counts) + _each(first, samples)
    return found


def _listed(step: KernelStep, slot: int, axis: int, binder: Binder) -> tuple[int, Array] | None:
    """The axis of a kernel's result along which it reads a video at listed positions, and these
    positions; None if it computes positions in another way."""
    spec, recipe = step.spec, step.recipe
    reads = [e for e in walk((*spec.values, *(c.value for c in spec.cores)))
             if e.op in ("fetch", "bilinear", "lookup") and e.attr == slot]  # fmt: skip
    where = {e.args[axis - spec.rank] if e.op == "fetch" else None for e in reads}
    position = where.pop() if len(where) == 1 else None
    while position is not None and position.op == "cast":
        position = position.args[0]
    if position is None or position.op != "load":
        return None
    source, terms = recipe.loads[position.attr]
    node, storage = binder.nodes[source], binder.values[source]
    own = terms[0][0] if len(terms) == 1 else None
    if own is None or own >= spec.rank or storage is None or storage.strides is not None:
        return None
    counts = binder.nodes[recipe.root].shapes.rows[:, own]
    if not np.array_equal(np.broadcast_to(node.shapes.rows[:, 0], len(counts)), counts):
        return None
    parts = [as_array(storage, node, s if node.count > 1 else 0) for s in range(len(counts))]
    return own, np.concatenate(parts).astype(np.int64)


def _may_divide(kernel: _FrameKernel) -> bool:
    """Whether the table of a kernel can have a row for each frame."""
    step, axis = kernel.step, kernel.axis
    spec, recipe = step.spec, step.recipe
    if recipe.flat:
        return axis == 0
    follows = any(term[0] == axis for _, terms in recipe.cores for term in terms)
    # Some values depend on the position itself, such as random numbers.
    counts = any(index.identity and index.axis == axis for index in spec.indices)
    return spec.extents[axis] is None and not follows and not counts


def _follower(terms: Any, axis: int, binder: Binder) -> int | None:
    """The dimension of a stored value that is the frame axis of the kernel."""
    for dimension, term in enumerate(terms):
        if term[0] == axis:
            step, offset = binder.numbers(term)
            return dimension if bool(np.all(step == 1) and np.all(offset == 0)) else None
    return None


class FramePipeline:
    """One decoder, and kernels that work on single frames."""

    def __init__(
        self,
        work: FrameWork,
        slots: dict[int, int],
        nodes: list[Node],
        values: list[Storage | None],
        binder: Binder,
        pool: ThreadPool,
    ) -> None:
        self.decode, self.kernels = work
        self.nodes, self.values, self.binder, self.pool = nodes, values, binder, pool
        self.node = nodes[self.decode.root]
        self.steps: list[Step] = [self.decode, *(k.step for k in self.kernels)]
        self.scratch: dict[int, int] = {}  # offsets of values in scratch memory
        self.between = 0  # bytes of scratch memory for values between steps
        self.room = 0  # bytes of scratch memory that the kernels need for themselves
        self.buffers: dict[int, Buffer] = {}  # scratch memory of each worker
        self._place(slots)

    def _place(self, slots: dict[int, int]) -> None:
        """Assign memory to every value: scratch memory for one frame, or a batch of its own."""
        made = [p for s in self.steps for p in s.writes]
        sizes = [0] * (max((slots[p] for p in made if p in slots), default=-1) + 1)
        for p in made:
            if p in slots:
                largest = self._frame_bytes(p)
                sizes[slots[p]] = max(
                    sizes[slots[p]], -(-largest // AREA_ALIGNMENT) * AREA_ALIGNMENT
                )
        ends = np.cumsum(sizes)
        self.between = int(ends[-1]) if sizes else 0
        for p in made:
            node = self.nodes[p]
            if p in slots:
                self.scratch[p] = int(ends[slots[p]]) - sizes[slots[p]]
                offsets = np.full(node.count, self.scratch[p], np.int64)
                self.values[p] = Storage(offsets, None)
            else:
                self.values[p] = allocate(node.shapes, node.dtype.bytes)

    def _frame_bytes(self, p: int) -> int:
        """Bytes of the largest frame of a value whose frames are its first axis."""
        node = self.nodes[p]
        volumes: Array = node.shapes.rows[:, 1:].prod(axis=1)
        return int(volumes.max(initial=0)) * node.dtype.bytes

    # -- which frames --------------------------------------------------------------------------

    def run(self) -> None:
        tables = [self._divided(k) for k in self.kernels]
        count, limit = self.node.count, int(self.node.shapes.rows[:, 0].max(initial=0)) + 1
        # A frame of a sample is one number, so that sets of them are sorted arrays. A frame that a
        # kernel takes several times goes through the kernels as often: scratch memory has only one
        # frame of each value.
        most = 1 + max((len(f) for _, _, f in tables), default=0)
        keys = [(samples * limit + frames) for _, samples, frames in tables]
        keys = [k * most + _occurrence(k) for k in keys]
        if self.decode.root not in self.scratch:
            counts = self.node.shapes.rows[:, 0]
            keys.append((np.repeat(np.arange(count), counts) * limit + numbered(counts)) * most)
        units = np.unique(np.concatenate(keys))
        samples, frames = np.divmod(units // most, limit)
        rows = [_rows_of(units, k) for k in keys[: len(tables)]]
        works: list[Work] = [self._decode(samples.tolist(), frames.tolist())]
        for kernel, (table, _, _), own in zip(self.kernels, tables, rows, strict=True):
            works.append(self._kernel(kernel, table, own))
        if trace.active:
            works = watched(works, self.steps, self.nodes, self.binder.run)
        self._run_all(works, samples, frames)

    def _run_all(self, works: list[Work], samples: Array, frames: Array) -> None:
        params = self.node.params
        runs = params.runs(samples, frames)

        def chunk(c: int, worker: int) -> None:
            begin, end = runs[c]
            address = self._scratch_of(worker)
            params.expect(int(samples[begin]), frames[begin:end])
            for unit in range(begin, end):
                for work in works:
                    work(unit, unit + 1, [address])

        self.pool.parallel_for(len(runs), chunk)

    def _scratch_of(self, worker: int) -> int:
        buffer = self.buffers.get(worker)
        if buffer is None:
            buffer = self.buffers[worker] = POOL.take(self.between + self.room)
        return buffer.address

    # -- rows ----------------------------------------------------------------------------------

    def _divided(self, kernel: _FrameKernel) -> tuple[Array, Array, Array]:
        """A kernel's table with a row for each frame that it makes, and which frames of which
        samples it reads for them. See NOTE [frame rows]."""
        step, axis = kernel.step, kernel.axis
        whole, room = self.binder.bound(step)
        self.room = max(self.room, room)
        counts = self.nodes[step.recipe.root].shapes.rows[:, axis]
        samples, f = np.repeat(np.arange(len(counts)), counts), numbered(counts)
        rows = whole[samples]
        if step.recipe.flat:
            self._divide_flat(step, rows, counts[samples], f)
        else:
            self._divide(kernel, rows, samples, f)
        frames = self.node.shapes.rows[:, 0]
        # A frame outside of the video is not read: a window prevents it.
        read = np.clip(kernel.read, 0, np.maximum(frames[samples] - 1, 0))
        order = np.lexsort((read, samples))
        return np.ascontiguousarray(rows[order]), samples[order], read[order]

    def _divide_flat(self, step: KernelStep, rows: Array, counts: Array, f: Array) -> None:
        place, recipe = step.spec.columns, step.recipe
        rows[:, 0] //= np.maximum(counts, 1)
        for kind, operands in (("out", recipe.stores), ("in", recipe.loads)):
            for k, (p, _) in enumerate(operands):
                if p not in self.scratch:
                    rows[:, place[kind, k]] += f * rows[:, 0] * self.nodes[p].dtype.bytes

    def _divide(self, kernel: _FrameKernel, rows: Array, samples: Array, f: Array) -> None:
        spec, recipe, axis = kernel.step.spec, kernel.step.recipe, kernel.axis
        place = spec.columns
        rows[:, place["n", axis]] = 1
        for kind, accesses, operands in (
            ("out", spec.stores, recipe.stores),
            ("in", spec.loads, recipe.loads),
        ):
            for k, (p, terms) in enumerate(operands):
                moved = self._moved(p, terms, axis, samples, f)
                if kind == "in" and k in kernel.listed:
                    moved -= _each(self._stride(p, 0), samples) * kernel.read
                if accesses[k].guarded:
                    rows[:, place[f"{kind}_first", k]] += moved
                else:
                    rows[:, place[kind, k]] += moved * self.nodes[p].dtype.bytes
        for w, axes in enumerate(spec.windows):
            if axis in axes:
                rows[:, place["lo", w, axis]] -= f
                rows[:, place["hi", w, axis]] -= f
        for i, term in enumerate(recipe.indices):
            if term[0] == axis and ("step", i) in place:
                rows[:, place["offset", i]] += rows[:, place["step", i]] * f

    def _moved(self, p: int, terms: Any, axis: int, samples: Array, f: Array) -> Array:
        """Elements by which an operand's address moves for each of the rows."""
        moved = np.zeros(len(samples), np.int64)
        for d, term in enumerate(terms):
            if term[0] != axis:
                continue
            stride = self._stride(p, d)
            step, offset = self.binder.numbers(term)
            if p in self.scratch:  # there is only this frame
                moved -= _each(stride * offset, samples)
            else:
                moved += _each(stride * step, samples) * f
        return moved

    def _stride(self, p: int, d: int) -> Number:
        storage = self.values[p]
        assert storage is not None
        return self.nodes[p].shapes.stride(d) if storage.strides is None else storage.strides[:, d]

    # -- work ----------------------------------------------------------------------------------

    def _decode(self, samples: list[int], frames: list[int]) -> Work:
        node, p = self.node, self.decode.root
        params, dtype = node.params, node.dtype.np
        shapes = [shape[1:] for shape in node.shapes.tuples]
        sizes: list[int] = (node.shapes.rows[:, 1:].prod(axis=1) * node.dtype.bytes).tolist()
        addresses = self.values[p].addresses.tolist()  # type: ignore[union-attr]
        is_scratch = p in self.scratch

        def work(begin: int, _end: int, places: Places) -> None:
            s, frame = samples[begin], frames[begin]
            s_shape = s if len(shapes) > 1 else 0
            address = addresses[s] + (places[0] if is_scratch else frame * sizes[s_shape])
            try:
                params.decode_frame(s, frame, array_at(address, shapes[s_shape], dtype))
            except Exception as error:
                raise at_site(error, node.op, node.result.site) from error.__cause__

        return work

    def _kernel(self, kernel: _FrameKernel, table: Array, rows: list[tuple[int, int]]) -> Work:
        """Run a kernel on the row of a frame, after making its addresses absolute."""
        step = kernel.step
        run, address, width = step.kernel.run, address_of(table), table.shape[1]
        operands = (("in", step.recipe.loads), ("out", step.recipe.stores))
        moved = [step.spec.columns[kind, k] for kind, found in operands
                 for k, (p, _) in enumerate(found) if p in self.scratch]  # fmt: skip
        own, between = step.scratch.column, self.between
        cells = table.reshape(-1).data  # faster than NumPy for single numbers

        def work(begin: int, _end: int, places: Places) -> None:
            row, end = rows[begin]
            for first in range(row * width, end * width, width):
                for column in moved:
                    cells[first + column] += places[0]
                if own is not None:
                    cells[first + own] = places[0] + between
            if row < end:
                run(address, row, end)

        return work


def _each(number: Any, samples: Array) -> Any:
    """The number of each row, of one per sample or one for all."""
    return number[samples] if isinstance(number, np.ndarray) and number.ndim else number


def _occurrence(keys: Array) -> Array:
    """How often the same key precedes each one of sorted keys."""
    found: Array = np.arange(len(keys)) - np.searchsorted(keys, keys, side="left")
    return found


def _rows_of(units: Array, keys: Array) -> list[tuple[int, int]]:
    """The rows [begin, end) of a table, sorted by keys, for each unit."""
    begin, end = (np.searchsorted(keys, units, side=side) for side in ("left", "right"))
    return list(zip(begin.tolist(), end.tolist(), strict=True))
