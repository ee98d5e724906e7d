"""Kernels that only move elements: the native functions, and the kernels that call them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit
from numba.core import types

import ndd
from ndd.kernels.cpu.gathered_rows import GATHERED_SIZES
from ndd.kernels.cpu.native import row_moves, turned_blocks
from ndd.ops.resample import warp
from tests.helpers import arrays, assert_same

GUARD = 77


@pytest.mark.parametrize("size", row_moves.SIZES)
def test_rows_of_pixels_are_moved_and_nothing_else(size: int) -> None:
    move = njit(types.void(*[types.int64] * 4))(row_moves.move_row(size))
    source = np.random.default_rng(1).integers(0, 256, 4000, dtype=np.uint8)
    for pixels in (0, 1, 2, 3, 17, 40):
        for step in (size, -size, 7 * size, -7 * size, 0, 1, size + 1):
            first = 2000
            places = first + step * np.arange(pixels)[:, None] + np.arange(size)
            target = np.full(3 + pixels * size + 4, GUARD, np.uint8)
            move(source.ctypes.data + first, target.ctypes.data + 3, pixels, step)
            assert (target[3:-4] == source[places].reshape(-1)).all(), (pixels, step)
            assert (target[:3] == GUARD).all() and (target[-4:] == GUARD).all(), (pixels, step)


@pytest.mark.parametrize("size", GATHERED_SIZES)
def test_pixels_at_listed_addresses_are_gathered_and_nothing_else(size: int) -> None:
    gather = njit(types.void(*[types.int64] * 3))(row_moves.gather_row(size))
    source = np.random.default_rng(5).integers(0, 256, 900, dtype=np.uint8)
    for pixels in (0, 1, 2, 33):
        first = np.random.default_rng(pixels).integers(0, 900 - size + 1, pixels)
        places = source.ctypes.data + first
        target = np.full(3 + pixels * size + 4, GUARD, np.uint8)
        gather(places.ctypes.data, target.ctypes.data + 3, pixels)
        wanted = source[first[:, None] + np.arange(size)]
        assert (target[3:-4] == wanted.reshape(-1)).all(), pixels
        assert (target[:3] == GUARD).all() and (target[-4:] == GUARD).all(), pixels


@pytest.mark.parametrize("down", [3, -3, 6])
def test_blocks_of_pixels_are_turned_and_nothing_else(down: int) -> None:
    turn = njit(types.void(*[types.int64] * 7))(turned_blocks.turn_pixels)
    source = np.random.default_rng(7).integers(0, 256, (60, 400), dtype=np.uint8)
    for right in (400, -400):
        for rows, columns in ((0, 5), (1, 1), (8, 8), (16, 16), (17, 31), (40, 50), (5, 40)):
            corner = (0 if right > 0 else 59) * 400 + (3 if down > 0 else 300)
            y, x, c = np.ogrid[:rows, :columns, :3]
            wanted = source.reshape(-1)[corner + y * down + x * right + c]
            target = np.full((rows + 2, 3 * columns + 5), GUARD, np.uint8)
            at = target[1:, 2:].ctypes.data
            turn(source.ctypes.data + corner, down, right, at, target.shape[1], rows, columns)
            inside = target[1:-1, 2:-3].copy()
            assert (inside == wanted.reshape(inside.shape)).all(), (rows, columns)
            target[1:-1, 2:-3] = GUARD
            assert (target == GUARD).all(), (rows, columns)


@pytest.mark.parametrize("vectors", [True, False])
def test_channels_are_woven(vectors: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not row_moves.HAS_SHUFFLES and vectors:
        pytest.skip("this CPU has no byte shuffles")
    monkeypatch.setattr(row_moves, "HAS_SHUFFLES", vectors)
    weave = njit(types.void(*[types.int64] * 5))(row_moves.weave_row)
    for pixels in (0, 1, 5, 6, 7, 33):
        for order in ((2, 1, 0), (1, 2, 0), (0, 0, 0), (2, 2, 1)):
            source = np.random.default_rng(2).integers(0, 256, (pixels, 3), dtype=np.uint8)
            target = np.full((pixels + 2, 3), GUARD, np.uint8)
            addresses = [source.ctypes.data + k for k in order]
            weave(*addresses, target[1:].ctypes.data, pixels)
            assert (target[1:-1] == source[:, list(order)]).all(), (pixels, order)
            assert (target[[0, -1]] == GUARD).all(), (pixels, order)


def _pixels(dtype: Any) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(3)
    return [rng.integers(0, 250, (h, w, 3)).astype(dtype) for h, w in ((12, 20), (12, 17))]


def _parts(image: Any, join: Any, axis: int) -> Any:
    """Slices of four rows or columns, in another order."""
    at = [slice(4 * k, 4 * k + 4) for k in (2, 0, 1)]
    return join([image[s] if axis == 0 else image[:, s] for s in (*at, at[0], at[2])], axis)


def _shifted(image: Any) -> Any:
    """Three rows down and two columns to the left."""
    made = np.full_like(image, 9)
    made[3:, :-2] = image[:-3, 2:]
    return made


PROGRAMS: dict[str, tuple[Any, Any, str]] = {
    "crop": (lambda x: x.slice[2:9, 3:15], lambda a: a[2:9, 3:15], "copy_row"),
    "flip": (lambda x: ndd.flip(x, vertical=1), lambda a: a[::-1, ::-1], "copy_row"),
    "steps": (lambda x: x.slice[::2, ::3], lambda a: a[::2, ::3], "move_row_3"),
    "turn": (
        lambda x: ndd.transpose(x, perm=[1, 0, 2]), lambda a: a.transpose(1, 0, 2), "turn_pixels",
    ),
    "channels": (
        lambda x: ndd.stack(*[x.slice[:, :, k] for k in (2, 0, 1)], axis=2),
        lambda a: a[:, :, [2, 0, 1]], "weave_row",
    ),
    "pad": (
        lambda x: ndd.slice(x, start=[-2, -3], end=[14, 25], axes=[0, 1],
                            out_of_bounds_policy="pad"),
        lambda a: np.pad(a, ((2, 2), (3, 25 - a.shape[1]), (0, 0))), "copy_row",
    ),
    "rows": (
        lambda x: _parts(x.slice, lambda p, axis: ndd.cat(*p, axis=axis), 0),
        lambda a: _parts(a, np.concatenate, 0), "copy_row",
    ),
    "columns": (
        lambda x: _parts(x.slice, lambda p, axis: ndd.cat(*p, axis=axis), 1),
        lambda a: _parts(a, np.concatenate, 1), "copy_row",
    ),
    "computed": (
        lambda x: ndd.warp_affine(x, matrix=[1, 0, 2, 0, 1, -3], fill_value=9.0, interp_type=0),
        _shifted, "gather_row_3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_move_whole_rows(name: str) -> None:
    program, by_numpy, call = PROGRAMS[name]
    images = _pixels(np.uint8)
    x = ndd.batch(images, layout="HWC")
    with ndd.EvalMode.deferred:
        y = program(x)
        source = ndd.explain(y).groups[-1].source
        assert source is not None
        assert_same(y, [np.ascontiguousarray(by_numpy(a)) for a in images])
    assert f"{call}(" in Path(source).read_text()


def test_overlapping_regions_cover_each_other_in_order() -> None:
    images = _pixels(np.uint8)
    anchors = [[0, 0], [3, 5], [6, 2], [9, 9]]
    with ndd.EvalMode.deferred:
        got = ndd.multi_paste(
            ndd.batch(images, layout="HWC"), in_ids=[0, 1, 1, 0], out_anchors=anchors,
            shapes=[[8, 9], [7, 12], [5, 5], [4, 4]], output_size=[16, 24],
        )  # fmt: skip
        source = ndd.explain(got).groups[-1].source
    wanted = np.zeros((16, 24, 3), np.uint8)
    for which, (y, x), (h, w) in zip(
        (0, 1, 1, 0), anchors, ((8, 9), (7, 12), (5, 5), (4, 4)), strict=True
    ):
        wanted[y : y + h, x : x + w] = images[which][:h, :w]
    assert_same(got, [wanted, wanted])
    assert source is not None
    assert Path(source).read_text().count("copy_row(") == len(anchors)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16])
def test_quarter_turns_have_the_bits_of_the_warp(
    dtype: Any, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = _pixels(dtype)
    x = ndd.batch(images, layout="HWC", device=device)
    for angles in ([90.0, 180.0], [270.0, -90.0], [0.0, 450.0]):
        degrees = ndd.batch([np.float32(a) for a in angles])
        turned = arrays(ndd.rotate(x, angle=degrees))
        turns = [int(a // 90) % 4 for a in angles]
        wanted = [np.ascontiguousarray(np.rot90(a, k)) for a, k in zip(images, turns, strict=True)]
        assert_same(turned, wanted)
        with monkeypatch.context() as m:
            m.setattr(warp, "can_turn", lambda *_: False)
            assert_same(ndd.rotate(x, angle=degrees, fill_value=3.0), wanted)


def test_turns_that_are_no_views() -> None:
    x = ndd.batch(_pixels(np.float32), layout="HWC")
    with ndd.EvalMode.deferred:
        bytes_ = ndd.batch(_pixels(np.uint8), layout="HWC")
        for y in (
            ndd.rotate(x, angle=90.0),  # interpolated floats
            ndd.rotate(bytes_, angle=90.0, keep_size=True),
            ndd.rotate(bytes_, angle=180.0),  # not worth a kernel of its own
        ):
            source = ndd.explain(y).groups[0].source
            assert source is not None
            y.evaluate()  # `explain` names the file, and running the kernel writes it
            assert "move_row" not in Path(source).read_text()
