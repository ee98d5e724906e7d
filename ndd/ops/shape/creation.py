"""Ops that create tensors, reorder samples, extract frames and read properties."""

from __future__ import annotations

import numpy as np

from ...core import convert
from ...core.schema import REQUIRED, data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Shapes
from ...kernels.ir import dtypes as dt
from ...kernels.ir.dtypes import DType
from ..geometry.window import beside, on_device
from ..pointwise.conversion import cast_node

_SHAPE = "Extents of the result."


def _shapes(shape, count: int | None) -> Shapes:
    if bool((shape < 0).any()):
        raise ValueError(f"`shape` must not be negative, got {tuple(shape.min(axis=0).tolist())}")
    rows = np.broadcast_to(shape, (count or 1, shape.shape[1]))
    return Shapes.known(rows).checked()


def _filled(name: str, value: Node, shapes: Shapes, layout: str | None, batch: bool) -> Node:
    return build.broadcast_to(name, value, shapes, convert.check_layout(layout, shapes.rank), batch)


def _constant(
    name: str, number: int, shape, dtype: DType, layout: str | None, count: int | None,
    ordinal: int | None,
) -> Node:  # fmt: skip
    if shape is None:
        shape = np.zeros((1, 0), np.int64)
    value = on_device(convert.const_scalar(number, dtype), ordinal)
    return _filled(name, value, _shapes(shape, count), layout, count is not None)


@op.graph(sample="ndd.zeros(shape=[2, 3]).shape\n=(2, 3)")
def zeros(
    dtype=static(DType, dt.int32, "Element type."),
    layout=static(str, None, "Layout."),
    shape=geometry(int, None, _SHAPE, vector=True),
    count=None,
    ordinal=None,
):
    """A tensor of zeros."""
    return _constant("zeros", 0, shape, dtype, layout, count, ordinal)


@op.graph(sample="ndd.ones(shape=[2, 3]).shape\n=(2, 3)")
def ones(
    dtype=static(DType, dt.int32, "Element type."),
    layout=static(str, None, "Layout."),
    shape=geometry(int, None, _SHAPE, vector=True),
    count=None,
    ordinal=None,
):
    """A tensor of ones."""
    return _constant("ones", 1, shape, dtype, layout, count, ordinal)


@op.graph(sample="ndd.full(7, shape=[2, 3]).dtype\n=DType(kind=Kind.signed, bits=32)")
def full(
    fill_value=data("Value; broadcast to the shape."),
    layout=static(str, None, "Layout."),
    shape=geometry(int, None, _SHAPE, vector=True),
):
    """A tensor of one value."""
    x = fill_value
    if shape is None:
        shape = np.zeros((1, 0), np.int64)
    shapes = _shapes(shape, x.count)
    if x.rank > shapes.rank:
        raise ValueError(
            f"`fill_value` has {x.rank} dimensions, more than the shape's {shapes.rank}"
        )
    _check_fits(x, shapes)
    return _filled("full", x, shapes, layout, x.batch)


def _check_fits(value: Node, shapes: Shapes) -> None:
    if value.rank:
        mine, wanted = value.shapes.rows, shapes.rows[:, shapes.rank - value.rank :]
        if bool(((mine != 1) & (mine != wanted)).any()):
            raise ValueError(
                f"`fill_value` of shape {value.shapes.tuples[0]} cannot be broadcast to "
                f"{shapes.tuples[0]}"
            )


@op.graph(sample="ndd.full_like(ndd.zeros(shape=[2]), 5).shape\n=(2,)")
def full_like(
    data_like=data("Tensor that gives the shape and the element type."),
    fill_value=data("Value; broadcast to the shape."),
):
    """A tensor of one value with the shape and type of another."""
    value = cast_node("full_like", fill_value, data_like.dtype)
    if value.rank > data_like.rank:
        raise ValueError(f"`fill_value` has {value.rank} dimensions, more than {data_like.rank}")
    _check_fits(value, data_like.shapes)
    return _filled("full_like", value, data_like.shapes, data_like.layout, data_like.batch)


def _constant_like(name: str, number: int, like: Node, dtype: DType | None) -> Node:
    value = beside(convert.const_scalar(number, dtype or like.dtype), like)
    return _filled(name, value, like.shapes, like.layout, like.batch)


