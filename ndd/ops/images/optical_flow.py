"""optical_flow: motion between frames, computed by the optical-flow engine of NVIDIA GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...codecs import flow_engine
from ...core import convert
from ...core.schema import arg, data, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Shapes
from ...fusion.graph.storage import Storage
from ...kernels.ir import dtypes as dt
from ...kernels.ir.dtypes import DALIImageType

_CHANNELS = {DALIImageType.RGB: 3, DALIImageType.BGR: 3, DALIImageType.GRAY: 1}
PRESETS = (0.0, 0.5, 1.0)
OUTPUT_GRIDS = (1, 2, 4)
HINT_GRIDS = (1, 2, 4, 8)


@op.graph(
    layouts="FHWC",
    mixed=True,
    sample="""video = ndd.zeros(shape=[3, 32, 64, 3], dtype=ndd.uint8, layout='FHWC')
try:
    ndd.optical_flow(video, output_grid=4)
except RuntimeError as error:
    print('GPU' in str(error))
=True""",
)
def optical_flow(
    input_0=data("Sequences of uint8 with two frames at least."),
    input_1=arg(
        float, None, "Hints: expected motion between frames, a vector (x, y) per cell.",
        positional=True, any_shape=True,
    ),
    enable_external_hints=static(bool, False, "Whether `input_1` is given."),
    enable_temporal_hints=static(bool, False, "Begin with the motion between the frames before."),
    hint_grid=static(int, 4, "Pixels of a cell of the hints, in each direction: 1, 2, 4 or 8."),
    image_type=static(DALIImageType, DALIImageType.RGB, "Colours of the frames: RGB, BGR or GRAY."),
    output_format=static(int, None, "Old name of `output_grid`."),
    output_grid=static(int, 4, "Pixels of a cell of the result, in each direction: 1, 2 or 4."),
    preset=static(float, 0.0, "0.0 is slow and best, 1.0 is fast, 0.5 lies in between."),
    *,
    ordinal,
):  # fmt: skip
    """Motion from each frame to the next, in pixels: a vector (x, y) for every cell of the result.

    This needs the optical-flow engine of an NVIDIA GPU (Turing or newer), and OpenCV with CUDA,
    which drives it. Without them the call raises an error.
    """
    x, grid = input_0, output_grid if output_format is None else output_format
    _check_choices(preset, grid, hint_grid, image_type)
    shapes = _check_frames(x, _CHANNELS[image_type], grid)
    _check_hints(x, input_1, enable_external_hints, hint_grid)
    if ordinal is None:
        raise RuntimeError(
            "the optical-flow engine is a part of GPUs: use device='gpu', or an input on a GPU"
        )
    engine = flow_engine.find()
    inputs = [build.transfer(n, None) if n.device is not None else n
              for n in (x, input_1) if n is not None]  # fmt: skip
    options = flow_engine.FlowOptions(
        preset, grid, hint_grid, enable_temporal_hints, input_1 is not None,
        image_type.name, ordinal,
    )  # fmt: skip
    flow = build.host("optical_flow", _flow, inputs, shapes, dt.float32, "FHWC", x.batch,
                      (engine, options), None)  # fmt: skip
    return build.transfer(flow, ordinal)


def _check_choices(preset: float, grid: int, hint_grid: int, image_type: DALIImageType) -> None:
    for name, value, known in (
        ("preset", preset, PRESETS), ("output_grid", grid, OUTPUT_GRIDS),
        ("hint_grid", hint_grid, HINT_GRIDS),
    ):  # fmt: skip
        if value not in known:
            raise ValueError(f"`{name}` must be one of {', '.join(map(str, known))}, got {value}")
    if image_type not in _CHANNELS:
        raise ValueError(f"`image_type` must be RGB, BGR or GRAY, got {image_type.name}")


def _check_frames(x: Node, channels: int, grid: int) -> Shapes:
    """The shapes of the result."""
    if x.dtype is not dt.uint8:
        raise TypeError(f"`input_0` must be of uint8, got {x.dtype}")
    rows = x.shapes.rows
    for wrong, wanted in (
        (rows[:, 0] < 2, "two frames at least"),
        (rows[:, 3] != channels, f"{channels} channels"),
        ((rows[:, 1:3] == 0).any(axis=1), "pixels"),
    ):
        if wrong.any():
            s = int(np.flatnonzero(wrong)[0])
            raise ValueError(
                f"`input_0` must have {wanted}, sample {s} is of shape {x.shapes.tuples[s]} (FHWC)"
            )
    return _cells(rows, grid)


def _cells(rows: Any, grid: int) -> Shapes:
    cells = -(-rows[:, 1:3] // grid)
    two = np.full(len(rows), 2)
    return Shapes(np.column_stack([rows[:, 0] - 1, cells, two]))


def _check_hints(x: Node, hints: Node | None, enabled: bool, grid: int) -> None:
    if enabled != (hints is not None):
        raise ValueError(
            "hints are given as `input_1`, with enable_external_hints=True: one of both is missing"
        )
    if hints is None:
        return
    if hints.dtype is not dt.float32:
        raise TypeError(f"`input_1` must be of float32, got {hints.dtype}")
    wanted = _cells(x.shapes.rows, grid)
    for s, shape in enumerate(wanted.tuples):
        got = hints.shapes.tuples[s % hints.count]
        if got != shape:
            raise ValueError(
                f"`input_1` must have the shape {shape} (FHWC) for sample {s}, got {got}"
            )


def _flow(node: Node, inputs: list[Node], params: Any) -> Storage:
    engine, options = params
    videos, *hints = (convert.arrays_of(n) for n in inputs)
    results = []
    for s, video in enumerate(videos):
        try:
            given = hints[0][s % len(hints[0])] if hints else None
            results.append(engine(options, video, given))
        except Exception as error:
            raise RuntimeError(f"the optical-flow engine failed for sample {s}: {error}") from error
    return convert.copy_arrays(results, dt.float32, "FHWC", node.batch).stored
