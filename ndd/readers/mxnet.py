"""`readers.MXNet`: RecordIO files enter, batches of pictures and labels leave."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..fusion.graph.shapes import Array
from ..kernels.ir import dtypes as dt
from .epoch import Sample, Samples
from .reader import Reader
from .record_samples import RecordSamples, listed, paths_of
from .stores import recordio
from .stores.record_index import RecordIndex


class RecordIOSamples(RecordSamples):
    """Records of RecordIO files, as samples of a reader."""

    def __init__(self, index: RecordIndex) -> None:
        super().__init__("readers.MXNet", index)

    def output_name(self, index: int, output: int) -> str:
        """Only the picture has a name, as upstream."""
        return self.name(index) if output == 0 else ""

    def parse(self, index: int, content: Array) -> Sample:
        try:
            return recordio.split(recordio.payload(content))
        except ValueError as error:
            raise ValueError(f"{self.name(index)}: {error}") from None

    def empty(self) -> Sample:
        return np.zeros(0, np.uint8), np.zeros(1, np.float32)


class MXNet(Reader):
    """Reads RecordIO files of MXNet; yields the bytes of pictures and their labels.

    >>> import ndd, pathlib, struct, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "pictures.rec"
    >>> data = struct.pack("<IfQQ", 0, 3.0, 0, 0) + b"picture!"  # flag, label, two numbers
    >>> _ = path.write_bytes(struct.pack("<II", 0xCED7230A, len(data)) + data)
    >>> for pictures, labels in ndd.readers.MXNet(path=path).next_epoch(batch_size=1):
    ...     print(pictures.shape, labels.torch().tolist())
    [(8,)] [[3.0]]

    Parameters
    ----------
    path : path or list of path
        The files.
    index_path : path or list of path, optional
        The index: of one file, of all files together (as upstream), or one for each file. Lines
        have a key and an offset; records are read in the order of their offsets. Without it, the
        heads of all records are read once. ``python -m ndd index recordio FILES…`` writes indexes.
    shuffle_after_epoch : bool
        Shuffle the order of the files in each epoch; each is read in its own order. It can be
        combined with `random_shuffle`, which then shuffles the samples of the shard, too.
    read_ahead, dont_use_mmap, skip_cached_images, tensor_init_bytes, num_inputs
        Accepted for compatibility; they have no effect.
    **options
        Arguments of all readers, see `ndd.readers.Reader`.
    """

    outputs = ((dt.uint8, False), (dt.float32, True))
    _shuffles_files = True

    def __init__(
        self,
        max_batch_size: int | None = None,
        name: str | None = None,
        device: Any = "cpu",
        num_inputs: int | None = None,
        *,
        path: Any,
        index_path: Any = None,
        read_ahead: bool | None = False,
        dont_use_mmap: bool | None = False,
        skip_cached_images: bool | None = False,
        tensor_init_bytes: int | None = 1048576,
        **options: Any,
    ) -> None:
        where = "readers.MXNet"
        self._paths = paths_of(where, "path", path)
        self._indexes = paths_of(where, "index_path", () if index_path is None else index_path)
        if len(self._indexes) not in (0, 1, len(self._paths)):
            raise ValueError(
                f"{where}: `index_path` must be one index, or one for each of the "
                f"{len(self._paths)} files, got {len(self._indexes)}"
            )
        super().__init__(max_batch_size, name, device, **options)

    def _list(self) -> Samples:
        return RecordIOSamples(listed(self._where, self._index))

    def _index(self) -> RecordIndex:
        index = RecordIndex(self._paths, remote=self._remote)
        if self._indexes:
            for rows in recordio.read_indexes(self._paths, self._indexes, self._remote):
                index.add(rows)
        else:
            for path in self._paths:
                index.add(recordio.scan(path, self._remote))
        if len(index.finish()) == 0:
            raise ValueError(f"no records found in {self._paths}")
        return index
