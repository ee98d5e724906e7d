"""Values of LMDB databases, as samples of readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..fusion.graph.shapes import Array
from .epoch import Sample, Samples
from .reader import Reader
from .record_samples import RecordSamples, listed, paths_of
from .stores import lmdb_file
from .stores.record_index import RecordIndex
from .stores.remote import RemoteOptions


class LmdbSamples(RecordSamples):
    """Records of databases; part 0 is the value, part 1 the key. Subclasses parse values."""

    def __init__(self, where: str, index: RecordIndex, folders: Sequence[str]) -> None:
        super().__init__(where, index)
        self._folders = folders

    def name(self, index: int) -> str:
        number, offset, length = self.index.place(index, 1)
        key = self.index.files.read(number, offset, length).tobytes()
        return f"{self._folders[number]} at key {key.decode('utf-8', 'backslashreplace')}"

    def parse(self, index: int, content: Array) -> Sample:
        try:
            return self.parse_value(memoryview(content.data), content)
        except ValueError as error:
            _, offset, _ = self.index.place(index)
            raise ValueError(f"{self.name(index)} (offset {offset}): {error}") from None

    def parse_value(self, data: memoryview, content: Array) -> Sample:
        """The outputs of one value, given as bytes and as the same array."""
        raise NotImplementedError


class LmdbReader(Reader):
    """Base class of readers of LMDB databases."""

    def _open(self, path: Any) -> None:
        self._folders = paths_of(self._name_of_class(), "path", path)

    @classmethod
    def _name_of_class(cls) -> str:
        return f"readers.{cls.__name__}"

    def _list(self) -> Samples:
        return self._samples(
            listed(self._where, lambda: database_index(self._folders, self._remote))
        )

    def _samples(self, index: RecordIndex) -> LmdbSamples:
        raise NotImplementedError


def database_index(folders: Sequence[str], remote: RemoteOptions) -> RecordIndex:
    """The records of all databases."""
    paths = [lmdb_file.data_path(folder) for folder in folders]
    index = RecordIndex(paths, 2, remote)
    for path in paths:
        index.add(lmdb_file.scan(path, remote))
    if len(index.finish()) == 0:
        raise ValueError(f"no records found in {list(folders)}")
    return index
