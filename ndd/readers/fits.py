"""`experimental.readers.Fits`: FITS files enter, batches of the arrays of their HDUs leave."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..fusion.graph.shapes import Array
from ..kernels.common.buffers import POOL
from ..kernels.ir import dtypes as dt
from ..kernels.ir.dtypes import DType
from . import listing
from .epoch import Sample, Samples
from .listed_files import ListedFiles
from .record_samples import filled
from .stores.byte_files import ByteFile, open_bytes
from .stores.fits_file import find_image
from .stores.remote import RemoteOptions


class FitsSamples:
    """FITS files, as samples of a reader: one output per HDU."""

    def __init__(
        self, files: listing.Listing, hdus: Sequence[int], dtypes: Sequence[DType] | None,
        remote: RemoteOptions,
    ) -> None:  # fmt: skip
        self._files, self._hdus, self._dtypes, self._remote = files, hdus, dtypes, remote
        self.name, self.fingerprint = files.name, files.fingerprint

    def __len__(self) -> int:
        return len(self._files)

    def read(self, index: int) -> Sample:
        file = open_bytes(os.fsdecode(self._files.path(index)), self._remote)
        found = [_read(file, hdu) for hdu in self._hdus]
        for k, wanted in enumerate(self._dtypes or ()):
            if found[k].dtype != wanted.np:
                raise ValueError(
                    f"HDU {self._hdus[k]} has elements of {found[k].dtype}, but `dtypes` says "
                    f"{wanted}"
                )
        return tuple(found)

    def fill(self, index: int, data: Any = None) -> Sample:
        return filled("experimental.readers.Fits", self._empty(), data)

    def _empty(self) -> Sample:
        """Empty arrays, of the types and ranks of the first file that can be read."""
        for index in range(min(len(self), 100)):
            try:
                found = self.read(index)
            except (OSError, ValueError):
                continue
            return tuple(np.zeros([0] * a.ndim, a.dtype) for a in found)
        kinds = self._dtypes or [dt.uint8] * len(self._hdus)
        return tuple(np.zeros(0, d.np) for d in kinds)


def _read(file: ByteFile, hdu: int) -> Array:
    image = find_image(file, hdu)
    block: Array = np.asarray(POOL.take(image.nbytes))[: image.nbytes]
    count = file.read_into(memoryview(block.data), image.offset)
    if count < image.nbytes:
        raise ValueError(f"the file ends after {count} of {image.nbytes} bytes at {image.offset}")
    return image.values(block)


class Fits(ListedFiles):
    """Reads the arrays of FITS files.

    >>> import ndd, numpy as np, pathlib, tempfile
    >>> cards = ["SIMPLE  =                    T", "BITPIX  =                   16",
    ...          "NAXIS   =                    1", "NAXIS1  =                    3", "END"]
    >>> header = "".join(card.ljust(80) for card in cards).ljust(2880).encode()
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.fits"
    >>> _ = path.write_bytes(header + np.array([1, 2, 3], ">i2").tobytes().ljust(2880, bytes(1)))
    >>> reader = ndd.experimental.readers.Fits(files=path, hdu_indices=[1])
    >>> np.asarray(next(reader.next_epoch())[0])
    array([1, 2, 3], dtype=int16)

    Files are parsed here, so that a damaged one is an error and nothing else. Images that are
    stored with an offset, as FITS does for unsigned numbers, have their real type; other offsets
    and scales give floats. Compressed images and tables are not supported.

    Parameters
    ----------
    file_root, files, file_list : path, optional
        The files, as for `ndd.readers.Numpy`.
    file_filter : str
        A pattern for files below `file_root`.
    hdu_indices : int or list of int
        The HDUs to read, counted from 1; each gives an output.
    dtypes : DType or list of DType, optional
        The element types of the outputs, to be checked. Unlike upstream, the default is what the
        files hold.
    read_ahead, dont_use_mmap, skip_cached_images, tensor_init_bytes, num_inputs
        Accepted for compatibility; they have no effect.
    **options
        Arguments of all readers, see `ndd.readers.Reader`.
    """

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
        file_filter: str | None = "*.fits",
        hdu_indices: int | Sequence[int] | None = (2,),
        dtypes: Any = None,
        read_ahead: bool | None = False,
        dont_use_mmap: bool | None = False,
        skip_cached_images: bool | None = False,
        tensor_init_bytes: int | None = 1048576,
        **options: Any,
    ) -> None:
        where = "experimental.readers.Fits"
        self._take_files(where, file_root, files, file_list, file_filter or "*.fits")
        chosen = (2,) if hdu_indices is None else hdu_indices
        self._hdus = [chosen] if isinstance(chosen, int) else list(chosen)
        if not self._hdus or any(type(n) is not int or n < 1 for n in self._hdus):
            raise ValueError(f"{where}: `hdu_indices` are counted from 1, got {hdu_indices!r}")
        self._dtypes: list[DType] | None = None
        if dtypes is not None:
            given = list(dtypes) if isinstance(dtypes, (list, tuple)) else [dtypes]
            self._dtypes = [dt.dtype(d) for d in given]
            if len(self._dtypes) != len(self._hdus):
                raise ValueError(
                    f"{where}: `dtypes` must have one type for each of the {len(self._hdus)} "
                    f"outputs, got {len(self._dtypes)}"
                )
        self.outputs = [(None, False)] * len(self._hdus)
        super().__init__(max_batch_size, name, device, **options)

    def _list(self) -> Samples:
        return FitsSamples(self._find_files(), self._hdus, self._dtypes, self._remote)
