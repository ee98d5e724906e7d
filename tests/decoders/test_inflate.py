"""decoders.inflate: LZ4 blocks, damaged ones included. Upstream has it on the GPU only."""

from __future__ import annotations

import sys

import lz4.block
import numpy as np
import pytest

import ndd
from ndd.codecs import lz4_blocks
from tests.conformance.modes import error_everywhere, same_everywhere, same_on_the_gpu
from tests.helpers import arrays, samples

DTYPES = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "?"]


def block(values):
    packed = lz4.block.compress(np.ascontiguousarray(values).tobytes(), store_size=False)
    return np.frombuffer(packed, np.uint8)


@pytest.mark.parametrize("dtype", DTYPES)
def test_types(dtype):
    values = samples([(4, 5), (1, 1), (7, 0)], np.dtype(dtype).type)
    got = ndd.decoders.inflate(
        ndd.batch([block(v) for v in values]), shape=ndd.batch([v.shape for v in values]),
        dtype=np.dtype(dtype), layout="HW",
    )  # fmt: skip
    assert got.layout == "HW" and got.shape == [v.shape for v in values]
    for found, wanted in zip(arrays(got), values, strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


def test_large_and_repetitive_data():
    for values in (np.zeros(1 << 20, np.uint8), np.tile(np.arange(7, dtype=np.uint8), 99999)):
        got = ndd.decoders.inflate(block(values), shape=[len(values)])
        np.testing.assert_array_equal(np.asarray(got), values)


VIDEOS = samples([(3, 4, 5, 3), (2, 4, 5, 3)])


def test_chunks():
    """By sizes, by offsets, by both in another order, and one list for all samples."""
    parts = [[block(f) for f in v] for v in VIDEOS]
    sizes = [np.array([len(b) for b in p]) for p in parts]
    offsets = [np.cumsum(s) - s for s in sizes]
    data = ndd.batch([np.concatenate(p) for p in parts])
    gap = ndd.batch([np.concatenate([*p, np.zeros(9, np.uint8)]) for p in parts])
    options = dict(shape=[4, 5, 3], layout="HWC")
    both = dict(chunk_offsets=ndd.batch(offsets), chunk_sizes=ndd.batch(sizes))
    for x, chunks in (
        (data, {"chunk_sizes": ndd.batch(sizes)}), (data, {"chunk_offsets": ndd.batch(offsets)}),
        (gap, both), (gap, {"chunk_sizes": ndd.batch(sizes)}),
    ):  # fmt: skip
        got = ndd.decoders.inflate(x, **options, **chunks)
        assert got.layout == "FHWC"
        for found, wanted in zip(arrays(got), VIDEOS, strict=True):
            np.testing.assert_array_equal(found, wanted)
    backwards = ndd.decoders.inflate(
        data, **options, sequence_axis_name="D",
        chunk_offsets=ndd.batch([o[::-1] for o in offsets]),
        chunk_sizes=ndd.batch([s[::-1] for s in sizes]),
    )  # fmt: skip
    assert backwards.layout == "DHWC"
    np.testing.assert_array_equal(arrays(backwards)[0], VIDEOS[0][::-1])
    one = ndd.decoders.inflate(parts[0][0], **options, chunk_sizes=[len(parts[0][0])])
    assert one.shape == (1, 4, 5, 3)


def program(x):
    return ndd.flip(ndd.decoders.inflate(x, shape=[4, 5, 3], layout="HWC")) + 1


def test_all_modes():
    same_everywhere(lambda: program(ndd.batch([block(v[0]) for v in VIDEOS])))


@pytest.mark.gpu
def test_gpu():
    same_on_the_gpu(program, [block(v[0]) for v in VIDEOS], None)


# -- bad input -----------------------------------------------------------------------------------

VALUES = np.arange(600, dtype=np.int16)
GOOD = block(VALUES)
CASES = [
    (ValueError, "block 0 of sample 0 has 3 bytes, which cannot hold 1200 bytes (shape (600,) of "
     "i16)", GOOD[:3], {}),
    (ValueError, "`shape` must not be negative, got (-1,)", GOOD, {"shape": [-1]}),
    (ValueError, "a block of sample 0 would hold 4398046511104 bytes, an LZ4 block holds "
     "2113929216 at most", GOOD, {"shape": [2**41]}),
    (ValueError, "block 1 of sample 0 leaves its ", GOOD, {"chunk_sizes": [5, 2**40]}),
    (ValueError, "block 0 of sample 0 leaves its ", GOOD, {"chunk_offsets": [-1]}),
    (ValueError, "block 0 of sample 0 leaves its ", GOOD, {"chunk_offsets": [9, 3]}),
    (ValueError, "`chunk_offsets` of sample 0 has 1 values, `chunk_sizes` 2", GOOD,
     {"chunk_offsets": [0], "chunk_sizes": [1, 2]}),
    (ValueError, "sample 0 has no blocks", GOOD, {"chunk_sizes": []}),
    (ValueError, "`algorithm` must be LZ4, got 'zip'", GOOD, {"algorithm": "zip"}),
    (ValueError, "`layout` 'HW' does not fit 1 dimensions", GOOD, {"layout": "HW"}),
    (ValueError, "`sequence_axis_name` must be one letter, got 'FF'", GOOD,
     {"layout": "W", "chunk_sizes": [len(GOOD)], "sequence_axis_name": "FF"}),
    (TypeError, "compressed data must be one-dimensional uint8, got i16", VALUES, {}),
]  # fmt: skip


def test_errors_at_the_call():
    """Everything that sizes tell is known before there is memory for the result."""
    for kind, text, data, choices in CASES:
        arguments = {"shape": [600], "dtype": ndd.int16, **choices}
        error_everywhere(
            kind, text,
            lambda data=data, arguments=arguments: ndd.decoders.inflate(
                ndd.tensor(data), **arguments
            ),
        )  # fmt: skip


@pytest.mark.parametrize("mode", ["deferred", "eager", "sync_cpu", "sync_full"])
def test_errors_of_blocks(mode):
    """A damaged block, one that is cut off, and blocks of other sizes: the sample is named."""
    bad = GOOD.copy()
    bad[0] ^= 0xF0
    for data, shape, text in (
        (bad, 600, "not an LZ4 block of 1200 bytes: they are damaged, or hold more"),
        (GOOD[:-5], 600, "not an LZ4 block of 1200 bytes"),
        (GOOD, 599, "not an LZ4 block of 1198 bytes"),
        (GOOD, 601, "an LZ4 block holds 1200 bytes, but 1202 are needed"),
    ):
        batch = ndd.batch([GOOD, data])
        wanted = f"decoders.inflate: block 0 of sample 1: .*{text}"
        if shape != 600:
            wanted = wanted.replace("sample 1", "sample 0")
        with ndd.EvalMode[mode], pytest.raises(ValueError, match=wanted):
            ndd.decoders.inflate(batch, shape=[shape], dtype=ndd.int16).evaluate()
    good = ndd.decoders.inflate(ndd.batch([GOOD]), shape=[600], dtype=ndd.int16)
    np.testing.assert_array_equal(arrays(good)[0], VALUES)


def test_mutants():
    """No damaged block crashes the process or gives anything but values or a ValueError."""
    rng = np.random.default_rng(0)
    text = np.frombuffer(b"some words, and some words again; " * 40, np.uint8)
    packed, failed = block(text), 0
    for _ in range(300):
        bad = packed[: rng.integers(1, len(packed) + 1)].copy()
        for _ in range(rng.integers(1, 5)):
            bad[rng.integers(len(bad))] = rng.integers(256)
        try:
            found = ndd.decoders.inflate(ndd.tensor(bad), shape=[len(text)])
            assert np.asarray(found).shape == (len(text),)
        except ValueError as error:
            assert "sample 0" in str(error)
            failed += 1
    assert failed > 150


def test_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "lz4.block", None)
    with pytest.raises(ImportError, match=r'need the package lz4: pip install "ndd-fusion\[lz4\]"'):
        ndd.decoders.inflate(GOOD, shape=[600], dtype=ndd.int16)


