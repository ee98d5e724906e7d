"""DLPack in both directions, with any library and with JAX."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

import ndd
from tests.helpers import ROOT, run_python


class Capsules:
    """An array that offers nothing but DLPack, as JAX's do."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack_both_ways_shares_memory(mode):
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = ndd.as_tensor(Capsules(array))
    assert x._node.storage.addresses[0] == array.ctypes.data
    assert np.asarray(x * 2).tolist() == (array * 2).tolist()
    batch = ndd.as_batch(Capsules(array))
    assert batch.shape == [(4,)] * 3 and batch._node.storage.addresses[0] == array.ctypes.data
    y = ndd.as_tensor(ndd.batch(array) + 1)
    there = np.from_dlpack(y)
    assert there.tolist() == (array + 1).tolist()
    assert there.ctypes.data == y._node.storage.addresses[0]


def test_bfloat16_needs_no_framework(monkeypatch):
    x = ndd.tensor([[1.5, -2.0], [0.25, 3.0]], dtype=ndd.bfloat16)
    there = torch.from_dlpack(x)
    assert there.dtype is torch.bfloat16 and there.tolist() == [[1.5, -2.0], [0.25, 3.0]]
    assert there.data_ptr() == x._node.storage.addresses[0]
    turned = ndd.transpose(x)
    assert torch.from_dlpack(turned).tolist() == [[1.5, 0.25], [-2.0, 3.0]]
    versioned = x.__dlpack__(max_version=(1, 0), copy=True)
    copied = torch.from_dlpack(versioned)
    assert copied.dtype is torch.bfloat16 and copied.data_ptr() != there.data_ptr()
    with pytest.raises(BufferError, match=r"in host memory; wanted \(2, 0\)"):
        x.__dlpack__(dl_device=(2, 0))
    monkeypatch.setitem(sys.modules, "torch", None)
    assert x.__dlpack__() is not None


def test_a_batch_becomes_one_capsule():
    ragged = ndd.batch([[1.0, 2.0], [3.0]])
    assert np.from_dlpack(ndd.as_tensor(ragged, pad=True)).tolist() == [[1.0, 2.0], [3.0, 0.0]]
    with pytest.raises(AttributeError, match="__dlpack__"):
        ragged.__dlpack__()


@pytest.mark.slow
def test_jax_and_its_example():
    code = (
        "import jax, numpy as np, ndd\n"
        "x = jax.numpy.arange(6, dtype=np.float32).reshape(2, 3)\n"
        "y = ndd.as_tensor(x) * 2\n"
        "z = jax.dlpack.from_dlpack(y)\n"
        "print(z.tolist(), z.unsafe_buffer_pointer() == y._node.storage.addresses[0])\n"
        "half = ndd.as_tensor(x.astype('bfloat16'))\n"
        "print(half.dtype, half.shape, jax.dlpack.from_dlpack(half * 2).dtype,"
        " np.asarray(half).tolist())"
    )
    assert run_python(code).splitlines() == [
        "[[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]] True",
        "bfloat16 (2, 3) bfloat16 [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]",
    ]
    text = run_python(
        f"import sys, runpy; sys.argv = ['jax_sharded.py']; sys.path.insert(0, {str(ROOT / 'examples')!r}); "
        f"runpy.run_path({str(ROOT / 'examples' / 'jax_sharded.py')!r}, run_name='__main__')"
    )
    assert "4 devices" in text and "each holds 4 of 16 pictures" in text
