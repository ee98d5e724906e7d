"""decoders.inflate: compressed blocks to tensors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...codecs import lz4_blocks
from ...core.errors import user_site
from ...core.inputs import on_gpu
from ...core.schema import REQUIRED, data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes
from ...fusion.graph.storage import Storage, allocate
from ...kernels.gpu.env import simulating
from ...kernels.ir import dtypes as dt
from ...kernels.ir.dtypes import DType


@op.graph(
    name="decoders.inflate",
    mixed=True,
    sample="""import lz4.block, numpy
block = lz4.block.compress(numpy.arange(6, dtype=numpy.uint8), store_size=False)
ndd.decoders.inflate(numpy.frombuffer(block, numpy.uint8), shape=[2, 3]).torch().tolist()
=[[0, 1, 2], [3, 4, 5]]""",
)
def inflate(
    input=data("Compressed bytes: a block per sample, or several.", files=True),
    algorithm=static(str, "LZ4", "How the blocks are compressed; only LZ4 is known."),
    check_output_size=static(bool, False, "Sizes are always checked; without effect."),
    chunk_offsets=geometry(
        int, None, "Where the blocks of a sample begin; one after the other if omitted.",
        vector=True, uneven=True,
    ),
    chunk_sizes=geometry(
        int, None, "Bytes of the blocks of a sample; up to the next one if omitted.",
        vector=True, uneven=True,
    ),
    dtype=static(DType, dt.uint8, "Element type of the result."),
    layout=static(str, "", "Layout of what a block holds."),
    sequence_axis_name=static(str, "F", "Letter of the axis that counts the blocks."),
    shape=geometry(int, REQUIRED, "Shape of what a block holds.", vector=True),
    *,
    ordinal,
):  # fmt: skip
    """Decompress LZ4 blocks. Several blocks of a sample are stacked along a new first axis."""
    x = input
    if algorithm.upper() != "LZ4":
        raise ValueError(f"`algorithm` must be LZ4, got {algorithm!r}")
    if x.dtype is not dt.uint8 or x.rank != 1:
        raise TypeError(
            f"compressed data must be one-dimensional uint8, got {x.dtype} of shape "
            f"{x.shapes.tuples[0]}"
        )
    is_sequence = chunk_offsets is not None or chunk_sizes is not None
    blocks = [_blocks(x, s, chunk_offsets, chunk_sizes) for s in range(x.count)]
    shapes = _shapes(x, shape, [len(b.begin) for b in blocks] if is_sequence else None)
    _check_sizes(shape, dtype, blocks)
    names = _layout(layout, sequence_axis_name, shape.shape[1], is_sequence)
    if ordinal is not None and not simulating() and lz4_blocks.nvcomp() is not None:
        return build.host(
            "decoders.inflate", _inflate_on_gpu, [on_gpu(x, ordinal)], shapes, dtype, names,
            x.batch, (blocks, is_sequence), ordinal,
        )  # fmt: skip
    lz4_blocks.library()
    if x.device is not None:
        x = build.transfer(x, None)
    node = build.mapped(
        "decoders.inflate", _inflate, x, shapes, dtype, names, (blocks, is_sequence)
    )
    node.result.site = user_site()
    return node if ordinal is None else build.transfer(node, ordinal)


class _Blocks(NamedTuple):
    """Where the blocks of a sample begin, and how many bytes they have."""

    begin: Array
    size: Array


def _blocks(x: Node, s: int, offsets, sizes) -> _Blocks:
    total = x.shapes.tuples[s][0]
    if offsets is None and sizes is None:
        return _Blocks(np.zeros(1, np.int64), np.array([total]))
    if offsets is None:
        size = sizes[s % len(sizes)]
        begin = np.cumsum(size) - size
    else:
        begin = offsets[s % len(offsets)]
        whole = np.diff(np.append(begin, total))
        size = whole if sizes is None else sizes[s % len(sizes)]
    if len(begin) != len(size):
        raise ValueError(
            f"`chunk_offsets` of sample {s} has {len(begin)} values, `chunk_sizes` {len(size)}"
        )
    if not len(begin):
        raise ValueError(f"sample {s} has no blocks")
    bad = np.flatnonzero((begin < 0) | (size < 0) | (begin > total) | (size > total - begin))
    if len(bad):
        k = int(bad[0])
        raise ValueError(
            f"block {k} of sample {s} leaves its {total} bytes: offset {int(begin[k])}, size "
            f"{int(size[k])}"
        )
    return _Blocks(begin, size)


def _shapes(x: Node, shape: Array, numbers: list[int] | None) -> Shapes:
    if bool((shape < 0).any()):
        raise ValueError(f"`shape` must not be negative, got {tuple(shape.min(axis=0).tolist())}")
    rows = np.broadcast_to(shape, (x.count, shape.shape[1]))
    if numbers is not None:
        rows = np.column_stack([numbers, rows])
    return Shapes(np.ascontiguousarray(rows)).checked()


def _check_sizes(shape: Array, dtype: DType, blocks: list[_Blocks]) -> None:
    """Reject results that the blocks cannot give, before there is memory for them."""
    volumes = Shapes(np.ascontiguousarray(shape)).checked().volumes * dtype.bytes
    for s, found in enumerate(blocks):
        nbytes = int(volumes[s % len(volumes)])
        if nbytes > lz4_blocks.MAX_BLOCK:
            raise ValueError(
                f"a block of sample {s} would hold {nbytes} bytes, an LZ4 block holds "
                f"{lz4_blocks.MAX_BLOCK} at most"
            )
        small = np.flatnonzero(found.size * lz4_blocks.MAX_RATIO < nbytes)
        if len(small):
            k = int(small[0])
            raise ValueError(
                f"block {k} of sample {s} has {int(found.size[k])} bytes, which cannot hold "
                f"{nbytes} bytes (shape {tuple(shape[s % len(shape)].tolist())} of {dtype})"
            )


def _layout(layout: str, axis: str, rank: int, is_sequence: bool) -> str | None:
    if not layout:
        return None
    if len(layout) != rank:
        raise ValueError(f"`layout` {layout!r} does not fit {rank} dimensions")
    if not is_sequence:
        return layout
    if len(axis) != 1:
        raise ValueError(f"`sequence_axis_name` must be one letter, got {axis!r}")
    return axis + layout


def _inflate(params: tuple[list[_Blocks], bool], sample: int, x: Array, out: Array) -> None:
    blocks, is_sequence = params
    results = out if is_sequence else [out]
    for k, (begin, size) in enumerate(zip(*map(np.ndarray.tolist, blocks[sample]), strict=True)):
        try:
            lz4_blocks.decompress(x[begin : begin + size], results[k])
        except ValueError as error:
            raise ValueError(f"block {k} of sample {sample}: {error}") from None


def _inflate_on_gpu(node: Node, inputs: list[Node], params) -> Storage:
    """Decompress all blocks with one call of nvCOMP."""
    from ...runtime.gpu_runtimes import runtime_of

    blocks, is_sequence = params
    gpu = runtime_of(node.result.context, node.device)
    made = allocate(node.shapes, node.dtype.bytes, gpu.take)
    starts = zip(inputs[0].stored.addresses.tolist(), made.addresses.tolist(), strict=True)
    sources, results = [], []
    volumes = node.shapes.volumes * node.dtype.bytes
    for s, (source, result) in enumerate(starts):
        number = len(blocks[s].begin) if is_sequence else 1
        nbytes = int(volumes[s]) // max(number, 1)
        for k, (begin, size) in enumerate(zip(*map(np.ndarray.tolist, blocks[s]), strict=True)):
            sources.append((source + begin, size))
            results.append((result + k * nbytes, nbytes))
    lz4_blocks.decompress_on_gpu(sources, results, node.device, gpu.stream.handle)
    return made
