"""Summing columns of eight rows at once (kernels/cpu/native/band_sums.py) gives the same bits as row by row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import ndd
from ndd.kernels.cpu import runtime as cpu_runtime
from ndd.kernels.cpu.separable import SeparableLines
from tests.helpers import arrays, forget_plans

# Height and width before, size after. In all cases columns are summed first.
SIZES = [
    ((40, 90), (20, 30)),  # five whole bands
    ((37, 90), (18, 31)),  # rows are left over
    ((8, 60), (4, 9)),  # one band
    ((7, 60), (4, 9)),  # none
    ((50, 700), (26, 301)),  # columns in several parts
    ((30, 400), (15, 9)),  # many taps
    ((300, 600), (4, 3)),  # too many columns for eight pixels
    ((24, 31), (40, 16)),
    ((16, 1), (8, 1)),
    ((20, 40), (19, 39)),
    ((37, 60), (40, 63)),  # the neighbours of 16 pixels lie within 64 bytes
    ((30, 25), (33, 70)),
]


@contextmanager
def kernels_made_anew(monkeypatch: pytest.MonkeyPatch, in_bands: bool) -> Iterator[None]:
    with monkeypatch.context() as patch:
        if not in_bands:
            patch.setattr(SeparableLines, "_in_bands", lambda self: False)
        patch.setattr(cpu_runtime, "_kernels", {})
        patch.setattr(cpu_runtime, "kernel_file", cpu_runtime.kernel_file.__wrapped__)
        forget_plans(patch)
        yield
        sources = [k.source_path.read_text() for k in cpu_runtime._kernels.values()]
        assert sources and all(("sum_band" in text) == in_bands for text in sources)


def images(dtype: str, channels: int, layout: str) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(channels)
    found = []
    for (height, width), _ in SIZES:
        shape = {"HWC": (height, width, channels), "CHW": (channels, height, width)}[layout]
        noise = rng.normal(scale=60, size=shape) + 100
        if np.dtype(dtype).kind in "iu":
            limits = np.iinfo(dtype)
            noise = np.clip(noise * (limits.max / 255), limits.min, limits.max)
        found.append(noise.astype(dtype))
    return found


PROGRAMS = {
    "resize": lambda x, sizes: ndd.resize(x, size=sizes),
    "plain": lambda x, sizes: ndd.resize(x, size=sizes, antialias=False),
    "cubic": lambda x, sizes: ndd.resize(
        x, size=sizes, interp_type=ndd.types.DALIInterpType.INTERP_CUBIC
    ),
    "mirrored": lambda x, sizes: ndd.flip(ndd.resize(x, size=sizes)),
    "upside down": lambda x, sizes: ndd.flip(ndd.resize(x, size=sizes), horizontal=0, vertical=1),
    "part": lambda x, sizes: ndd.resize(
        x, size=sizes, roi_start=[0.9, 0.8], roi_end=[0.1, 0.2], roi_relative=True
    ),
    "beyond": lambda x, sizes: ndd.resize(
        x, size=sizes, roi_start=[-0.2, -0.3], roi_end=[1.1, 1.4], roi_relative=True
    ),
    "cut": lambda x, sizes: ndd.crop(
        ndd.resize(x, size=sizes), crop=(3, 3), crop_pos_x=1.0, out_of_bounds_policy="trim_to_shape"
    ),
}


@pytest.mark.parametrize(
    ("dtype", "channels", "layout"),
    [("uint8", 3, "HWC"), ("uint8", 1, "CHW"), ("uint8", 4, "HWC"), ("int16", 2, "HWC"),
     ("float32", 3, "HWC"), ("float16", 3, "HWC")],
)  # fmt: skip
def test_bands_are_sums_of_rows(
    dtype: str, channels: int, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = ndd.batch(images(dtype, channels, layout), layout=layout)
    sizes = ndd.batch([np.array(size, np.float32) for _, size in SIZES])
    names = PROGRAMS if dtype == "uint8" else ("resize", "part")

    def results() -> list[list[np.ndarray[Any, Any]]]:
        with ndd.EvalMode.deferred:
            return [arrays(PROGRAMS[name](x, sizes)) for name in names]

    with kernels_made_anew(monkeypatch, in_bands=True):
        found = results()
    with kernels_made_anew(monkeypatch, in_bands=False):
        wanted = results()
    for name, ours, theirs in zip(names, found, wanted, strict=True):
        for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert a.tobytes() == b.tobytes(), f"{name}, {SIZES[k]}"
