"""Inputs of decoders: `bytes`, lists of them and PIL pictures enter, nodes over their bytes leave.

Hugging Face's data sets give undecoded files as dicts with `bytes` or a `path`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from ..fusion.graph.node import Node
from ..fusion.graph.shapes import Array
from ..kernels.ir import dtypes as dt
from . import convert

_BYTES = (bytes, bytearray, memoryview)


def encoded_node(value: Any) -> Node | None:
    """The node of encoded data that is no tensor yet; None for anything else.

    One file becomes a tensor, a list of files a batch.
    """
    if isinstance(value, np.ndarray) and value.dtype == object and value.ndim == 1:
        value = value.tolist()  # a column of a table
    if not isinstance(value, (list, tuple)):
        files = None if (data := _file(value)) is None else [data]
        return None if files is None else _node(files, batch=False)
    if not value or isinstance(value[0], (int, float)):
        return None  # numbers: the bytes of one file
    arrays = [_file(item) if (array := _array(item)) is None else array for item in value]
    found = [array for array in arrays if array is not None]
    return _node(found, batch=True) if len(found) == len(value) else None


def _node(files: list[Array], batch: bool) -> Node:
    is_fixed = not any(file.flags.writeable for file in files)
    return convert.wrap_arrays(files, dt.uint8, None, batch, external=not is_fixed)


def _array(item: Any) -> Array | None:
    """An array that may be the bytes of a file: the decoder checks what is in it."""
    is_bytes = isinstance(item, np.ndarray) and item.dtype == np.uint8 and item.ndim == 1
    return item if is_bytes else None


def _file(item: Any) -> Array | None:
    """The bytes of one file."""
    if isinstance(item, _BYTES):
        return np.frombuffer(item, np.uint8)
    if isinstance(item, dict) and item.keys() <= {"bytes", "path"} and item:
        content = item.get("bytes")
        return np.frombuffer(
            Path(item["path"]).read_bytes() if content is None else content, np.uint8
        )
    pil = sys.modules.get("PIL.Image")
    if pil is not None and isinstance(item, pil.Image):
        return np.frombuffer(_pnm(item), np.uint8)
    return None


def _pnm(picture: Any) -> bytes:
    """The pixels of a PIL picture as a PNM file, so that decoders treat them like any other."""
    if picture.mode.startswith("I;16"):
        pixels = np.asarray(picture).astype(">u2")
        return b"P5 %d %d 65535\n" % picture.size + pixels.tobytes()
    if picture.mode not in ("L", "RGB"):
        picture = picture.convert("L" if picture.mode == "1" else "RGB")
    kind = b"P5" if picture.mode == "L" else b"P6"
    return kind + b" %d %d 255\n" % picture.size + bytes(picture.tobytes())