@op.graph(
    sample="ndd.zeros_like(ndd.tensor([1.5, 2.5])).shape\n=(2,)",
)  # fmt: skip
def zeros_like(
    data_like=data("Tensor that gives the shape and, if `dtype` is omitted, the element type."),
    dtype=static(DType, None, "Element type."),
):
    """Zeros with the shape of another tensor."""
    return _constant_like("zeros_like", 0, data_like, dtype)


@op.graph(
    sample="ndd.ones_like(ndd.tensor([1.5, 2.5])).shape\n=(2,)",
)  # fmt: skip
def ones_like(
    data_like=data("Tensor that gives the shape and, if `dtype` is omitted, the element type."),
    dtype=static(DType, None, "Element type."),
):
    """Ones with the shape of another tensor."""
    return _constant_like("ones_like", 1, data_like, dtype)


# -- frames, samples, properties -----------------------------------------------------------------


@op.graph(
    enums="moved",
    sample="""video = ndd.zeros(shape=[5, 8, 8, 3], layout='FHWC')
first, last = ndd.element_extract(video, element_map=[0, 4])
last.shape
=(8, 8, 3)""",
    outputs=None,
)  # fmt: skip
def element_extract(
    input=data("Sequences; frames run along the first axis."),
    element_map=static("ints", REQUIRED, "Frames to extract, in order."),
):
    """Extract chosen frames of a sequence, each as a separate output."""
    x = input
    if x.rank < 2:
        raise ValueError(f"a sequence needs at least 2 dimensions, got {x.rank}")
    if x.layout and x.layout[0] != "F":
        raise ValueError(f"the layout of a sequence must begin with F, got {x.layout!r}")
    if not element_map:
        raise ValueError("`element_map` is empty")
    if min(element_map) < 0:
        raise ValueError(f"`element_map` must not be negative, got {min(element_map)}")
    length = int(x.shapes.rows[:, 0].min())
    if max(element_map) >= length:
        raise IndexError(f"frame {max(element_map)} is out of range for a sequence of {length}")
    frames = [_frame(x, k) for k in element_map]
    return frames[0] if len(frames) == 1 else frames


def _frame(x: Node, k: int) -> Node:
    start = np.zeros((1, x.rank), np.int64)
    start[0, 0] = k
    step, size = np.ones_like(start), x.shapes.rows
    layout = x.layout[1:] if x.layout else None
    return build.index_axes("element_extract", x, start, step, size, [0], [0], [], layout, x.batch)


@op.graph(
    enums="kept",
    sample="ndd.permute_batch(ndd.batch([[1], [2, 3]]), indices=[1, 0]).shape\n=[(2,), (1,)]",
)  # fmt: skip
def permute_batch(
    input=data("A batch."),
    indices=geometry(int, REQUIRED, "Sample to take for each place of the batch.", vector=True),
):
    """Reorder the samples of a batch."""
    chosen = indices.reshape(-1)
    if len(chosen) != input.count:
        raise ValueError(f"`indices` has {len(chosen)} values, the batch has {input.count} samples")
    bad = np.flatnonzero((chosen < 0) | (chosen >= input.count))
    if len(bad):
        k = int(bad[0])
        raise IndexError(
            f"indices[{k}] = {int(chosen[k])} is out of range for a batch of {input.count}"
        )
    return build.choose("permute_batch", input, chosen.astype(np.int64), input.batch)


@op.graph(
    enums="kept",
    sample="ndd.get_property(ndd.zeros(shape=[2, 2], layout='HW'), key='layout').shape\n=(2,)",
)  # fmt: skip
def get_property(
    input=data("Any value."),
    key=static(str, REQUIRED, "Name of the property: layout or source_info."),
):
    """A property of every sample, as bytes."""
    if key == "layout":
        texts = [input.layout or ""] * input.count
    elif key == "source_info":
        info = input.source_info or ""
        texts = [info] * input.count if isinstance(info, str) else list(info)
    else:
        raise ValueError(f"unknown property {key!r}; known: layout, source_info")
    arrays = [np.frombuffer(t.encode(), np.uint8) for t in texts]
    return convert.copy_arrays(arrays, dt.uint8, None, input.batch)
