"""Warps on a GPU begin at marks: the bits of the CPU, whatever other ops do with the positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ndd
from ndd.kernels.gpu.marks import APART
from ndd.kernels.gpu.runtime import GpuRuntime
from ndd.kernels.ir.expr import RUN
from tests.helpers import arrays, assert_same

pytestmark = pytest.mark.gpu

# Several runs of a row, less than the distance of two marks, and a single pixel.
SHAPES = ((5, 7, 3), (20, 300, 3), (1, 1, 3), (3, 600, 3))
MATRIX = [0.9, 0.3, -1.0, -0.3, 0.8, 1.5]


def rotated(x: Any) -> Any:
    angles = ndd.batch([np.float32(a) for a in (10, 77, 190, -33)])
    return ndd.rotate(x, angle=angles, fill_value=3.0)


def affine(*matrix: float, **more: Any) -> Any:
    return lambda x: ndd.warp_affine(x, matrix=[*matrix], **more)


PROGRAMS = {
    "rotated": rotated,
    "mirrored": lambda x: ndd.flip(rotated(x), horizontal=ndd.batch([1, 0, 1, 1]), vertical=1),
    "cut": lambda x: ndd.crop(rotated(x), crop=[1, 1], crop_pos_x=0.9),
    "padded": lambda x: ndd.crop(
        rotated(x), crop=[30, 40], out_of_bounds_policy="pad", fill_values=7
    ),
    "steps": lambda x: rotated(x).slice[::2, ::-1],
    "one row": lambda x: rotated(x).slice[0],
    "transposed": lambda x: ndd.transpose(rotated(x), perm=[1, 0, 2]),
    "larger": affine(*MATRIX, size=[9, 700]),
    "huge steps": affine(1e-3, 0.3, -1.0, 1e9, 0.8, 1.5),
    "not a number": affine(np.nan, 0.3, -1.0, np.inf, 0.8, 1.5),
    "no steps": affine(0.0, 0.3, -1.0, -0.0, 0.8, 1.5),
    "nearest": affine(*MATRIX, interp_type=ndd.types.INTERP_NN),
}


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NDD_GPU", "simulate")


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The tables of the marks' kernels."""
    found: list[Any] = []
    prepare = GpuRuntime.prepare

    def kept(self: GpuRuntime, spec: Any, table: Any, alive: list[Any]) -> None:
        assert spec.ops == ("marks",)
        found.append((spec, table.copy(), alive[0].nbytes))
        prepare(self, spec, table, alive)

    monkeypatch.setattr(GpuRuntime, "prepare", kept)
    return found


def check(program: Any, x: Any) -> None:
    with ndd.EvalMode.deferred:
        assert_same(program(x.gpu()), arrays(program(x)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_bits_are_those_of_the_cpu(name: str, prepared: list[Any]) -> None:
    rng = np.random.default_rng(0)
    samples = [rng.integers(0, 256, s).astype(np.uint8) for s in SHAPES]
    check(PROGRAMS[name], ndd.batch(samples, layout="HWC"))
    assert len(prepared) == 1


@pytest.mark.parametrize("layout", ["HW", "CHW", "FHWC", "DHWC"])
def test_layouts(layout: str, prepared: list[Any]) -> None:
    rng = np.random.default_rng(1)
    extents = {"F": 2, "D": 3, "C": 3, "H": 4, "W": 70}
    samples = [rng.integers(0, 256, [extents[a] for a in layout]).astype(np.uint8)]
    more = {"axis": [1.0, 0.5, 0.2]} if "D" in layout else {}
    check(lambda x: ndd.rotate(x, angle=25.0, **more), ndd.batch(samples, layout=layout))
    assert len(prepared) == 1


def test_marks_of_a_row(prepared: list[Any]) -> None:
    """Two sums for each 16th position of each row, and the memory ends with the last of them."""
    check(affine(*MATRIX), ndd.batch([np.zeros(s, np.uint8) for s in SHAPES], layout="HWC"))
    ((spec, table, nbytes),) = prepared
    place = spec.columns
    counts = [-(-w // APART) for _, w, _ in SHAPES]
    assert table[:, place["n", 1]].tolist() == counts
    assert nbytes == sum(2 * 4 * h * n for (h, _, _), n in zip(SHAPES, counts, strict=True))
    assert RUN % APART == 0


def test_a_mesh_has_no_marks(prepared: list[Any]) -> None:
    """Positions that are not running sums need no table."""
    check(
        lambda x: ndd.water(x, ampl_x=2.0), ndd.batch([np.zeros((5, 7, 3), np.uint8)], layout="HWC")
    )
    assert not prepared
