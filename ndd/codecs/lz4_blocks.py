"""LZ4 blocks: compressed bytes enter, values in given memory leave; on the CPU, or by nvCOMP."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ..fusion.graph.shapes import Array

MAX_BLOCK = 0x7E000000  # bytes of a block, before compression
# A byte of a block stands for at most 255 bytes (it lengthens a match by that), and a block begins
# with a few more.
MAX_RATIO = 255


def library() -> Any:
    """The package lz4, or an error that says what to install."""
    try:
        return import_module("lz4.block")
    except ImportError:
        raise ImportError(
            'LZ4 blocks need the package lz4: pip install "ndd-fusion[lz4]"'
        ) from None


def nvcomp() -> Any:
    """NVIDIA's nvCOMP, which decompresses on GPUs; None if it is not installed."""
    try:
        return import_module("nvidia.nvcomp")
    except ImportError:
        return None


def decompress(block: Array, out: Array) -> None:
    """Decompress one block into the contiguous array `out`, which it must fill exactly."""
    lz4 = library()
    try:
        found = lz4.decompress(block, uncompressed_size=out.nbytes)
    except lz4.LZ4BlockError:
        raise ValueError(
            f"{block.size} bytes are not an LZ4 block of {out.nbytes} bytes: they are damaged, or "
            "hold more"
        ) from None
    if len(found) != out.nbytes:
        raise ValueError(f"an LZ4 block holds {len(found)} bytes, but {out.nbytes} are needed")
    if out.nbytes:
        out.reshape(-1).view(np.uint8)[:] = np.frombuffer(found, np.uint8)


class _DeviceBytes:
    """Bytes in device memory, as an object that other libraries understand."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "version": 3, "shape": (nbytes,), "typestr": "|u1", "data": (address, False),
            "strides": None,
        }  # fmt: skip


def decompress_on_gpu(
    blocks: Sequence[tuple[int, int]], outs: Sequence[tuple[int, int]], device_id: int, stream: int
) -> None:
    """Decompress blocks in device memory, given as (address, bytes). This has never run, because
    there was no GPU (docs/gpu.md)."""
    lib = nvcomp()
    codec = lib.Codec(
        algorithm="LZ4", bitstream_kind=lib.BitstreamKind.RAW, device_id=device_id,
        cuda_stream=stream,
    )  # fmt: skip
    sources, results = (
        lib.as_arrays([_DeviceBytes(*place) for place in places], cuda_stream=stream)
        for places in (blocks, outs)
    )
    codec.decode(sources, out=results)
