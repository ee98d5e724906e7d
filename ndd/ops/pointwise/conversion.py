"""Element types: cast, cast_like, copy."""

from __future__ import annotations

from ...core.enumerations import check_conversion, relabelled
from ...core.schema import REQUIRED, data, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.dtypes import DType
from ...kernels.ir.expr import Expr


def _convert(x: Expr, dtype: DType) -> Expr:
    return ex.convert(x, dtype)


def cast_node(name: str, x: Node, dtype: DType) -> Node:
    """`x` in another element type: halves round away from zero, results saturate."""
    check_conversion(x.dtype, dtype)
    if x.dtype.is_enum:
        return cast_node(name, relabelled(x, dt.int32), dtype)
    if dtype.is_enum:
        return relabelled(cast_node(name, x, dt.int32), dtype)
    return build.pointwise(
        name, _convert, [x], [tuple(range(x.rank))], x.shapes, x.layout, (dtype,)
    )


@op.graph(
    enums="kept", sample="ndd.cast(ndd.tensor([0.5, 300.0]), dtype=ndd.uint8).dtype.name\n='u8'"
)
def cast(
    input=data(),
    dtype=static(DType, REQUIRED, "Element type of the result."),
):
    """Convert to another element type: halves round away from zero, results saturate."""
    return cast_node("cast", input, dtype)


@op.graph(
    enums="kept",
    sample="ndd.cast_like(ndd.tensor([1.5]), ndd.tensor([1])).dtype.name\n='i32'",
)  # fmt: skip
def cast_like(input=data(), like=data("Value that determines the element type.")):
    """Convert to the element type of the second input."""
    return cast_node("cast_like", input, like.dtype)


@op.graph(
    enums="kept",
    sample="ndd.copy(ndd.tensor([1, 2])).shape\n=(2,)",
)  # fmt: skip
def copy(input=data()):
    """Copy to new memory; with `device=` also to another device."""
    return build.copy("copy", input)
