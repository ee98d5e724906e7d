"""`readers.Numpy`: .npy files enter, batches of arrays or of regions of them leave."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.batch import Batch
from ..core.tensor import Tensor
from ..fusion.graph.shapes import Array
from ..kernels.common.buffers import POOL
from ..kernels.ir import dtypes as dt
from . import listing
from .array_regions import ArrayRegion, Window, per_sample
from .epoch import Sample, Samples, Sources
from .listed_files import ListedFiles
from .stores.byte_files import ByteFile, open_bytes
from .stores.npy import NpyHeader, read_header
from .stores.remote import RemoteOptions


class NumpySamples:
    """.npy files, as samples of a reader."""

    def __init__(
        self, files: listing.Listing, region: ArrayRegion, keep_headers: bool, remote: RemoteOptions
    ) -> None:
        self._files, self._region, self._remote = files, region, remote
        # The user asks for this with cache_header_information; it has one entry per file.
        self._headers: dict[int, NpyHeader] | None = {} if keep_headers else None
        self.name, self.fingerprint = files.name, files.fingerprint

    def __len__(self) -> int:
        return len(self._files)

    def read(self, index: int) -> Sample:
        file = open_bytes(os.fsdecode(self._files.path(index)), self._remote)
        return (self._array(file, self._header(index, file)),)

    def _header(self, index: int, file: ByteFile) -> NpyHeader:
        if self._headers is None:
            return read_header(file)
        found = self._headers.get(index)
        if found is None or found.offset + found.nbytes > file.size:
            found = self._headers[index] = read_header(file)
        return found

    def _array(self, file: ByteFile, header: NpyHeader) -> Array:
        """The array, or its region; only the part along the outermost axis is read."""
        # The outermost axis in memory is the last one in Fortran order.
        shape = header.shape[::-1] if header.is_fortran else header.shape
        if not self._region or not shape:
            return _native(
                _ordered(_read(file, header, shape, 0, shape[0] if shape else 1), header)
            )
        window = self._region.window(header.shape)
        turned = Window(*(w[::-1] for w in window)) if header.is_fortran else window
        begin = min(max(turned.starts[0], 0), shape[0])
        end = min(max(turned.ends[0], begin), shape[0])
        found = self._region.cut(_read(file, header, shape, begin, end), turned, begin)
        return _native(_ordered(found, header))

    def fill(self, index: int, data: Any = None) -> Sample:
        if data is None:
            return (self._empty(),)
        array = np.array(data)
        if dt.from_numpy(array.dtype) is None:
            raise TypeError(
                f"readers.Numpy: `on_error` must return an array or None, got "
                f"{type(data).__name__} of {array.dtype}"
            )
        return (array,)

    def _empty(self) -> Array:
        """An empty array, of the type and rank of the first file that can be read."""
        for index in range(min(len(self), 100)):
            try:
                file = open_bytes(os.fsdecode(self._files.path(index)), self._remote)
                header = self._header(index, file)
            except (OSError, ValueError):
                continue
            return np.zeros([0] * len(header.shape), header.dtype.newbyteorder("="))
        return np.zeros(0, np.uint8)


def _read(file: ByteFile, header: NpyHeader, shape: tuple[int, ...], begin: int, end: int) -> Array:
    """Rows `begin` to `end` of the outermost axis, in C order."""
    inner = shape[1:]
    row = int(np.prod(inner, dtype=np.int64)) * header.dtype.itemsize
    nbytes = (end - begin) * row
    block: Array = np.asarray(POOL.take(nbytes))
    offset = header.offset + begin * row
    count = file.read_into(memoryview(block.data)[:nbytes], offset)
    if count < nbytes:
        raise ValueError(f"the file ends after {count} of {nbytes} bytes at offset {offset}")
    array = block[:nbytes].view(header.dtype)
    return array.reshape(end - begin, *inner) if shape else array.reshape(())


def _ordered(array: Array, header: NpyHeader) -> Array:
    return array.T if header.is_fortran else array


def _native(array: Array) -> Array:
    if array.dtype.isnative:
        return array
    return array.astype(array.dtype.newbyteorder("="))


class Numpy(ListedFiles):
    """Reads arrays from .npy files, or regions of them.

    >>> import ndd, numpy as np, pathlib, tempfile
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> np.save(root / "a.npy", np.arange(12).reshape(3, 4))
    >>> (array,) = next(ndd.readers.Numpy(file_root=root).next_epoch())
    >>> array.shape, array.dtype == ndd.int64
    ((3, 4), True)
    >>> reader = ndd.readers.Numpy(file_root=root, roi_start=[1, 0], roi_shape=[2, 2])
    >>> np.asarray(next(reader.next_epoch())[0])
    array([[4, 5],
           [8, 9]])

    All arrays of a batch must have the same element type and number of dimensions. Arrays in
    Fortran order and, unlike upstream, of the other byte order and of versions 2 and 3 of the
    format are read as well. Nothing is unpickled.

    Parameters
    ----------
    file_root : path, optional
        A folder: its files and those of its folders are read. With `files` or `file_list`, the
        folder that names are relative to.
    files : path or list of path, optional
        The files.
    file_list : path, optional
        A text file with a file name per line, relative to its folder or to `file_root`.
    file_filter : str
        A pattern for files below `file_root`.
    roi_start, roi_end, roi_shape : int or list of int, optional
        The region to read: start, and end or shape, for each axis. One number stands for all axes.
        Only what lies in the region along the outermost axis is read from the file.
    rel_roi_start, rel_roi_end, rel_roi_shape : float or list of float, optional
        The same as parts of the array's extents.
    roi_axes : int or list of int
        The axes that regions are given for; all if omitted.
    out_of_bounds_policy : "error" | "pad" | "trim_to_shape"
        What to do about a region that is partly outside of the array.
    fill_value : float
        The value for "pad".
    cache_header_information : bool
        Keep the headers of all files in memory, so that they are read only once.
    dont_use_mmap, use_o_direct, read_ahead, register_buffers, skip_cached_images,
    tensor_init_bytes, num_inputs
        Accepted for compatibility; they have no effect.
    **options
        Arguments of all readers, see `ndd.readers.Reader`.
    """

    outputs = ((None, False),)  # the files tell the type

    def __init__(
        self,
        max_batch_size: int | None = None,
        name: str | None = None,
        device: Any = "cpu",
        num_inputs: int | None = None,
        *,
        file_root: Any = None,
        files: Any = None,
        file_list: Any = None,
        file_filter: str | None = "*.npy",
        roi_start: Any = None,
        roi_end: Any = None,
        roi_shape: Any = None,
        rel_roi_start: Any = None,
        rel_roi_end: Any = None,
        rel_roi_shape: Any = None,
        roi_axes: int | Sequence[int] | None = (),
        out_of_bounds_policy: str | None = "error",
        fill_value: float | None = 0.0,
        cache_header_information: bool | None = False,
        dont_use_mmap: bool | None = False,
        use_o_direct: bool | None = False,
        read_ahead: bool | None = False,
        register_buffers: bool | None = True,
        skip_cached_images: bool | None = False,
        tensor_init_bytes: int | None = 1048576,
        **options: Any,
    ) -> None:
        self._take_files("readers.Numpy", file_root, files, file_list, file_filter or "*.npy")
        self._roi = (roi_axes, out_of_bounds_policy, fill_value or 0.0)
        regions = dict(roi_start=roi_start, roi_end=roi_end, roi_shape=roi_shape,
                       rel_roi_start=rel_roi_start, rel_roi_end=rel_roi_end,
                       rel_roi_shape=rel_roi_shape)  # fmt: skip
        self._region = ArrayRegion("readers.Numpy", regions, *self._roi)
        self._keep_headers = bool(cache_header_information)
        super().__init__(max_batch_size, name, device, **options)

    def _list(self) -> Samples:
        return NumpySamples(self._find_files(), self._region, self._keep_headers, self._remote)

    def __call__(
        self,
        *,
        batch_size: int | None = None,
        roi_start: Any = None,
        roi_end: Any = None,
        roi_shape: Any = None,
        rel_roi_start: Any = None,
        rel_roi_end: Any = None,
        rel_roi_shape: Any = None,
    ) -> Any:
        """The next batch or tensor; a region is an argument of all samples, or a batch of them."""
        regions = dict(roi_start=roi_start, roi_end=roi_end, roi_shape=roi_shape,
                       rel_roi_start=rel_roi_start, rel_roi_end=rel_roi_end,
                       rel_roi_shape=rel_roi_shape)  # fmt: skip
        if all(value is None for value in regions.values()):
            return super().__call__(batch_size=batch_size)
        if self._region:
            raise ValueError(f"{self._where}: the reader has a region already")
        (found,) = super().__call__(batch_size=batch_size)
        tensors = [found] if batch_size is None else list(found.tensors)
        rows = per_sample(self._where, regions, len(tensors))
        arrays = []
        for row, tensor in zip(rows, tensors, strict=True):
            region = ArrayRegion(self._where, row, *self._roi)
            array = np.asarray(tensor)
            arrays.append(region.cut(array, region.window(array.shape)))
        names: Sources = found._node.source_info
        is_batch = batch_size is not None
        node = self._output(0, arrays, is_batch, lambda k: names[k]).like(source_info=names)
        return ((Tensor if batch_size is None else Batch)._of(node),)
