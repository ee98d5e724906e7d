"""What interpolating CPU kernels import, and the helpers that they call (kernels/cpu/helpers.py).

Imported only when something is compiled.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from ...ir.dtypes import DType
from . import band_sums, bilinear, row_sums, window_sums
from .bilinear import note
from .jpeg_headers import jpeg_frames
from .row_sums import fill_taps, pad_row
from .running_sums import fill_steps, stepped
from .vectors import F32, I32, ask_to_write
from .window_sums import add_scaled, has_next, turn_line

__all__ = ["as_f32", "ask_to_write", "external", "has_next", "helper", "note", "stepped"]


@intrinsic
def as_f32(typingctx: Any, word: Any) -> Any:
    """The float32 in the low half of a table's cell."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(builder.trunc(args[0], I32), F32)

    return types.float32(types.int64), codegen


_FLOATS = {"origin", "scale", "stretch", "fill"}  # all other arguments are addresses and numbers


@lru_cache(maxsize=None)
def helper(name: str) -> tuple[Any, Any]:
    """A function by its name (`sum_rows_u8`, `bilinear_u8_3_run`, …) and its type."""
    kind, *rest = name.split("_")
    own = (fill_taps, pad_row, fill_steps, jpeg_frames, add_scaled, turn_line)
    plain = {f.__name__: f for f in own}
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
    elif name.startswith("sum_pair"):
        function = window_sums.sum_pair("fma" in rest)
    elif name.startswith("widen_row"):
        function = window_sums.widen_row(DType.parse(rest[1]), int(rest[2]))
    elif name.startswith("pad_edges"):
        function = window_sums.pad_edges("_".join(rest[1:]))
    elif kind == "bilinear":
        parts = (DType.parse(rest[0]), int(rest[1]), "fill" in rest, "run" in rest)
        function = bilinear.make_bilinear(*parts)
    else:
        raise AttributeError(name)
    arguments = inspect.signature(function).parameters
    kinds = [types.float32 if a in _FLOATS else types.int64 for a in arguments]
    return function, types.void(*kinds)


def external(symbol: str, signature: Any) -> Any:
    """The call of a native function that the linker knows, inside of a kernel.

    See `compile.compile_native`. (Through a wrapper with C's convention, which hands on its
    arguments as vectors of two that were pushed one by one, a rotation would take 8 % longer.)
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
