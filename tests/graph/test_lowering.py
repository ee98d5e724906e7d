"""Groups → specs and tables, run by a NumPy interpreter of specs: no Numba, no Triton."""

from __future__ import annotations

import ctypes
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ndd
from ndd.fusion.graph import build
from ndd.fusion.plan.planner import PLANNER
from ndd.fusion.plan.program import collect
from ndd.fusion.plan.steps import KernelStep
from ndd.fusion.run import execution as run
from ndd.fusion.run import pipeline
from ndd.fusion.run.binder import Tables
from ndd.kernels.cpu.cores import columns_of
from ndd.kernels.ir import dtypes as dt
from ndd.kernels.ir import expr as ex
from ndd.kernels.ir.interpreter import evaluate, evaluate_all
from ndd.kernels.ir.spec import KernelSpec
from tests.helpers import arrays, assert_same, forget_plans, ragged, samples

Array = np.ndarray[Any, Any]


class InterpretedKernel:
    """Run a spec in NumPy: every point of every row of the table."""

    def __init__(self, spec: KernelSpec) -> None:
        self.spec = spec

    def run(self, table: int, begin: int, end: int) -> None:
        width = len(columns_of(self.spec))  # this back-end's own columns come last
        for s in range(begin, end):
            row = (ctypes.c_int64 * width).from_address(table + 8 * width * s)
            self._sample({name: row[k] for name, k in self.spec.columns.items()})

    run_briefly = run

    def _sample(self, row: dict[Any, int]) -> None:
        spec = self.spec
        extents = [row["n", a] if n is None else n for a, n in enumerate(spec.extents)]
        at = np.indices(extents, np.int64) if extents else np.zeros((0,), np.int64)
        env: dict[Any, Any] = {}
        for k, access in enumerate(spec.loads):
            # the length of a lookup table is not known here, so read it lazily
            env["table", k] = _Table(row["in", k], access.dtype)
        for e in ex.walk(spec.values):
            if e.op == "load":
                mask = evaluate(e.args[0], env) if e.args else True
                env[e] = self._load(row, e.attr, at, extents, np.broadcast_to(mask, extents))
            elif e.op == "window":
                env[e] = np.ones(extents, bool)
                for a in spec.windows[e.attr]:
                    env[e] &= (row["lo", e.attr, a] <= at[a]) & (at[a] < row["hi", e.attr, a])
            elif e.op == "index":
                ix = spec.indices[e.attr]
                o = 0 if ix.axis is None else at[ix.axis]
                plain = ix.identity
                env[e] = o if plain else row["step", e.attr] * o + row["offset", e.attr]
            elif e.op == "lookup":
                env[e] = env["table", e.attr].take(evaluate(e.args[0], env))
        for k, value in enumerate(evaluate_all(spec.values, env)):
            offsets = self._offsets(row, "out", k, at, extents)
            values = np.broadcast_to(value, extents).reshape(-1)
            for offset, v in zip(offsets.reshape(-1).tolist(), values, strict=True):
                item = np.asarray(v, spec.stores[k].dtype.np).tobytes()
                ctypes.memmove(row["out", k] + offset * len(item), item, len(item))

    def _offsets(self, row: Any, kind: str, k: int, at: Array, extents: list[int]) -> Array:
        access = (self.spec.stores if kind == "out" else self.spec.loads)[k]
        first = row[f"{kind}_first", k] if access.guarded else 0
        total = np.full(extents, first, np.int64)
        for a, stride in enumerate(access.strides):
            total += at[a] * (row[f"{kind}_stride", k, a] if stride is None else stride)
        return total

    def _load(self, row: Any, k: int, at: Array, extents: list[int], mask: Array) -> Array:
        offsets = np.where(mask, self._offsets(row, "in", k, at, extents), 0)
        return _Table(row["in", k], self.spec.loads[k].dtype).take(offsets)


