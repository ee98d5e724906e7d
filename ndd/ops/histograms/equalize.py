"""equalize: spreads the levels of each channel evenly over the range of a byte."""

from __future__ import annotations

from ...core.schema import data, op
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.expr import Expr
from ...kernels.ir.histogram import BINS


def check_bytes(x: Node) -> None:
    if x.dtype is not dt.uint8:
        raise TypeError(f"`input` must have element type uint8, got {x.dtype}")


def _looked_up(x: Expr, tables: Expr, others: tuple[int, ...]) -> Expr:
    """`x` in the table of its frame and channel; `others` are the axes of frames and channels."""
    place = ex.const(0, dt.int32)
    for axis in others:
        place = place * ex.extent(x, axis) + ex.index(axis)
    return ex.lookup(tables, place * BINS + ex.cast(x, dt.int32))


@op.graph(
    layouts="HW HWC CHW FHW FHWC FCHW",
    by_facts=True,
    sample="""image = ndd.tensor([[10, 10, 20, 30]], dtype=ndd.uint8, layout="HW")
ndd.equalize(image).torch().tolist()
=[[0, 0, 128, 255]]""",
)
def equalize(input=data("Images or sequences of uint8.")):
    """Equalize the histogram of each channel of each image.

    The lowest level of a channel becomes 0, the highest one 255. A channel with a single level
    stays as it is.
    """
    x = input
    check_bytes(x)
    row_axis = x.layout.index("H")
    tables = build.equalizing_tables("equalize", x, row_axis)
    others = tuple(d for d in range(x.rank) if d not in (row_axis, row_axis + 1))
    whole = tuple(range(x.rank))
    axes = [whole, ()]
    return build.pointwise(
        "equalize", _looked_up, [x, tables], axes, x.shapes, x.layout, (others,), x.batch
    )
