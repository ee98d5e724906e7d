"""dump_image: writes images to files, for a look at them while debugging."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...core import convert
from ...core.inputs import on_host
from ...core.schema import data, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array
from ...kernels.ir import dtypes as dt
from ...tools.outputs import write_output

_TEXT = [str(v) for v in range(256)]


@op.graph(
    has_effects=True,
    sample="""import contextlib, pathlib, tempfile
image = ndd.ones(shape=[2, 1, 3], dtype=ndd.uint8, layout='HWC')
with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
    same = ndd.dump_image(image, suffix='before')
    print(pathlib.Path('0-before-0.ppm').read_text().split())
=['P3', '1', '2', '255', '1', '1', '1', '1', '1', '1']""",
)
def dump_image(
    input=data("Images of uint8, with one or three channels."),
    input_layout=static(str, "HWC", "Layout of the images; only HWC is supported."),
    suffix=static(str, "", "Part of the names of the files."),
):
    """Write images to text files of PPM format, and return the images.

    Sample k is written to the file "k-suffix-0.ppm" in the working directory, which replaces an
    older one. The call computes the images and writes them before it returns, in every mode.
    """
    if input_layout != "HWC":
        raise ValueError(f"`input_layout` must be 'HWC', got {input_layout!r}")
    if Path(suffix).name != suffix and suffix:
        raise ValueError(f"`suffix` must be a part of a file's name, got {suffix!r}")
    _check_images(input)
    for s, pixels in enumerate(convert.arrays_of(on_host(input))):
        write_output(f"{s}-{suffix}-0.ppm", _ppm(pixels))
    return build.relabel("dump_image", input, input.layout)


def _check_images(x: Node) -> None:
    if x.dtype is not dt.uint8:
        raise TypeError(f"`input` must be of uint8, got {x.dtype}")
    if x.rank != 3:
        raise ValueError(f"`input` must have three dimensions (HWC), got {x.rank}")
    bad = np.flatnonzero(~np.isin(x.shapes.rows[:, 2], (1, 3)))
    if len(bad):
        s = int(bad[0])
        raise ValueError(
            f"images must have 1 or 3 channels, sample {s} of shape {x.shapes.tuples[s]} has "
            f"{x.shapes.tuples[s][2]}"
        )


def _ppm(pixels: Array) -> str:
    """The text of a PPM file, or PGM if there is only one channel."""
    height, width, channels = pixels.shape
    lines = [f"P{3 if channels == 3 else 2}", f"{width} {height}", "255"]
    for row in pixels.reshape(height, -1).tolist():
        lines.append(" ".join([_TEXT[v] for v in row]) + " ")
    return "\n".join(lines) + "\n"