class _Table:
    """The elements at an address, as an array."""

    def __init__(self, address: int, dtype: Any) -> None:
        self.address = address
        self.dtype = dtype

    def take(self, at: Array) -> Array:
        size = self.dtype.np.itemsize
        data = [ctypes.string_at(self.address + int(i) * size, size) for i in np.ravel(at)]
        return np.frombuffer(b"".join(data), self.dtype.np).reshape(np.shape(at))


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(pipeline.cpu_runtime, "get_kernel", InterpretedKernel)
    forget_plans(monkeypatch)
    with ndd.EvalMode.deferred:
        yield


def group(*values: Any) -> KernelSpec:
    """The spec of the only kernel that these values need."""
    steps = PLANNER.make_plan(collect([v._node for v in values]), True).steps
    assert len(steps) == 1 and isinstance(steps[0], KernelStep)
    return steps[0].spec


def check(op: Callable[[Any], Any], by_numpy: Callable[[Array, int], Any], **options: Any) -> None:
    """An op on a ragged batch does what NumPy does to each sample, also when it is fused."""
    data = samples(**options)
    x = ndd.batch(data, layout="HWC")
    wanted = [np.asarray(by_numpy(a, k)) for k, a in enumerate(data)]
    assert_same(op(x), wanted)
    plus_one = [np.asarray(by_numpy(a + a.dtype.type(1), k)) for k, a in enumerate(data)]
    before = ndd.cast_like(x + 1, x)  # no value wraps with the callers' types
    if data[0].dtype == np.float32:
        assert_same(op(before), plus_one)


F32 = dict(dtype=np.float32)


def test_flip_per_sample() -> None:
    flags = [1, 0, 1]
    check(
        lambda x: ndd.flip(x, horizontal=ndd.batch(flags), vertical=1),
        lambda a, k: a[::-1, :: -1 if flags[k] else 1],
        **F32,
    )


def test_slices_with_steps() -> None:
    check(lambda x: x.slice[::-2, 1:, 1], lambda a, k: a[::-2, 1:, 1], **F32)
    check(lambda x: x.slice[-1, ::-1, ::2], lambda a, k: a[-1, ::-1, ::2], **F32)


def test_pad_and_crop_outside() -> None:
    def by_numpy(a: Array, k: int) -> Array:
        out = np.full((10, 11, 3), 9, a.dtype)
        out[: a.shape[0], : a.shape[1]] = a
        return out[2:10]

    check(
        lambda x: ndd.pad(x, shape=(10, 11), axes=(0, 1), fill_value=9.0).slice[2:], by_numpy, **F32
    )


def test_nested_windows() -> None:
    def by_numpy(a: Array, k: int) -> Array:
        inner = np.pad(a, ((0, 9 - a.shape[0]), (0, 0), (0, 0)), constant_values=1)
        outer = np.pad(inner[::-1], ((0, 3), (0, 10 - a.shape[1]), (0, 0)), constant_values=2)
        return outer.transpose(1, 2, 0)

    def op(x: Any) -> Any:
        inner = ndd.flip(
            ndd.pad(x, shape=(9,), axes=(0,), fill_value=1.0), horizontal=0, vertical=1
        )
        outer = ndd.pad(inner, shape=(12, 10), axes=(0, 1), fill_value=2.0)
        return ndd.transpose(outer, perm=[1, 2, 0])

    check(op, by_numpy, **F32)


def test_slice_with_padding_on_all_sides() -> None:
    def op(x: Any) -> Any:
        return ndd.slice(x, start=(-2, -1), end=(3, 12), axes=(0, 1), out_of_bounds_policy="pad",
                         fill_values=[1.0, 2.0, 3.0])  # fmt: skip

    def by_numpy(a: Array, k: int) -> Array:
        out = np.empty((5, 13, 3), a.dtype)
        out[:] = (1, 2, 3)
        part = a[:3, :12]
        out[2 : 2 + part.shape[0], 1 : 1 + part.shape[1]] = part
        return out

    check(op, by_numpy, **F32)


