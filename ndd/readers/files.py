"""`readers.File`: paths enter, batches of file contents and labels leave."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core import convert
from ..fusion.graph.node import Node, source
from ..fusion.graph.shapes import Array, Shapes
from ..fusion.graph.storage import Storage
from ..kernels.ir import dtypes as dt
from . import listing
from .contents import Contents
from .epoch import Bad, Sample, Samples, Table
from .reader import Reader
from .stores.byte_files import is_url, read_anywhere
from .stores.remote import RemoteOptions

FILE_FILTERS = (
    "*.jpg", "*.jpeg", "*.png", "*.bmp", "*.tif", "*.tiff", "*.pnm", "*.ppm", "*.pgm", "*.pbm",
    "*.jp2", "*.webp", "*.flac", "*.ogg", "*.wav",
)  # fmt: skip


class FileSamples:
    """Files with labels, as samples of a reader."""

    def __init__(self, files: listing.Listing, read_ahead: bool, remote: RemoteOptions) -> None:
        self._files, self._read_ahead, self._remote = files, read_ahead, remote
        self.name, self.fingerprint = files.name, files.fingerprint

    def __len__(self) -> int:
        return len(self._files)

    def read(self, index: int) -> Sample:
        (found,) = self._contents([index])
        if isinstance(found, Exception):
            raise found
        return found, self._label(index)

    def _contents(self, indices: Sequence[int]) -> Contents:
        paths = [self._files.path(i) for i in indices]
        return read_anywhere(paths, self._read_ahead, self._remote)

    def read_many(self, indices: Sequence[int]) -> Sequence[Sample | Bad]:
        """Read all samples of a batch at once, which takes half of the time."""
        contents = self._contents(indices)
        found = contents.storage()
        if found is not None:
            return FileTable(contents, *found, self._files.labels[indices])
        return [
            Bad(i, content) if isinstance(content, Exception) else (content, self._label(i))
            for i, content in zip(indices, contents, strict=True)
        ]

    def fill(self, index: int, data: Any = None) -> Sample:
        raw = b"" if data is None else data
        if isinstance(raw, (bytes, bytearray, memoryview)):
            raw = np.frombuffer(bytes(raw), np.uint8)
        array = np.array(raw)
        if array.dtype != np.uint8 or array.ndim != 1:
            raise TypeError(
                f"readers.File: `on_error` must return bytes, a 1-D array of uint8 or None, "
                f"got {array.ndim}-D data of {array.dtype}"
            )
        return array, self._label(index)

    def _label(self, index: int) -> Any:
        return self._files.labels[index : index + 1]


class FileTable(Table):
    """A batch of files that could all be read, with their labels."""

    def __init__(self, contents: Contents, storage: Storage, sizes: Array, labels: Array) -> None:
        self._contents, self._storage, self._sizes, self._labels = contents, storage, sizes, labels

    def __len__(self) -> int:
        return len(self._contents)

    def __getitem__(self, k: Any) -> Any:
        return self._contents[k], self._labels[k : k + 1]

    def nodes(self) -> list[Node]:
        files = source(self._storage, Shapes(self._sizes[:, None]), dt.uint8, batch=True)
        return [files, convert.batch_node(self._labels[:, None], dt.int32)]


class File(Reader):
    """Reads files; yields their bytes and an integer label. Paths may be URLs (``s3://…``).

    >>> import ndd, pathlib, tempfile
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("cat/1.jpg", "cat/2.jpg", "dog/1.jpg"):
    ...     (root / name).parent.mkdir(exist_ok=True)
    ...     _ = (root / name).write_bytes(b"a picture")
    >>> reader = ndd.readers.File(file_root=root)
    >>> for files, labels in reader.next_epoch(batch_size=3):
    ...     print(files.shape, labels.torch().tolist())
    [(9,), (9,), (9,)] [[0], [0], [1]]

    Parameters
    ----------
    file_root : path, optional
        A folder of folders of files. Folders and the files in them are sorted; the index of the
        folder is the label. With `files` or `file_list`, the folder that names are relative to.
    files : list of path, optional
        The files.
    labels : list of int, optional
        Labels of `files`; 0, 1, 2, … if omitted.
    file_list : path, optional
        A text file; each line has a file name and a label. Without `file_root`, names are relative
        to the folder of this file.
    file_filters, dir_filters : list of str, optional
        Patterns for files and folders below `file_root`. The default is the usual endings of image
        and audio files, and all folders. They do not apply to `files` and `file_list`.
    case_sensitive_filter : bool
        Whether patterns are case-sensitive.
    read_ahead : bool
        Ask the operating system to read files ahead.
    dont_use_mmap, skip_cached_images, tensor_init_bytes, num_inputs
        Accepted for compatibility; they have no effect.
    **options
        Arguments of all readers, see `ndd.readers.Reader`.
    """

    outputs = ((dt.uint8, False), (dt.int32, True))

    def __init__(
        self,
        max_batch_size: int | None = None,
        name: str | None = None,
        device: Any = "cpu",
        num_inputs: int | None = None,
        *,
        file_root: Any = None,
        files: Any = None,
        labels: Sequence[int] | None = None,
        file_list: Any = None,
        file_filters: Sequence[str] | None = FILE_FILTERS,
        dir_filters: Sequence[str] | None = None,
        case_sensitive_filter: bool | None = False,
        read_ahead: bool | None = False,
        dont_use_mmap: bool | None = False,
        skip_cached_images: bool | None = False,
        tensor_init_bytes: int | None = 1048576,
        **options: Any,
    ) -> None:
        if files is not None and file_list is not None:
            raise ValueError("readers.File: `files` and `file_list` exclude each other")
        if labels is not None and files is None:
            raise ValueError("readers.File: `labels` belong to `files`, which are not given")
        if file_root is None and files is None and file_list is None:
            raise ValueError("readers.File: `file_root`, `files` or `file_list` is needed")
        self._root = None if file_root is None else os.fsencode(file_root)
        self._files = [files] if isinstance(files, (str, bytes, os.PathLike)) else files
        self._labels, self._file_list = labels, file_list
        self._file_filters = _patterns(file_filters, FILE_FILTERS)
        self._dir_filters = _patterns(dir_filters, ())
        self._case_sensitive = bool(case_sensitive_filter)
        self._read_ahead = bool(read_ahead)
        super().__init__(max_batch_size, name, device, **options)

    def _list(self) -> Samples:
        try:
            found = self._listing()
        except (OSError, ValueError, TypeError) as error:
            raise _explained(error) from error
        if len(found) == 0:
            what = f"{os.fsdecode(self._root)!r}" if self._root else "an empty list"
            patterns = ", ".join(self._file_filters)
            if self._files is None and self._file_list is None:
                what = f"the folders of {what} (patterns: {patterns})"
            raise ValueError(f"readers.File: no files found in {what}")
        # Drop the user's list, which may be large.
        self._files = self._labels = None
        return FileSamples(found, self._read_ahead, self._remote)

    def _listing(self) -> listing.Listing:
        if self._files is not None:
            return listing.from_files(self._root or b"", self._files, self._labels)
        if self._file_list is not None:
            return listing.from_file_list(self._root, os.fsdecode(self._file_list), self._remote)
        assert self._root is not None
        fits_folder = None
        if self._dir_filters:
            fits_folder = listing.matcher(self._dir_filters, self._case_sensitive)
        fits_file = listing.matcher(self._file_filters, self._case_sensitive)
        root = os.fsdecode(self._root)
        if is_url(root):
            return listing.from_remote_tree(root, self._remote, fits_file, fits_folder, False)
        return listing.from_tree(self._root, fits_file, fits_folder)


def _patterns(given: Sequence[str] | str | None, default: Sequence[str]) -> Sequence[str]:
    if given is None:
        return default
    return [given] if isinstance(given, str) else list(given)


def _explained(error: Exception) -> Exception:
    if isinstance(error, OSError) and error.filename is not None:
        name = os.fsdecode(error.filename)
        new = type(error)(f"readers.File: cannot list {name!r}: {error.strerror}")
        new.errno = error.errno
        return new
    # Subclasses of ValueError, such as those for characters, may want other arguments.
    kind = ValueError if isinstance(error, ValueError) else type(error)
    return kind(f"readers.File: {error}")
