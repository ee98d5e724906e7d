"""What all readers share, for each format: the oracle's sequences, shuffling, resuming, errors."""

from __future__ import annotations

import copy
import pickle
from collections import Counter

import nvidia.dali.experimental.dynamic as dali
import pytest

import ndd
from tests.readers.datasets import CASES, Case
from tests.readers.helpers import flat, info

COUNT = 11


@pytest.fixture(scope="module", params=CASES, ids=str)
def case(request) -> Case:
    return CASES[request.param]


@pytest.fixture(scope="module")
def made(case, tmp_path_factory):
    return case.make(tmp_path_factory.mktemp(case.reader), COUNT)


SEQUENCES = [
    dict(),
    dict(pad_last_batch=True),
    dict(num_shards=2, shard_id=1, pad_last_batch=True),
    dict(num_shards=3, shard_id=2, stick_to_shard=True, pad_last_batch=True),
    dict(num_shards=2, shard_id=0),
]


@pytest.mark.parametrize("options", SEQUENCES, ids=str)
def test_sequences_and_metadata_equal_the_oracles(case, made, options):
    if not case.has_oracle:
        pytest.skip("the oracle's reader needs CUDA")
    # Without padding, the oracle's larger shards have more batches: ours never do.
    uneven = "num_shards" in options and "pad_last_batch" not in options
    for batch_size in (3,) if uneven else (3, None):
        ours, theirs = case.open(ndd, made, **options), case.open(dali, made, **options)
        for _ in range(3):
            length = len(ours.next_epoch(batch_size))
            got, wanted = case.epoch(ours, batch_size), case.epoch(theirs, batch_size)
            assert got == wanted and length == len(wanted)
        assert ours.get_metadata() == dict(theirs.get_metadata())


def test_outputs_have_the_oracles_types_shapes_layouts_and_names(case, made):
    if not case.has_oracle:
        pytest.skip("the oracle's reader needs CUDA")

    def facts(library):
        item = next(iter(case.open(library, made).next_epoch(batch_size=4)))
        found = item.items() if isinstance(item, dict) else enumerate(item)
        return [
            (key, str(b.dtype), b.shape, b.layout or None, info(library, b)) for key, b in found
        ]

    assert facts(ndd) == facts(dali)


def test_shuffled_epochs_hold_every_sample_once(case, made):
    for options in (dict(random_shuffle=True), dict(shuffle_after_epoch=True)):
        if "shuffle_after_epoch" in options and case.reader in ("Caffe", "Caffe2"):
            continue
        readers = [
            case.open(ndd, made, num_shards=2, shard_id=k, last_batch="partial", **options)
            for k in range(2)
        ]
        epochs = []
        for _ in range(2):
            parts = [flat(case.epoch(r, 2)) for r in readers]
            epochs.append(parts)
            assert set(parts[0]) | set(parts[1]) == set(range(COUNT))
            assert max(Counter(parts[0] + parts[1]).values()) <= 2  # ranks stay in step
        assert epochs[0] != epochs[1]


def test_files_are_shuffled_and_read_in_their_own_order(case, made):
    if not case.shuffles_files:
        pytest.skip("a sample is a file")
    plain = flat(case.epoch(case.open(ndd, made, shuffle_after_epoch=True, seed=3), 1))
    runs = [0] + [k for k in range(1, COUNT) if plain[k] != plain[k - 1] + 1] + [COUNT]
    assert len(runs) <= 4 and sorted(plain) == list(range(COUNT))
    orders = {
        tuple(flat(case.epoch(case.open(ndd, made, shuffle_after_epoch=True, seed=s), 1)))
        for s in range(8)
    }
    assert len(orders) > 2
    both = case.open(ndd, made, shuffle_after_epoch=True, random_shuffle=True)
    mixed = [flat(case.epoch(both, 1)) for _ in range(2)]
    assert mixed[0] != mixed[1] and all(sorted(m) == list(range(COUNT)) for m in mixed)


def test_a_resumed_epoch_yields_what_was_left(case, made):
    for options in (dict(), dict(random_shuffle=True, seed=4), dict(num_shards=2, shard_id=1)):
        whole = case.open(ndd, made, **options)
        wanted = [case.epoch(whole, 3) for _ in range(2)]
        for taken in range(len(wanted[0]) + 1):
            first = case.open(ndd, made, **options)
            items = first.next_epoch(3)
            for _ in range(taken):
                next(items)
            resumed = case.open(ndd, made, **options)
            resumed.set_state(str(first.get_state()))
            assert case.epoch(resumed, 3) == wanted[0][taken:]
            assert case.epoch(resumed, 3) == wanted[1]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))])
def test_a_reader_is_copied_before_its_first_use(case, made, copied):
    reader = case.open(ndd, made, random_shuffle=True, seed=4, last_batch="partial")
    twin = copied(reader)
    wanted = [case.epoch(reader, 3) for _ in range(2)]
    assert [case.epoch(twin, 3) for _ in range(2)] == wanted
    with pytest.raises(TypeError, match=rf"readers\.{type(reader).__name__}: .*before next_epoch"):
        copied(reader)
    resumed = case.open(ndd, made, random_shuffle=True, seed=4, last_batch="partial")
    items = (
        running := case.open(ndd, made, random_shuffle=True, seed=4, last_batch="partial")
    ).next_epoch(3)
    next(items)
    resumed.set_state(running.get_state())
    assert case.epoch(copied(resumed), 3) == wanted[0][1:]


def test_break_and_go_on(case, made):
    reader = case.open(ndd, made)
    for item in reader.next_epoch(4):
        assert case.numbers(item) == [0, 1, 2, 3]
        break
    assert case.epoch(reader, None)[:2] == [[1], [2]]  # the broken epoch took 12 of 11 samples


def test_calls_without_epochs(case, made):
    reader = case.open(ndd, made)
    assert [case.numbers(reader(batch_size=5)) for _ in range(3)] == [
        [0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 0, 1, 2, 3],
    ]  # fmt: skip