def test_cat_and_stack() -> None:
    check(
        lambda x: ndd.cat(x, ndd.flip(x) * 2.0, x, axis=1),
        lambda a, k: np.concatenate([a, a[:, ::-1] * np.float32(2), a], 1),
        **F32,
    )
    check(
        lambda x: ndd.stack(x, -x, axis=-1),
        lambda a, k: np.stack([a, -a], -1),
        **F32,
    )


def test_cat_of_many() -> None:
    check(
        lambda x: ndd.cat(*[x + float(i) for i in range(11)]),
        lambda a, k: np.concatenate([a + np.float32(i) for i in range(11)]),
        shapes=[(2, 3, 1), (1, 2, 1)],
        **F32,
    )


def test_broadcasting_and_sample_arguments() -> None:
    gains = np.array([0.5, 2.0, 3.0], np.float32)
    row = np.arange(3, dtype=np.float32)
    check(
        lambda x: (x * ndd.batch(list(gains)) + ndd.tensor(row)).slice[:, ::-1],
        lambda a, k: (a * gains[k] + row)[:, ::-1],
        **F32,
    )


def test_extents_of_one_repeat_even_after_a_flip() -> None:
    column = samples([(4, 1, 3)], np.float32, 1)
    full = samples([(4, 6, 3)], np.float32, 2)
    x, y = ndd.batch(column, layout="HWC"), ndd.batch(full, layout="HWC")
    assert_same(ndd.flip(x) + y, [column[0] + full[0]])
    assert_same(ndd.flip(x + y, vertical=1), [(column[0] + full[0])[::-1, ::-1]])


def test_strided_memory_is_read_in_place() -> None:
    base = samples([(8, 10, 3)], np.float32)[0]
    part = base[::2, 1::3].transpose(1, 0, 2)
    x = ndd.as_tensor(part, layout="HWC")
    assert_same(x + 1.0, [part + np.float32(1)])
    assert_same(x[::-1] * 2.0, [part[::-1] * np.float32(2)])
    # a strided sample that is repeated: the plan takes the repeated ones for contiguous
    last = ndd.as_tensor(base[:, :, ::2], layout="HWC")
    wanted = [base[:, :, ::2], base[:, ::-1, ::2]]
    assert_same(ndd.flip(last, batch_size=2, horizontal=ndd.batch([0, 1])), wanted)


def test_an_index_is_more_than_a_shape() -> None:
    # a value with no axes is still read at the right place
    x = ndd.tensor([1.0, 2.0, 3.0])
    for k in (0, 1, 2, -1):
        assert float(x[k] + 10.0) == 10.0 + [1.0, 2.0, 3.0][k]
    b = ndd.batch([[1.0, 2.0], [3.0, 4.0, 5.0]])
    assert_same(b.slice[-1] * 2.0, [np.float32(4), np.float32(10)])


def test_several_results_from_one_kernel() -> None:
    data = samples(**F32)
    x = ndd.batch(data, layout="HWC")
    a = x * 2.0
    b = ndd.flip(a, vertical=1)
    c = ndd.transpose(b + 1.0, perm=[2, 0, 1])
    for _ in range(2):  # the second time from a plan that stores all three
        a = x * 2.0
        b = ndd.flip(a, vertical=1)
        c = ndd.transpose(b + 1.0, perm=[2, 0, 1])
        two = [d * np.float32(2) for d in data]
        mirrored = [t[::-1, ::-1] for t in two]
        assert_same(c, [(m + np.float32(1)).transpose(2, 0, 1) for m in mirrored])
        assert_same(a, two)
        assert_same(b, mirrored)
    (kernel,) = (g for g in ndd.explain(c).groups if g.kind == "kernel")
    assert len(kernel.outputs) == 3


