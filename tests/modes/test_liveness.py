"""Liveness, promises and wrapped memory: which nodes run, which values are stored, which may change."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import ndd
from ndd.kernels.common.buffers import POOL
from tests.helpers import (
    arrays,
    assert_same,
    counted_runs,
    host_call,
    ragged,
    samples,
    worker_held,
)


class Counted:
    """A function that counts its calls."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, a: Any) -> Any:
        self.runs += 1
        return a * np.float32(2)


# -- dead code -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["deferred", "eager"])
def test_dropped_results_never_run(mode: str) -> None:
    function = Counted()
    with ndd.EvalMode[mode], worker_held(), counted_runs() as runs:
        y = host_call(function, ndd.tensor([1.0]))
        z = y + 1.0
        del y, z
        ndd.EvalContext.current().evaluate_all()
        assert runs == [] and function.runs == 0


@pytest.mark.parametrize("mode", ["deferred", "eager"])
def test_rebinding_drops_intermediates(mode: str) -> None:
    with ndd.EvalMode[mode], worker_held():
        x = ragged(dtype=np.float32)
        first = weakref.ref(x._node)
        x = x * 2.0
        second = weakref.ref(x._node)
        x = x + 1.0
        found = ndd.explain(x)
        assert [g.ops for g in found.groups] == [("mul", "add")] and found.promises == ()
        x.evaluate()
        assert second() is None and first() is None, "a value that exists needs no ancestors"


def test_results_and_inputs_are_freed(mode: str) -> None:
    def job() -> None:
        x = ragged([(64, 64, 3)] * 4, np.float32)
        y = ndd.math.sin(x) * 2.0
        z = ndd.flip(y) + y
        arrays(z)

    job()
    with worker_held():
        gc.collect()
        before = POOL.live_bytes
        for _ in range(3):
            job()
        ndd.EvalContext.current().evaluate_all()
        gc.collect()
        assert POOL.live_bytes == before


def test_an_array_keeps_its_memory(mode: str) -> None:
    a = np.asarray(ndd.tensor([1.0, 2.0, 3.0]) * 2.0)
    others = [ndd.tensor([9.0, 9.0, 9.0]) * float(k) for k in range(20)]
    for other in others:
        other.evaluate()
    np.testing.assert_array_equal(a, [2, 4, 6])


# -- host functions run once ---------------------------------------------------------------------


def test_a_host_function_runs_once_per_call(mode: str) -> None:
    function = Counted()
    for k in range(3):
        before = function.runs
        with worker_held():
            y = host_call(function, ndd.tensor([float(k)]))
            z = y + 1.0
            assert_same(z, [np.float32([2 * k + 1])])
            assert_same(y, [np.float32([2 * k])])
            assert_same(y * 3.0, [np.float32([6 * k])])
        assert function.runs == before + 1


# -- wrapped memory ------------------------------------------------------------------------------


def wrapped_tensor(a: Any) -> Any:
    return ndd.as_tensor(a)


def wrapped_batch(a: Any) -> Any:
    return ndd.as_batch([a])


def torch_tensor(a: Any) -> Any:
    import torch

    return ndd.as_tensor(torch.from_numpy(a))


READERS = {
    "arithmetic": lambda x: x + 1.0,
    "reflected": lambda x: 1.0 + x,
    "math": lambda x: ndd.math.sqrt(x),
    "op": lambda x: ndd.transpose(x, perm=[1, 0]),
    "slice": lambda x: x[1:] if isinstance(x, ndd.Tensor) else x.slice[1:],
    "reshape": lambda x: ndd.reshape(x, shape=[-1]),
    "expand": lambda x: ndd.expand_dims(x, axes=[0]),
    "cast": lambda x: ndd.cast(x, dtype=ndd.int32),
    "join": lambda x: ndd.cat(x, x),
    "copy": lambda x: ndd.copy(x),
    "second operand": lambda x: ndd.tensor(np.float32(2)) * x,
    "argument": lambda x: ndd.tensor(np.ones((4, 6), np.float32)) * x,
    "chain": lambda x: ndd.reshape(ndd.transpose(x, perm=[1, 0]), shape=[-1]) * 2.0,
}


