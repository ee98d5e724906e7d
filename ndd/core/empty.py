"""Batches without samples: every op takes them and gives them; nothing is ever computed for them.

Most op bodies need no special case, because no sample can violate their rules. A body that does (it
asks for the largest of all samples, or for the number of axes of samples that are not there) is
called with a stand-in sample, and its result is a batch without samples of the same type and number
of axes. If an op refuses a stand-in for its values or extents, it gets the next one; an argument
that the op refuses for all of them is an error of the caller.
"""

from __future__ import annotations

import io
import itertools
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from ..fusion.graph.node import Node, source
from ..fusion.graph.shapes import Array, Shapes
from ..fusion.graph.storage import nothing
from . import convert
from .batch import Batch
from .handle import Handle
from .schema import OpDef

Build = Callable[[Sequence[Any], Sequence[Any]], Any]
# The axes that samples of a batch that was made from an empty list may have, if an op does not say.
AXES: tuple[int | str, ...] = (0, 1, 2, 3, 4, 5, 6, "HWC", "FHWC")
# The same, where inputs have different numbers of axes.
MIXED_AXES = (1, 2, 3, 0)
# Extents of stand-ins for inputs: of all axes, and of the last one (or of the channels). An image
# comes first, so that errors speak of something plausible; the last is larger than any window.
EXTENTS = tuple(itertools.product((4, 1, 2, 3, 1 << 14), (3, 1, 2, 4)))
# Lengths of stand-ins for lists given as arguments, and the first of their values.
LISTS = tuple(itertools.product((2, 1, 3, 4, 6, 9), (1, 0, 3)))


def is_empty(values: Sequence[Any], batch_size: Any) -> bool:
    """Whether a call has batches without samples, and no others."""
    sizes = {v.batch_size for v in values if v is not None and isinstance(v, Batch)}
    return sizes == {0} or (not sizes and batch_size == 0)


def without_samples(
    op: OpDef, inputs: Sequence[Any], choices: Sequence[Any], build: Build
) -> list[Node]:
    """What a call gives for a stand-in sample, without that sample."""
    first: Exception | None = None
    for data, others in _stand_ins(op, inputs, choices):
        try:
            made = build(data, others)
        except Exception as error:
            # The first error for a sample says more than one for no samples.
            first = first or (None if any(map(_empty_node, data)) else error)
        else:
            return [none_of(n) for n in ((made,) if isinstance(made, Node) else made)]
    assert first is not None
    raise first


def none_of(node: Node) -> Node:
    """A batch without samples of the element type, axes and device of a node."""
    shapes = Shapes(np.zeros((0, node.rank), np.int64))
    return source(nothing(), shapes, node.dtype, node.layout, True, node.device)


def _stand_ins(
    op: OpDef, inputs: Sequence[Any], choices: Sequence[Any]
) -> Iterator[tuple[list[Any], list[Any]]]:
    """Inputs and choices to try one after the other."""
    *others, batch_size, device = choices
    size = 1 if batch_size == 0 else batch_size
    nobody = [_empty_node(v) for v in inputs]
    axes = op.layouts or AXES if any(n is not None and n.rank == 0 for n in nobody) else (0,)
    lists = LISTS if any(_empty_node(v) is not None for v in others) else LISTS[:1]
    for known in axes if len(axes) > 1 else ():
        yield [_with_axes(v, known) for v in inputs], [*others, batch_size, device]
    for known, (length, value) in itertools.product(axes, lists):
        given = [_numbers(v, length, value) for v in others]
        for array in (*map(_extents, EXTENTS), *_files()):
            data = [_filled(_with_axes(v, known), array) for v in inputs]
            yield data, [*given, size, device]
    if len(axes) > 1:  # inputs with different numbers of axes; no sample could fit them all
        for ranks in itertools.product(MIXED_AXES, repeat=len(inputs)):
            data = [_with_axes(v, rank) for v, rank in zip(inputs, ranks, strict=True)]
            yield data, [*others, batch_size, device]


def _empty_node(value: Any) -> Node | None:
    node = value._node if isinstance(value, Handle) else None
    return node if node is not None and node.count == 0 else None


def _with_axes(value: Any, axes: int | str) -> Any:
    node = _empty_node(value)
    return value if node is None or node.rank else Batch._of(with_axes(node, axes))


def with_axes(node: Node, axes: int | str) -> Node:
    """A batch without samples that has no axes, as one whose samples would have these."""
    layout = axes if isinstance(axes, str) else None
    rank = len(axes) if isinstance(axes, str) else axes
    shapes = Shapes(np.zeros((0, rank), np.int64))
    return source(nothing(), shapes, node.dtype, layout, True, node.device)


Fill = Callable[[Node], Array | None]


def _extents(extents: tuple[int, int]) -> Fill:
    """Ones, in the extents of an image; they take no memory."""
    extent, last = extents

    def fill(node: Node) -> Array:
        layout = node.layout or ""
        if "C" not in layout:
            layout = "?" * (node.rank - 1) + "C" * (node.rank > 0)
        most = extent if node.rank < 5 else min(extent, 64)  # NumPy limits the volume
        shape = [last if letter == "C" else most for letter in layout]
        return np.broadcast_to(np.ones((), node.dtype.np), shape)

    return fill


@cache
def _files() -> tuple[Fill, ...]:
    """The bytes of small files, for decoders."""
    array = io.BytesIO()
    np.save(array, np.zeros(1, np.uint8))
    png = b"\x89PNG\r\n\x1a\n"
    for name, content in (
        (b"IHDR", struct.pack(">2I5B", 1, 1, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(bytes(4))),
        (b"IEND", b""),
    ):
        sum_ = zlib.crc32(name + content)
        png += struct.pack(">I", len(content)) + name + content + struct.pack(">I", sum_)
    sound = struct.pack("<4sI4s4sI2H2I2H4sI", b"RIFF", 38, b"WAVE", b"fmt ", 16, 1, 1,
                        8000, 16000, 2, 16, b"data", 2) + bytes(2)  # fmt: skip
    files = [np.frombuffer(b, np.uint8) for b in (array.getvalue(), png, sound)]
    return tuple(lambda node, file=file: file if node.rank == 1 else None for file in files)


def _filled(value: Any, fill: Fill) -> Any:
    """A batch of one sample, instead of a batch without samples."""
    node = _empty_node(value)
    array = None if node is None else fill(node)
    if node is None or array is None:
        return value
    made = convert.wrap_arrays([array], node.dtype, node.layout, batch=True, external=False)
    return Batch._of(made)


def _numbers(value: Any, length: int, first: int) -> Any:
    """A batch of one sample with numbers that grow, instead of an argument without samples."""
    node = _empty_node(value)
    if node is None:
        return value
    if node.rank == 2:  # a matrix must have an inverse
        array = np.eye(length, dtype=node.dtype.np)
    else:
        # Squares, because nine of them make a matrix that has an inverse.
        array = first + np.arange(length ** min(node.rank, 1)).reshape([length] * node.rank) ** 2
    return Batch._of(convert.copy_arrays([array], node.dtype, node.layout, batch=True))