def test_a_result_that_is_read_in_part_is_whole() -> None:
    data = samples([(4, 5, 3)], np.float32)
    x = ndd.batch(data)
    for _ in range(3):
        a = x * 2.0
        r = a * 3.0
        z = a.slice[0:1] + r
        assert_same(z, [d[0:1] * np.float32(2) + d * np.float32(6) for d in data])
        assert_same(a, [d * np.float32(2) for d in data])
        assert_same(r, [d * np.float32(6) for d in data])


def test_channels_are_unrolled_and_mixed() -> None:
    data = samples(**F32)
    x = ndd.batch(data, layout="HWC")
    mixed = arrays(ndd.flip(ndd.hue(ndd.flip(x, horizontal=0, vertical=1), hue=40.0)))
    alone = arrays(ndd.hue(ndd.batch(data, layout="HWC"), hue=40.0))
    assert_same(mixed, [np.ascontiguousarray(a[::-1, ::-1]) for a in alone])
    assert group(ndd.hue(x, hue=40.0)).extents == (None, None, 3)


def test_samples_of_other_sizes_in_one_flush() -> None:
    # two unrelated results, batches of 3 and of 5: one program, two runs of kernels
    x, y = ragged(**F32), ragged([(2, 2, 3)] * 5, **F32)
    program = collect([(x * 2.0)._node, (y + 1.0)._node])
    made = PLANNER.make_plan(program, True)
    run.Run(made, program, lambda: ndd.ThreadPool(1), lambda _: None, Tables()).execute()
    results = [program.nodes[p] for p in made.outputs]
    assert sorted(n.count for n in results) == [3, 5]
    for node in results:
        source, factor = (x, 2.0) if node.count == 3 else (y, 1.0)
        wanted = [a * factor if node.count == 3 else a + np.float32(1) for a in arrays(source)]
        assert_same(ndd.Batch._of(node), wanted)


def test_looked_up_values_are_in_memory() -> None:
    values = ndd.tensor([5.0, 6.0, 7.0])
    table = (values * 2.0)._node
    index = ndd.tensor([2, 0, 1, 1])._node
    body = lambda i, t: ex.lookup(t, i)
    found = build.pointwise("look", body, [index, table], [(0,), (0,)], index.shapes, None)
    assert_same(ndd.Tensor._of(found), [np.float32([14, 10, 12, 12])])


# -- specs ---------------------------------------------------------------------------------------


def test_plain_chains_are_one_flat_loop() -> None:
    spec = group(ndd.cast(ragged(), dtype=ndd.float32) * 2.0 + 1.0)
    assert spec.extents == (None,)
    assert [a.strides for a in spec.loads] == [(1,), (0,), (0,)]
    assert spec.values[0].dtype is dt.float32


def test_a_chain_of_views_is_one_load() -> None:
    x = ragged()
    view = ndd.crop(ndd.flip(ndd.transpose(x, perm=[1, 0, 2], transpose_layout=False)), crop=(2, 2))
    spec = group(view)
    assert len(spec.loads) == 1 and not spec.windows
    assert spec.values[0].op == "load"


def test_kernels_know_nothing_of_sizes_and_values() -> None:
    one = group(ndd.pad(ndd.flip(ragged(seed=1)) * 2.0, shape=(20,), axes=(0,)))
    two = group(ndd.pad(ndd.flip(ragged([(7, 7, 3)] * 9, seed=2)) * 5.0, shape=(50,), axes=(0,)))
    assert one == two


def test_deep_groups_need_no_stack() -> None:
    limit = sys.getrecursionlimit()
    depth = len(inspect.stack())
    x = ragged(dtype=np.float32)
    for _ in range(100):
        x = ndd.flip(x) + 1.0
    sys.setrecursionlimit(depth + 60)
    try:
        assert len(ndd.explain(x).kernels) == 2
    finally:
        sys.setrecursionlimit(limit)