@pytest.mark.parametrize("wrap", [wrapped_tensor, wrapped_batch, torch_tensor])
@pytest.mark.parametrize("name", READERS)
def test_wrapped_memory_is_read_before_the_call_returns(name: str, wrap: Any, mode: str) -> None:
    a = np.arange(24, dtype=np.float32).reshape(4, 6)
    wanted = arrays(READERS[name](ndd.tensor(a) if wrap is not wrapped_batch else ndd.batch([a])))
    x = wrap(a)
    y = READERS[name](x)
    a[:] = -1
    z = y if name == "reshape" else y * 1.0 if y.dtype.is_float else y
    a[:] = -2
    assert_same(y, wanted)
    assert_same(z, wanted)
    a[:] = -3
    assert_same(y, wanted, "recomputed from memory that has changed")


def test_a_sample_of_wrapped_memory_is_wrapped(mode: str) -> None:
    a = np.zeros((2, 3), np.float32)
    sample = ndd.as_batch([a, a.copy()]).tensors[0]
    a[:] = 5
    assert_same(sample, [np.full((2, 3), 5, np.float32)])
    y = sample + 1.0
    a[:] = 6
    assert_same(y, [np.full((2, 3), 6, np.float32)])


def test_copied_memory_is_not_read_at_the_call() -> None:
    a = np.zeros(4, np.float32)
    with ndd.EvalMode.deferred:
        y = ndd.tensor(a) + 1.0
        a[:] = 7
        assert y._node.storage is None
        assert_same(y, [np.ones(4, np.float32)])


def test_wrapped_arguments_are_read_at_the_call(mode: str) -> None:
    gain = np.float32([2.0, 3.0, 4.0])
    x = ragged()
    wanted = arrays(ndd.brightness(x, brightness=ndd.batch([2.0, 3.0, 4.0])))
    y = ndd.brightness(x, brightness=ndd.as_batch(gain))
    gain[:] = 0
    assert_same(y, wanted)


# -- several contexts and threads ----------------------------------------------------------------


def test_values_cross_contexts(mode: str) -> None:
    data = samples(dtype=np.float32)
    x = ndd.batch(data) * 2.0
    with ndd.EvalContext(num_threads=1):
        y = x + 1.0
        sample = x.tensors[1]
        with ndd.EvalContext(num_threads=2):
            z = ndd.flip(ndd.batch(data, layout="HWC")) + y
            picked = y.tensors[2]
    assert_same(y, [a * 2 + 1 for a in data])
    assert_same(sample, [data[1] * 2])
    assert_same(z, [a[:, ::-1] + (a * 2 + 1) for a in data])
    assert_same(picked, [data[2] * 2 + 1])


def test_one_value_read_by_many_threads(mode: str) -> None:
    x = ndd.math.sin(ndd.tensor(np.linspace(0, 1, 50_000, dtype=np.float32)))
    y = ndd.math.exp(x) * 2.0
    found: list[Any] = []
    ready = threading.Barrier(8)

    def read() -> None:
        ready.wait()
        found.append(np.array(y))

    threads = [threading.Thread(target=read) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert len(found) == 8
    for a in found[1:]:
        assert_same([a], [found[0]])


def test_a_thread_may_end_before_its_values_are_read(mode: str) -> None:
    made: list[Any] = []
    chosen = ndd.EvalMode.current()

    def make() -> None:
        with chosen:
            made.append(ndd.tensor([1.0, 2.0]) * 3.0)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join(60)
    assert_same(made[0], [np.float32([3, 6])])


def test_a_dropped_context_ends_its_thread() -> None:
    def background() -> set[threading.Thread]:
        return {t for t in threading.enumerate() if t.name == "ndd-executor"}

    before = background()
    context = ndd.EvalContext(num_threads=1)
    with context:
        (ndd.tensor([1.0]) + 1.0).evaluate()
    mine = background() - before
    assert len(mine) == 1
    del context
    gc.collect()
    mine.pop().join(10)
    assert background() - before == set()


def test_a_forked_child_computes() -> None:
    from tests.helpers import run_python

    printed = run_python(
        """
        import os, warnings
        import numpy as np
        import ndd
        warnings.simplefilter("ignore", DeprecationWarning)  # os.fork with threads
        x = ndd.tensor(np.arange(200_000, dtype=np.float32))
        y = ndd.math.sin(x) * 2.0   # perhaps in the background just now
        child = os.fork()
        z = float(np.asarray(ndd.math.sin(x) * 2.0 + 1.0)[7])
        if child == 0:
            os._exit(0 if z == float(np.asarray(y)[7]) + 1.0 else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    )
    assert printed == "0"
