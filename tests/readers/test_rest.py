"""Resuming with another number of shards: nothing twice, nothing lost, in step."""

from __future__ import annotations

from collections import Counter

import pytest

import ndd
from tests.readers.helpers import epoch_of, flat, numbered

COUNT = 37


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return numbered(tmp_path_factory.mktemp("files"), COUNT)


def readers(files, ranks, options):
    return [
        ndd.readers.File(files=files, shard_id=k, num_shards=ranks, **options) for k in range(ranks)
    ]


def advanced(found, epochs, batches, size):
    """The numbers that readers yield in some batches of an epoch, and states.

    The first ones may be in the last batches of the epoch before.
    """
    seen = []
    for k in range(epochs):
        for reader in found:
            batches_before = epoch_of(reader, size)
            seen += batches_before[-1] if k == epochs - 1 else []
    start = len(seen)
    for reader in found:
        items = reader.next_epoch(size)
        seen += [int(t.item()) for _ in range(batches) for t in next(items)[0].tensors]
    return seen[:start], seen[start:], [str(reader.get_state()) for reader in found]


ORDERS = [
    {},
    {"random_shuffle": True, "seed": 4},
    {"shuffle_after_epoch": True},
    {"stick_to_shard": True},
]


@pytest.mark.parametrize("last", ["wrap", "pad", "partial"])
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_the_rest_is_divided_anew(files, order, last):
    options = dict(order, last_batch=last)
    for old, new, epochs, batches in (
        (2, 3, 0, 2),
        (3, 2, 1, 1),
        (4, 1, 2, 2),
        (1, 4, 0, 9),
    ):
        before, seen, states = advanced(readers(files, old, options), epochs, batches, 3)
        resumed = readers(files, new, options)
        for k, reader in enumerate(resumed):
            reader.set_state(states[k % old])  # of any rank
        lengths = {len(r.next_epoch(3)) for r in resumed}
        assert len(lengths) == 1, "ranks stay in step"
        rest = [flat(epoch_of(r, 3)) for r in resumed]
        twice = Counter(seen) + Counter(n for part in rest for n in set(part))
        if last == "wrap":
            assert set(before) | set(twice) == set(range(COUNT)), "nothing lost"
        else:
            assert set(twice) == set(range(COUNT)), "nothing lost"
            repeated = sum(n - 1 for n in twice.values())
            assert repeated <= new, "only what keeps ranks in step comes twice"
        following = [n for r in resumed for n in set(flat(epoch_of(r, 3)))]
        # Wrapping: its first samples are in the last batches of the rest.
        following += [n for part in rest for n in part] if last == "wrap" else []
        assert set(following) == set(range(COUNT)), "the next epoch is a whole one"


def test_a_rest_can_be_divided_again(files):
    options = dict(last_batch="partial", random_shuffle=True)
    _, seen, states = advanced(readers(files, 2, options), 1, 2, 3)
    second = readers(files, 3, options)
    for reader in second:
        reader.set_state(states[0])
    more, states = [], []
    for reader in second:
        items = reader.next_epoch(2)
        more += [int(t.item()) for t in next(items)[0].tensors]
        states.append(str(reader.get_state()))
    same = readers(files, 3, options)[1]
    same.set_state(states[1])  # the same number: goes on inside of the rest
    rest_of_one = flat(epoch_of(same, 2))
    assert rest_of_one and not set(rest_of_one) & set(more)
    third = readers(files, 2, options)
    for reader in third:
        reader.set_state(states[2])
    rest = [n for r in third for n in set(flat(epoch_of(r, 2)))]
    counts = Counter(seen + more + rest)
    assert set(counts) == set(range(COUNT)) and sum(n - 1 for n in counts.values()) <= 2
    assert "rest" not in third[0].get_state().values


def test_an_epoch_that_was_finished(files):
    options = dict(last_batch="partial")
    first = readers(files, 2, options)
    for reader in first:
        assert len(epoch_of(reader, 4)) == 5
    resumed = readers(files, 3, options)
    for reader in resumed:
        reader.set_state(first[0].get_state())
    assert {n for r in resumed for n in flat(epoch_of(r, 4))} == set(range(COUNT))


def test_a_rest_that_is_smaller_than_the_number_of_ranks(files):
    options = dict(last_batch="pad")
    _, _, states = advanced(readers(files, 1, options), 0, 9, 4)  # one sample is left
    resumed = readers(files, 4, options)
    for reader in resumed:
        reader.set_state(states[0])
    assert [epoch_of(r, 2) for r in resumed] == [[[36, 36]]] * 4


def test_wrong_states(files):
    state = readers(files, 2, {})[0].get_state().values
    for rest in ("x", [[1]], [[2, 5, 0, 0, 0, 0]], [[2, 0, 0, 0, 0, -1]], [[2, 0, 0, 0, 0, "x"]]):
        with pytest.raises(ValueError, match="the state has no valid position: rest is"):
            readers(files, 3, {})[0].set_state(dict(state, rest=rest))
    with pytest.raises(ValueError, match="the state has no valid position"):
        readers(files, 3, {})[0].set_state(dict(state, num_shards="many"))
    with pytest.raises(ValueError, match="shard_id is 1 there and 0 here"):
        readers(files, 2, {})[0].set_state(dict(state, shard_id=1))
