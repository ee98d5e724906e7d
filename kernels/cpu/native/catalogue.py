"""Names of helpers (kernels/cpu/helpers.py) → functions to compile; also what kernels import.

Only imported to compile something.
"""

from __future__ import annotations

import inspect
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from ...common.memo import memoized
from ...ir.dtypes import DType
from ..annotations.find_objects import make_find_objects
from ..annotations.find_windows import find_windows
from ..annotations.hash_bytes import hash_bytes
from ..annotations.select_polygons import select_polygons
from ..annotations.turn_boxes import turn_boxes
from ..jpeg_loss.lose_jpeg import lose_jpeg
from . import (
    band_sums,
    bilinear,
    byte_tables,
    folded_sums,
    rounded_sums,
    row_moves,
    row_sums,
    whole_windows,
    window_ranks,
    window_rows,
    window_sums,
)
from .bilinear import note
from .byte_sums import sum_of_bytes, sum_of_squares, sums_of_powers
from .checksums import crc32c_parts
from .example_fields import example_fields, example_values
from .flac_frames import flac_frames, flac_header
from .folded_sums import sum_folded_row
from .fourier import sum_lanes, transform_frames
from .integer_samples import integer_samples
from .jpeg_headers import jpeg_frames
from .rectangles import make_copy_rectangles
from .rounded_sums import add_across, mean_down, mean_of
from .row_moves import copy_row, weave_row
from .row_sums import fill_taps, pad_row
from .running_sums import fill_steps, stepped
from .sincs import block_start, resample_block
from .streamed_stores import add_to_piece, end_rows, finish_streams
from .tar_headers import tar_headers
from .turned_blocks import turn_pixels
from .vectors import F32, I32, ask_to_write
from .window_rows import add_scaled, turn_line
from .window_sums import has_next, lines_ahead
from .yuv_rows import yuv420_rows

__all__ = [
    "as_f32", "ask_to_write", "block_start", "external", "finish_streams", "has_next", "helper",
    "lines_ahead", "note", "stepped", "sum_of_bytes", "sum_of_squares",
    "sums_of_powers",
]  # fmt: skip


@intrinsic
def as_f32(typingctx: Any, word: Any) -> Any:
    """The float32 in the low half of a cell of the table."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(builder.trunc(args[0], I32), F32)

    return types.float32(types.int64), codegen


_PLAIN = (
    fill_taps, pad_row, fill_steps, jpeg_frames, add_scaled, sum_folded_row, turn_line,
    transform_frames, sum_lanes, resample_block, find_windows, select_polygons, hash_bytes,
    example_fields, example_values, crc32c_parts, tar_headers, copy_row, weave_row,
    yuv420_rows, lose_jpeg, turn_boxes, flac_frames, flac_header, integer_samples, add_to_piece,
    end_rows, add_across, mean_down, mean_of, turn_pixels,
)  # fmt: skip
_FLOATS = {"origin", "scale", "stretch", "fill"}  # float32 arguments; all others are int64


@memoized(256)
def helper(name: str) -> tuple[Any, Any]:
    """The function of a name (`sum_rows_u8`, `bilinear_u8_3_run`, …), and its signature."""
    kind, *rest = name.split("_")
    plain = {f.__name__: f for f in _PLAIN}
    function: Any
    if name in plain:
        function = plain[name]
    elif name.startswith("sum_columns"):
        function = row_sums.sum_columns(int(rest[1]))
    elif name.startswith("sum_band"):
        function = band_sums.sum_band(DType.parse(rest[1]), int(rest[2]))
    elif name.startswith("sum_rows"):
        function = row_sums.sum_rows(DType.parse(rest[1]), "ring" in rest)
    elif name.startswith("sum_taps"):
        function = window_sums.sum_taps("fma" in rest)
    elif name.startswith("sum_to_bytes"):
        function = rounded_sums.sum_to_bytes(int(rest[2]))
    elif name.startswith("sum_lines"):
        function = window_sums.sum_lines(int(rest[1]))
    elif name.startswith("sum_folded"):
        function = folded_sums.sum_folded(int(rest[1]))
    elif name.startswith("widen_row"):
        function = window_rows.widen_row(DType.parse(rest[1]), int(rest[2]))
    elif name.startswith("pad_edges"):
        function = window_rows.pad_edges("_".join(rest[1:]))
    elif name.startswith("look_up_bytes"):
        function = byte_tables.look_up_bytes(int(rest[2]))
    elif name.startswith("move_row"):
        function = row_moves.move_row(int(rest[1]))
    elif name.startswith("gather_row"):
        function = row_moves.gather_row(int(rest[1]))
    elif name == "copy_rectangles":
        function = make_copy_rectangles()
    elif name.startswith("find_objects"):
        function = make_find_objects(DType.parse(rest[1]))
    elif name.startswith("whole_rows"):
        function = whole_windows.whole_rows(DType.parse(rest[2]), rest[3], *map(int, rest[4:]))
    elif (made := window_ranks.made(name)) is not None:
        function = made
    elif kind == "bilinear":
        parts = (DType.parse(rest[0]), int(rest[1]), "fill" in rest, "run" in rest)
        function = bilinear.make_bilinear(*parts)
    else:
        raise AttributeError(name)
    arguments = inspect.signature(function).parameters
    kinds = [types.float32 if a in _FLOATS else types.int64 for a in arguments]
    return function, types.void(*kinds)


def external(symbol: str, signature: Any) -> Any:
    """An intrinsic that calls a native function by its symbol (see `compile.compile_native`).

    It avoids a wrapper with C's calling convention, which would push arguments one by one and
    reload them as vectors of two: with it, a rotation takes 8 % longer.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        ignored = cgutils.alloca_once(builder, ir.IntType(8).as_pointer())
        function = ir.FunctionType(I32, [ignored.type] * 2 + [a.type for a in args])
        found = cgutils.get_or_insert_function(builder.module, function, symbol)
        builder.call(found, [ignored, ignored, *args])
        return context.get_dummy_value()

    names = ", ".join(f"a{k}" for k in range(len(signature.args)))
    source = f"def call(typingctx, {names}):\n    return signature, codegen\n"
    namespace = {"signature": signature, "codegen": codegen}
    exec(source, namespace)
    return intrinsic(namespace["call"])
