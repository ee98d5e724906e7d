"""Small kernels run on tables that keep their content from call to call; values must not."""

import numpy as np
import pytest

import ndd
from ndd.fusion.run.binder import Tables
from ndd.kernels.common.buffers import Pool

SHAPES = ([(4, 4, 3)] * 8, [(4, 4, 3)] * 4, [(1 + k, 5, 3) for k in range(8)], [(0, 2, 3)] * 8)


@pytest.mark.parametrize("mode", ["deferred", "eager", "sync_cpu"])
def test_calls_that_alternate_get_their_own_operands(mode):
    rng = np.random.default_rng(0)
    sources = [[rng.integers(0, 256, s, np.uint8) for s in shapes] for shapes in SHAPES]
    batches = [ndd.batch(arrays, layout="HWC") for arrays in sources]
    kept = []
    with ndd.EvalMode[mode]:
        for n in range(6):
            for arrays, batch in zip(sources, batches, strict=True):
                kept.append((arrays, n, (batch ^ n).evaluate()))
                (batch ^ 255).evaluate()  # its memory is used again at once
            del kept[: len(kept) // 3]
    for arrays, n, result in kept:
        for array, sample in zip(arrays, result.tensors, strict=True):
            np.testing.assert_array_equal(np.asarray(sample), array ^ n)


def test_a_buffer_knows_the_addresses_of_its_own_block():
    pool = Pool()
    near, far = np.array([0, 64]), np.array([0, 128])
    first, second = pool.take(256), pool.take(256)
    for buffer in (first, second, first):
        for offsets in (near, near, far):
            np.testing.assert_array_equal(buffer.at(offsets), buffer.address + offsets)


def test_tables_are_bounded():
    tables = Tables()
    for count in range(3 * Tables.MAX_KEPT):
        assert tables.take(5, count) is tables.take(5, count)
    assert len(tables._kept) <= Tables.MAX_KEPT
