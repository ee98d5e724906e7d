"""Tables of filter taps on a GPU: their entries, and which images share one."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import ndd
from ndd.kernels.gpu import tap_entries
from ndd.kernels.gpu.runtime import GpuRuntime
from ndd.kernels.ir.tap_table import TAP_TABLE

pytestmark = pytest.mark.gpu


@pytest.fixture
def tables(monkeypatch):
    """The rows of the table kernel, and the addresses, of each resampling launch."""
    monkeypatch.setenv("NDD_GPU", "simulate")
    found = []
    prepare = GpuRuntime.prepare

    def kept(self, spec, table, alive):
        assert spec is TAP_TABLE
        prepare(self, spec, table, alive)
        self.synchronize()
        found.append((table.copy(), alive[0]))

    monkeypatch.setattr(GpuRuntime, "prepare", kept)
    return found


def entries(table, row):
    """Pixels and weights of a table, both [taps, positions]."""
    place = TAP_TABLE.columns
    address, taps, n = (int(table[row, place[c]]) for c in (("out", 0), ("n", 0), ("n", 1)))
    words = np.ctypeslib.as_array((ctypes.c_int64 * (taps * n)).from_address(address))
    return (words >> 32).reshape(taps, n), words.astype(np.uint32).view(np.float32).reshape(taps, n)


def resized(sizes, **arguments):
    images = [np.full((*s, 3), 7, np.uint8) for s in sizes]
    with ndd.EvalMode.deferred:
        return ndd.resize(ndd.batch(images, layout="HWC", device="gpu"), **arguments).cpu()


def test_entries(tables):
    """Twice as many pixels with a linear filter: weights 1/4 and 3/4, the border pixel repeated."""
    resized([(4, 5)], size=[8, 5]).evaluate()
    ((table, _memory),) = tables
    pixels, weights = entries(table, 0)
    np.testing.assert_array_equal(weights.sum(axis=0), np.ones(8))
    mean = (pixels * weights).sum(axis=0)
    np.testing.assert_allclose(mean, np.clip((np.arange(8) + 0.5) / 2 - 0.5, 0, 3), atol=1e-6)
    pixels, weights = entries(table, 1)
    np.testing.assert_array_equal((pixels * weights).sum(axis=0), np.arange(5))


def test_images_of_one_size_share_their_tables(tables):
    resized([(6, 5)] * 3, size=[4, 4]).evaluate()
    resized([(6, 5), (7, 5), (6, 5)], size=[4, 4]).evaluate()
    assert [len(table) for table, _ in tables] == [2, 6]  # one row for each dimension
    rows, memory = tables[1]
    sizes = tap_entries.ENTRY_BYTES * rows[:, [TAP_TABLE.columns["n", a] for a in (0, 1)]].prod(
        axis=1
    )
    ends = rows[:, TAP_TABLE.columns["out", 0]] + sizes
    assert ends[-1] == memory.address + sizes.sum()
