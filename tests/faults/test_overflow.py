"""Shapes that no memory can hold are refused with a clear error; they once crashed the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ndd
from ndd.fusion.graph.shapes import MAX_BYTES, Shapes
from tests.helpers import run_python

SIDE = 2**31


def view(*shape: int, dtype: Any = np.uint8) -> ndd.Tensor:
    """A view of one element that claims this shape."""
    return ndd.as_tensor(np.broadcast_to(dtype(1), shape))


GIANTS: dict[str, Callable[[], Any]] = {
    "one_hot": lambda: ndd.one_hot(ndd.tensor([1, 2]), num_classes=2**62),
    "one_hot of pixels": lambda: ndd.one_hot(ndd.tensor(np.zeros((4, 4), np.int64)), num_classes=2**60),
    "cast": lambda: ndd.cast(view(SIDE, SIDE), dtype=ndd.float32),
    "cast to 8 bytes": lambda: ndd.cast(view(SIDE, SIDE // 2), dtype=ndd.float64),
    "add": lambda: view(SIDE, SIDE) + 1,
    "broadcast": lambda: view(2**33, 1) + view(1, 2**33),
    "cat": lambda: ndd.cat(view(SIDE, SIDE), view(SIDE, SIDE)),
    "cat to 2**64": lambda: ndd.cat(*[view(2**62)] * 4),
    "stack": lambda: ndd.stack(*[view(2**62)] * 4),
    "expand_dims": lambda: ndd.expand_dims(view(SIDE, SIDE), axes=[0]),
    "full_like": lambda: ndd.full_like(view(SIDE, SIDE), 1),
    "zeros": lambda: ndd.zeros(shape=[2**32, 2**32]),
    "uniform": lambda: ndd.random.uniform(shape=[2**32, 2**32]),
    "pad": lambda: ndd.pad(ndd.zeros(shape=[4, 4]), shape=[2**32, 2**32]),
    "tensor": lambda: ndd.tensor(np.broadcast_to(np.uint8(1), (SIDE, SIDE))),
    "batch": lambda: ndd.as_batch([np.broadcast_to(np.uint8(1), (2**62,))] * 4) + 1,
}  # fmt: skip


@pytest.mark.parametrize("name", GIANTS)
def test_giants_are_refused(name: str, mode: str) -> None:
    with pytest.raises(ValueError, match="the result is too large: shape"):
        GIANTS[name]().evaluate()
    assert ndd.zeros(shape=[2]).torch().tolist() == [0, 0]


def test_the_first_of_them_in_a_process_of_its_own() -> None:
    """A crash would take this process with it."""
    told = run_python(
        """
        import ndd
        try:
            ndd.one_hot(ndd.tensor([1, 2]), num_classes=2**62).evaluate()
        except ValueError as error:
            print(error)
        """
    )
    assert "one_hot: the result is too large: shape (2, 4611686018427387904) in sample 0" in told


def test_steps_between_sounds_cannot_overflow() -> None:
    """A tiny scale made the buffer of a block larger than memory, or crashed the process."""
    told = run_python(
        """
        import numpy as np, ndd
        from pathlib import Path
        signal = ndd.tensor(np.ones(1 << 20, np.float32))
        for options in ({"scale": 1e-38}, {"scale": 1e-20}, {"out_length": 2}, {"out_length": 300}):
            print(np.asarray(ndd.audio_resample(signal, **options)).shape[0])
        # The peak of this program alone: `ru_maxrss` begins with that of the process that forked.
        status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
        print(int(status["VmHWM"].split()[0]) < 1 << 20)
        """
    )
    assert told.split() == ["1", "1", "2", "300", "True"]


@pytest.mark.parametrize("count", [2**31, 2**40, 2**62])
def test_matrices_of_bands_are_limited(count: int, mode: str) -> None:
    """They were made before anybody asked whether they fit into memory."""
    spectrum = ndd.zeros(shape=[129, 2], dtype=ndd.float32)
    with pytest.raises(ValueError, match=f"mel_filter_bank: the matrix of {count} × 129 weights"):
        ndd.mel_filter_bank(spectrum, nfilter=count)
    with pytest.raises(ValueError, match="mfcc: the matrix of 65536 × 65536 weights"):
        ndd.mfcc(ndd.zeros(shape=[65536, 1], dtype=ndd.float32), n_mfcc=count)


def test_volumes_and_bytes_cannot_overflow() -> None:
    assert Shapes.of([[2**24, 2**24]], 2).volumes.tolist() == [2**48]
    assert Shapes.of([[0, 2**62], [3, 4]], 2).volumes.tolist() == [0, 12]
    assert Shapes.of([], 2).volumes.tolist() == []
    assert Shapes.of([[]] * 3, 0).volumes.tolist() == [1, 1, 1]
    for rows in ([[2**32, 2**32]], [[2, 2], [2**62, 2]], [[2**40, 2**40, 0], [2**62, 4, 1]]):
        with pytest.raises(ValueError, match="the result is too large: shape"):
            _ = Shapes.of(rows, len(rows[0])).volumes
    # every sample fits, but all together do not
    many = Shapes(np.full((8, 1), MAX_BYTES // 4))
    with pytest.raises(ValueError, match="bytes in 8 samples"):
        many.packed(4)
    with pytest.raises(ValueError, match="bytes in 65536 samples"):
        Shapes(np.full((65536, 1), 2**48)).packed(8)


def test_a_part_of_a_giant_view_can_be_read() -> None:
    assert np.asarray(view(SIDE, SIDE)[5:7, 6:8]).tolist() == [[1, 1], [1, 1]]
