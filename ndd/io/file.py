"""Reads whole files: paths enter, tensors of bytes leave."""

from __future__ import annotations

import os
from typing import Any, overload

import numpy as np

from ..core import convert
from ..core.batch import Batch, as_batch
from ..core.errors import user_site
from ..core.tensor import Tensor, as_tensor
from ..kernels.ir import dtypes as dt
from ..readers.contents import read_file

__all__ = ["read"]


@overload
def read(  # type: ignore[overload-overlap]
    filepaths: str | os.PathLike[str] | Tensor,
    /,
    *,
    batch_size: None = None,
    device: Any = None,
    dont_use_mmap: bool | None = None,
    use_o_direct: bool | None = None,
) -> Tensor: ...
@overload
def read(
    filepaths: str | os.PathLike[str] | list[Any] | tuple[Any, ...] | Tensor | Batch,
    /,
    *,
    batch_size: int | None = None,
    device: Any = None,
    dont_use_mmap: bool | None = None,
    use_o_direct: bool | None = None,
) -> Batch: ...
def read(
    filepaths: Any,
    /,
    *,
    batch_size: int | None = None,
    device: Any = None,
    dont_use_mmap: bool | None = None,
    use_o_direct: bool | None = None,
) -> Any:
    """Read files: a Tensor of bytes for one path, a Batch for several.

    >>> import ndd, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "greeting.txt"
    >>> _ = path.write_bytes(b"hello")
    >>> ndd.io.file.read([path, path]).shape
    [(5,), (5,)]

    Parameters
    ----------
    filepaths : path, list of path, Tensor or Batch
        Tensors hold the bytes of the path, as uint8 or int8.
    batch_size : int, optional
        Repeat the file of a single path this many times.
    device : "cpu", optional
        Files are read on the CPU; move the result with `.gpu()`.
    dont_use_mmap, use_o_direct : bool
        Accepted for compatibility; they have no effect.
    """
    if device is not None and str(device) != "cpu":
        raise ValueError(
            f"io.file.read: files are read on the CPU, got device={device!r}; move the result "
            f"with .gpu()"
        )
    paths, is_batch = paths_of(filepaths, "io.file.read")
    if not paths:
        return as_batch(np.zeros((0, 0), np.uint8))
    arrays, site = [], user_site()
    for i, path in enumerate(paths):
        try:
            arrays.append(read_file(path))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            where = f" (sample {i})" if is_batch else ""
            text = f"io.file.read: cannot read {os.fsdecode(path)!r}{where}: {reason}"
            raise type(error)(f"{text} (called at {site})") from error
    names = [os.fsdecode(p) for p in paths]
    node = convert.wrap_arrays(arrays, dt.uint8, None, is_batch, external=False, source_info=names)
    if is_batch:
        if batch_size not in (None, len(paths)):
            raise ValueError(
                f"io.file.read: batch_size is {batch_size}, but there are {len(paths)} paths"
            )
        return Batch._of(node)
    tensor = Tensor._of(node)
    return tensor if batch_size is None else Batch.broadcast(tensor, batch_size)


def paths_of(given: Any, op: str) -> tuple[list[bytes], bool]:
    """Paths as bytes, and whether they are a batch."""
    if isinstance(given, (str, bytes, os.PathLike)):
        return [os.fsencode(given)], False
    if isinstance(given, (list, tuple)) and given:
        if all(isinstance(p, (str, bytes, os.PathLike)) for p in given):
            return [os.fsencode(p) for p in given], True
        given = as_batch(given)
    is_batch = isinstance(given, Batch)
    tensors = list(given.tensors) if is_batch else [as_tensor(given)]
    return [_path(np.asarray(t.cpu()), op) for t in tensors], is_batch


def _path(array: Any, op: str) -> bytes:
    if array.dtype not in (np.uint8, np.int8) or array.ndim != 1:
        raise TypeError(
            f"{op}: a path is text or a 1-D tensor of its bytes (uint8 or int8), got "
            f"{array.ndim}-D data of {array.dtype}"
        )
    # A path ends at the first NUL as in C: callers of upstream pad paths with zeros.
    return bytes(array.tobytes()).partition(b"\0")[0]
