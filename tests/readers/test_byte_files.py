"""Parts of files: any order, overlaps, gaps, several files, and parts that cannot be read."""

from __future__ import annotations

import numpy as np
import pytest

from ndd.readers.order import LAST_BATCH, EpochPlan, Order, Position
from ndd.readers.stores import byte_files
from ndd.readers.stores.byte_files import ByteFiles, LocalFile


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    contents = [rng.bytes(n) for n in (0, 100, 30_000, 5000)]
    for k, data in enumerate(contents):
        (tmp_path / f"{k}").write_bytes(data)
    return ByteFiles([str(tmp_path / f"{k}") for k in range(4)]), contents


def test_parts_are_those_of_the_files(files):
    found, contents = files
    rng = np.random.default_rng(1)
    for _ in range(200):
        count = int(rng.integers(1, 12))
        numbers = rng.integers(0, 4, count) if rng.random() < 0.5 else np.full(count, 2)
        sizes = np.array([len(contents[n]) for n in numbers])
        offsets = (rng.random(count) * sizes).astype(int)
        if len(set(numbers.tolist())) == 1 and rng.random() < 0.8:  # neighbours
            offsets.sort()
        lengths = (rng.random(count) * np.minimum(sizes - offsets, 900)).astype(int)
        parts = found.read_parts(numbers.tolist(), offsets.tolist(), lengths.tolist())
        wanted = [contents[n][o : o + m] for n, o, m in zip(numbers, offsets, lengths, strict=True)]
        assert [p.tobytes() for p in parts] == wanted
        storage, stored = parts.storage()
        assert stored.tolist() == lengths.tolist() and len(storage.addresses) == count


def test_neighbours_are_read_at_once(files, monkeypatch):
    found, _ = files
    reads = []
    plain = LocalFile.read_into
    monkeypatch.setattr(
        LocalFile, "read_into", lambda self, view, at: reads.append((at, len(view))) or plain(self, view, at)
    )  # fmt: skip
    found.read_parts([2, 2, 2, 2], [0, 100, 4000, 20_000], [100, 50, 10, 7])
    assert reads == [(0, 4010), (20_000, 7)]


def test_large_reads_are_shared_by_threads(tmp_path, monkeypatch):
    data = np.random.default_rng(2).bytes(5_000_000)
    path = tmp_path / "large"
    path.write_bytes(data)
    monkeypatch.setattr(byte_files, "get_num_threads", lambda: 2)
    found = ByteFiles([str(path)])
    parts = found.read_parts([0, 0, 0], [7, 2_000_000, 2_500_000], [9, 500_000, 2_499_999])
    assert [p.tobytes() for p in parts] == [
        data[7:16],
        data[2_000_000:2_500_000],
        data[2_500_000:-1],
    ]
    assert found._pool is not None
    path.write_bytes(data[:3_000_000])  # after it was opened
    parts = found.read_parts([0, 0], [2_000_000, 2_500_000], [500_000, 2_499_999])
    assert parts[0].tobytes() == data[2_000_000:2_500_000]
    assert isinstance(parts[1], ValueError) and "has 3000000 bytes, but" in str(parts[1])


def test_a_part_that_cannot_be_read_is_an_error_of_its_own(files, tmp_path):
    found, contents = files
    parts = found.read_parts([1, 1, 3, 1], [0, 90, 0, 2**62], [10, 11, 5000, 2**62])
    assert parts[0].tobytes() == contents[1][:10] and parts[2].tobytes() == contents[3]
    for k in (1, 3):
        assert isinstance(parts[k], ValueError) and "has 100 bytes, but" in str(parts[k])
    assert parts.storage() is None
    (tmp_path / "3").write_bytes(b"short")  # after it was opened
    parts = found.read_parts([3, 1], [0, 0], [5000, 5])
    assert isinstance(parts[0], ValueError) and parts[1].tobytes() == contents[1][:5]


@pytest.mark.parametrize("last", LAST_BATCH)
@pytest.mark.parametrize("shuffle", ["no", "pass"])
def test_batches_that_are_listed_together(last, shuffle):
    """The same samples as one batch at a time, and as a plain definition."""
    cases = ((11, 1, 2, 0), (11, 0, 3, 2), (40, 2, 3, 12), (12, 1, 5, 0), (10, 0, 3, 0))
    for count, shard, size, taken in cases:
        order = Order(count, shard, 3, False, shuffle, 7)
        plan = EpochPlan(order, last, Position(0, 0, 0, taken), size)
        found = plan.indices(range(plan.count))
        assert found == [plan.indices(range(k, k + 1))[0] for k in range(plan.count)]
        own = [int(i) for i in order.samples(0)]
        more = [int(i) for p in range(1, 6) for i in order.samples(p)]
        filled = own + (more if last == "wrap" else own[-1:] * 2 * size)
        for k, batch in enumerate(found):
            first = taken + k * size
            wanted = filled[first : first + size]
            if last == "partial":
                wanted = own[first : first + size] or own[-1:]
            assert batch == wanted
