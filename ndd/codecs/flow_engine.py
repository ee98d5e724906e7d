"""The optical-flow engine of NVIDIA GPUs, which OpenCV drives: frames enter, motion leaves.

This has never run, because there was no GPU (docs/gpu.md); the tests put another engine in place.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from ..fusion.graph.shapes import Array
from ..kernels.gpu.env import simulating


class FlowOptions(NamedTuple):
    """What the engine has to know, besides frames."""

    preset: float
    output_grid: int
    hint_grid: int
    temporal_hints: bool
    external_hints: bool
    colours: str
    device_id: int


# (options, frames [F, H, W, C], hints or None) → float32 [F - 1, cells, cells, 2]
Engine = Callable[[FlowOptions, Array, "Array | None"], Array]


def find() -> Engine:
    """The engine, or an error that says what is missing."""
    if simulating():
        raise RuntimeError("a simulated GPU has no optical-flow engine: a real GPU is needed")
    try:
        cuda = import_module("cv2").cuda
        cuda.NvidiaOpticalFlow_2_0_create  # noqa: B018
    except (ImportError, AttributeError):
        raise RuntimeError(
            "the optical-flow engine needs OpenCV with CUDA: build opencv and opencv_contrib with "
            "WITH_CUDA=ON (the packages on PyPI are built without it)"
        ) from None
    return _flow


_PRESETS = {0.0: 5, 0.5: 10, 1.0: 20}  # slow, medium, fast


def _flow(options: FlowOptions, frames: Array, hints: Array | None) -> Array:
    cv2 = import_module("cv2")
    grey = [_grey(cv2, frame, options.colours) for frame in frames]
    engine = cv2.cuda.NvidiaOpticalFlow_2_0_create(
        grey[0].shape[::-1], _PRESETS[options.preset], options.output_grid, options.hint_grid,
        options.temporal_hints, options.external_hints, False, options.device_id,
    )  # fmt: skip
    results = []
    try:
        for k in range(len(grey) - 1):
            given = None if hints is None else _fixed_point(hints[k])
            found = engine.calc(grey[k], grey[k + 1], None, hint=given)[0]
            results.append(np.asarray(engine.convertToFloat(found, None), np.float32))
    finally:
        engine.collectGarbage()
    return np.stack(results)


def _grey(cv2: Any, frame: Array, colours: str) -> Array:
    if colours == "GRAY":
        return np.ascontiguousarray(frame[..., 0])
    code = cv2.COLOR_RGB2GRAY if colours == "RGB" else cv2.COLOR_BGR2GRAY
    grey: Array = cv2.cvtColor(frame, code)
    return grey


def _fixed_point(vectors: Array) -> Array:
    """Vectors in units of 1/32 pixel, as the engine takes them."""
    fixed: Array = np.clip(np.rint(vectors * 32), -32768, 32767).astype(np.int16)
    return fixed