@pytest.mark.gpu
def test_nvcomp_gets_all_blocks(monkeypatch):
    """The call that nvCOMP would get on a real GPU: every block with its place in the result."""
    calls = []

    class Library:
        class BitstreamKind:
            RAW = "raw"

        @staticmethod
        def Codec(**options):
            calls.append(options)
            return Library

        @staticmethod
        def as_arrays(places, cuda_stream):
            return [p.__cuda_array_interface__ for p in places]

        @staticmethod
        def decode(sources, out):
            for source, result in zip(sources, out, strict=True):
                data = _memory(source)
                _memory(result)[:] = np.frombuffer(
                    lz4.block.decompress(data.tobytes(), uncompressed_size=result["shape"][0]),
                    np.uint8,
                )

    def _memory(interface):
        held = type("Held", (), {"__array_interface__": interface})
        return np.asarray(held())

    monkeypatch.setenv("NDD_GPU", "simulate")
    monkeypatch.setattr(lz4_blocks, "nvcomp", lambda: Library)
    monkeypatch.setattr("ndd.ops.images.inflate.simulating", lambda: False)
    parts = [[block(f) for f in v] for v in VIDEOS]
    data = ndd.batch([np.concatenate(p) for p in parts])
    sizes = ndd.batch([np.array([len(b) for b in p]) for p in parts])
    on_gpu = data.gpu()
    arrays(on_gpu)  # the stand-in does not work on a stream, so the copy must be there
    got = ndd.decoders.inflate(on_gpu, shape=[4, 5, 3], layout="HWC", chunk_sizes=sizes)
    assert got.device.device_type == "gpu"
    for found, wanted in zip(arrays(got), VIDEOS, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert calls[0]["algorithm"] == "LZ4" and calls[0]["bitstream_kind"] == "raw"
