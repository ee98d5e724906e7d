"""The index of a record store: files with (offset, length) of each record, in columns."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...fusion.graph.shapes import Array
from .byte_files import ByteFiles
from .columns import Columns, Packed, trim

if TYPE_CHECKING:
    from .remote import RemoteOptions

_MANY = 100_000  # records; below, what listing leaves behind is little


class RecordIndex:
    """Where the records of several files are: at most 8 bytes for each offset and each length.

    Offsets take 8 only in files of more than 2 GB (archives: 1 TB), lengths in such records.

    Records are listed file by file, so the number of the file follows from the record's number.
    A record may have several parts, each with its own offset and length.
    """

    def __init__(
        self, paths: Sequence[str], parts: int = 1, remote: RemoteOptions | None = None,
        maps: bool = False,
    ) -> None:  # fmt: skip
        """`maps`: large records may stay in mapped files."""
        self.files = ByteFiles(paths, remote, maps)
        self._parts = parts
        self._columns = Columns(2 * parts)
        self._starts = [0]
        self.starts: Array = np.zeros(1, np.int64)
        self.mean_bytes = 0.0  # of a record

    def add(self, rows: Array | None) -> None:
        """Append a file's records: rows of offset, length (, offset, length …)."""
        if rows is not None:
            self._columns.chunk(rows)
        self._starts.append(len(self._columns))

    def finish(self) -> RecordIndex:
        """No more records will come; returns itself."""
        columns = self._columns.finish()
        self.starts = np.array(self._starts, np.int64)
        check = zlib.crc32("\n".join(self.files.paths).encode("utf-8", "surrogateescape"))
        for column in columns:
            check = zlib.crc32(column.data, check)
        self._checksum = check
        total = sum(int(c.sum()) for c in columns[1::2])
        self.mean_bytes = total / max(1, len(self))
        packed: list[Packed] = []
        while columns:
            packed.append(Packed(columns[0]))
            del columns[0]
        self._offsets, self._lengths = packed[0::2], packed[1::2]
        if len(self) >= _MANY:
            trim()
        return self

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(c.nbytes for c in (*self._offsets, *self._lengths))

    def __len__(self) -> int:
        return int(self.starts[-1])

    def file(self, record: int) -> int:
        """The number of a record's file."""
        return int(np.searchsorted(self.starts, record, "right")) - 1

    def place(self, record: int, part: int = 0) -> tuple[int, int, int]:
        """File number, offset and length of a record."""
        at = self._offsets[part][record], self._lengths[part][record]
        return self.file(record), int(at[0]), int(at[1])

    def places(self, records: Sequence[int], parts: int = 1) -> tuple[Array, Array, Array]:
        """File numbers, offsets and lengths of many records: so many parts of the first one, then
        those of the second one, and so on."""
        chosen = np.array(records, np.int64)
        files = np.searchsorted(self.starts, chosen, "right") - 1
        offsets, lengths = (
            np.stack([column[chosen] for column in columns[:parts]], 1).ravel()
            for columns in (self._offsets, self._lengths)
        )
        return np.repeat(files, parts), offsets, lengths

    def path(self, record: int) -> str:
        """The path of a record's file."""
        return self.files.paths[self.file(record)]

    def fingerprint(self) -> str:
        """A checksum of all paths and places, as text."""
        return f"{self._checksum:08x}"
