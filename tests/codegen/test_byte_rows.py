"""Rows of bytes looked up in tables: the native function, and the kernels that call it."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit
from numba.core import types

import ndd
from ndd.fusion.plan import groups
from ndd.kernels.cpu.native import byte_tables
from tests.helpers import arrays, forget_plans


@pytest.mark.parametrize("channels", [1, 3])
def test_all_ways_to_look_up_give_the_entries(
    channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole vectors and single bytes: all lengths around the size of a block, and all bytes."""
    signature = types.void(*[types.int64] * 6)
    ways = {"as this CPU does": njit(signature)(byte_tables.look_up_bytes(channels))}
    monkeypatch.setattr(byte_tables, "HAS_VBMI", False)
    if byte_tables.HAS_AVX2:
        ways["32 at once"] = njit(signature)(byte_tables.look_up_bytes(channels))
    monkeypatch.setattr(byte_tables, "HAS_AVX2", False)
    ways["byte by byte"] = njit(signature)(byte_tables.look_up_bytes(channels))
    rng = np.random.default_rng(3)
    tables = [rng.permutation(256).astype(np.uint8) for _ in range(3)]
    addresses = [t.ctypes.data for t in tables]
    for pixels in (0, 1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 400):
        source = rng.integers(0, 256, (pixels, channels), dtype=np.uint8)
        source.reshape(-1)[:256] = np.arange(256)[: source.size]
        wanted = np.stack([tables[c][source[:, c]] for c in range(channels)], axis=1)
        for name, run in ways.items():
            target = np.full((pixels + 2, channels), 77, np.uint8)
            run(source.ctypes.data, target[1:].ctypes.data, pixels, *addresses)
            assert (target[1:-1] == wanted).all(), (name, pixels)
            assert (target[[0, -1]] == 77).all(), f"{name}: wrote beyond {pixels} pixels"


def test_kernels_look_up_whole_rows() -> None:
    """Of plain, mirrored, cropped and tabulated images; results equal NumPy's."""
    rng = np.random.default_rng(4)
    image = rng.integers(0, 256, (70, 90, 3), dtype=np.uint8)
    calls = {}
    for channels in (3, 1):
        x = ndd.tensor(np.ascontiguousarray(image[..., :channels]), layout="HWC")
        plain = ndd.equalize(x)
        wanted = np.asarray(plain)
        with ndd.EvalMode.deferred:
            programs = (
                ("equalize", ndd.equalize(x), wanted),
                ("flip", ndd.flip(ndd.equalize(x), horizontal=1), wanted[:, ::-1]),
                ("slice", ndd.equalize(x)[3:60, 5:80], wanted[3:60, 5:80]),
            )
            for name, y, expected in programs:
                calls[name, channels] = f"look_up_bytes_{channels}(" in _last_source(y)
                assert (np.asarray(y) == expected).all(), name
    assert all(calls.values()), calls


def test_tabulated_chains_look_up_whole_rows() -> None:
    def chain(x: ndd.Tensor) -> ndd.Tensor:
        wave = ndd.math.sqrt(ndd.math.sin(x * 0.02) + 2.0) * 50.0
        return ndd.cast(wave + ndd.math.exp(x * 0.01), dtype=ndd.uint8)

    values = np.arange(256, dtype=np.uint8)
    many, few = (chain(ndd.tensor(values.repeat(n))) for n in (9, 1))  # few are not tabulated
    assert "look_up_bytes_1(" in _last_source(many)
    assert (np.asarray(many).reshape(256, 9) == np.asarray(few)[:, None]).all()


def _last_source(x: ndd.Tensor) -> str:
    return ndd.explain(x).groups[-1].code


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_cheap_functions_of_bytes_are_looked_up_where_the_cpu_can(monkeypatch, dtype):
    """With the same bits, and only if bytes become bytes."""
    rng = np.random.default_rng(2)
    sizes = [(20, 30, 3), (13, 41, 3), (3, 5, 3), (0, 4, 3)]  # tables pay off for the first two
    samples = [rng.integers(0, 256, size).astype(np.uint8).view(dtype) for size in sizes]
    x = ndd.batch(samples, layout="HWC")
    factors = ndd.batch(np.float32([0.4, 1.7, 2.0, 1.0]))
    found = []
    for many in (False, True):
        forget_plans(monkeypatch)
        monkeypatch.setattr(groups, "looks_up_many", lambda many=many: many)
        with ndd.EvalMode.deferred:
            y = ndd.brightness(x, brightness=factors)
            assert ("tabulated" in str(ndd.explain(y))) is many
            wide = ndd.brightness(x, brightness=factors, dtype=ndd.int16)
            for other in (wide, ndd.brightness(ndd.flip(x), brightness=factors), wide > 3):
                assert "tabulated" not in str(ndd.explain(other))
            found.append([a.tobytes() for a in arrays(y)])
    assert found[0] == found[1]
