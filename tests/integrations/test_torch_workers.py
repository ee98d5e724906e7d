"""Workers of a DataLoader never repeat each other's random numbers, and a rerun repeats them."""

from __future__ import annotations

import multiprocessing
import os
import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import ndd
from ndd.runtime import lineage
from tests.helpers import run_python
from tests.integrations.drawing import (
    Draws,
    StreamOfBatches,
    StreamOfDraws,
    epochs,
    seed_each_worker,
)


@pytest.fixture(scope="module", autouse=True)
def _cheap_server():
    # Its children begin with torch, which takes three seconds to import.
    multiprocessing.set_forkserver_preload(["torch"])


def assert_all_differ(items: torch.Tensor) -> None:
    for column in (2, 3):
        assert len(set(items[:, column].tolist())) == len(items), items


@pytest.mark.parametrize("method", ["fork", "forkserver", pytest.param("spawn", marks=pytest.mark.slow)])  # fmt: skip
def test_workers_differ_and_a_rerun_repeats_them(method):
    runs = []
    for start in (method, "fork"):  # numbers do not depend on the start method
        ndd.random.set_seed(42)
        runs.append(epochs(start, 1 if method == "spawn" else 2))
    assert_all_differ(runs[0])
    assert torch.equal(*runs)
    ndd.random.set_seed(43)
    assert not set(epochs("fork", 1)[:, 2].tolist()) & set(runs[0][:, 2].tolist())


def test_a_seed_that_each_worker_sets():
    ndd.random.set_seed(1)
    runs = [epochs("fork", 1, worker_init_fn=seed_each_worker) for _ in range(2)]
    assert_all_differ(runs[0])
    assert torch.equal(runs[0][:, 2], runs[1][:, 2])


def test_streams_and_persistent_workers():
    ndd.random.set_seed(42)
    items = epochs("fork", 2, StreamOfDraws(), persistent_workers=True)
    assert sorted(items[:8, 0].tolist()) == list(range(8))
    assert len(set(items[:, 2].tolist())) == 16


def test_the_seed_of_torch_counts_if_we_have_none():
    code = (
        "import torch; from tests.integrations.drawing import epochs\n"
        "def run(): torch.manual_seed(3); return epochs('fork', 2)[:, 2].tolist()\n"
        "first = run(); print(first == run(), len(set(first)))"
    )
    assert run_python(code) == "True 16"


def test_the_main_process_and_its_workers_differ():
    ndd.random.set_seed(42)
    items = epochs("fork", 1)
    own = [ndd.random.get_default_rng()() for _ in range(8)]
    assert not set(own) & set(items[:, 2].tolist())
    ndd.random.set_seed(42)
    assert [ndd.random.get_default_rng()() for _ in range(8)] == own  # workers take nothing away


def in_forks(count: int, draw) -> list[int]:
    """What forked children draw."""
    numbers = []
    for _ in range(count):
        end, begin = os.pipe()
        if (child := os.fork()) == 0:
            os.write(begin, str(draw()).encode())
            os._exit(0)
        os.waitpid(child, 0)
        numbers.append(int(os.read(end, 100)))
        os.close(end)
        os.close(begin)
    return numbers


def test_plain_forks():
    ndd.random.set_seed(7)
    rng = ndd.random.RNG(seed=1)
    first = in_forks(3, lambda: ndd.random.get_default_rng()())
    assert len(set(first)) == 3
    # Outside of a DataLoader, an explicit generator stays what it is.
    assert len(set(in_forks(2, lambda: rng()))) == 1
    ndd.random.set_seed(7)
    assert in_forks(3, lambda: ndd.random.get_default_rng()()) == first


def test_pickled_generators():
    rng = ndd.random.RNG(seed=11)
    rng()
    twin = pickle.loads(pickle.dumps(rng))
    assert twin.get_state() == rng.get_state() and twin() == rng()
    default = ndd.random.get_default_rng()
    assert pickle.loads(pickle.dumps(default)).get_state() == default.get_state()


def test_derived_seeds_depend_on_all_they_are_made_from():
    found = {
        lineage.derived_seed(seed, *numbers)
        for seed in (0, 1, 2**63)
        for numbers in [(), (0,), (1,), (0, 1), (1, 0), (2**64,), (2**64 + 1,), (0, 0)]
    }
    assert len(found) == 3 * 8 and max(found) < 2**64


def test_without_workers_a_loader_draws_what_a_loop_draws():
    ndd.random.set_seed(42)
    items = torch.cat(list(DataLoader(Draws(4), batch_size=2)))
    ndd.random.set_seed(42)
    assert items[:, 2].tolist() == [ndd.random.get_default_rng()() for _ in range(4)]


@pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning")  # there is nothing to pin for here
def test_pinned_memory_and_batches_from_workers():
    ndd.random.set_seed(42)
    plain = epochs("fork", 1)
    ndd.random.set_seed(42)
    assert torch.equal(epochs("fork", 1, pin_memory=True), plain)
    loader = DataLoader(StreamOfBatches(), batch_size=None, num_workers=1, pin_memory=True)
    found = [[np.asarray(t).tolist() for t in batch.tensors] for batch in loader]
    assert found == [[[0.0, 2.0], [4.0]], [[2.0, 4.0], [6.0]]]


def test_a_fork_after_another_thread_has_converted_video():
    """A child frees what dead threads held; swscale would wait there for its own threads forever."""
    code = (
        "import os, signal, threading, av, numpy as np\n"
        "from ndd.codecs.video.to_rgb import Converter\n"
        "picture = av.VideoFrame.from_ndarray(np.zeros((240, 320, 3), np.uint8), format='rgb24')\n"
        "picture = picture.reformat(format='yuv420p')\n"
        "local, ready, go = threading.local(), threading.Event(), threading.Event()\n"
        "def work():\n"
        "    local.converter = Converter()\n"
        "    local.converter.write(picture, np.zeros((240, 320, 3), np.uint8), 'a stream')\n"
        "    ready.set(); go.wait()\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "assert ready.wait(30)\n"
        "child = os.fork()\n"
        "if child == 0: os._exit(7)\n"
        "signal.alarm(20)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])); go.set()\n"
    )
    assert run_python(code) == "7"
