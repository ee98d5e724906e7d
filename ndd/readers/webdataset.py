"""`readers.Webdataset`: tar archives enter, one output per set of extensions leaves."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..fusion.graph.shapes import Array, Shapes
from ..fusion.graph.storage import Storage
from ..kernels.ir import dtypes as dt
from ..kernels.ir.dtypes import DType
from .epoch import Bad, Sample, Samples
from .reader import Reader
from .record_samples import Column, ColumnTable, RecordSamples, listed, paths_of
from .stores import tar
from .stores.byte_files import open_bytes
from .stores.columns import Columns, Packed
from .stores.record_index import RecordIndex

_MISSING = ("empty", "skip", "error")
_TOGETHER = 1 << 14  # components that are gathered into samples at a time
_NUMERIC = (
    dt.uint8, dt.uint16, dt.uint32, dt.uint64, dt.int8, dt.int16, dt.int32, dt.int64,
    dt.float16, dt.float32, dt.float64,
)  # fmt: skip


class TarSamples(RecordSamples):
    """Samples of tar archives: a record has one part per output.

    Names are looked up when they are asked for, because keeping them would take more than the
    index: in the lines of the `indexes`, or in the archives that have none (an empty path).
    """

    def __init__(
        self, index: RecordIndex, indexes: Sequence[str], lines: Packed, dtypes: Sequence[DType]
    ) -> None:
        super().__init__("readers.Webdataset", index)
        self._indexes, self._lines, self._dtypes = indexes, lines, dtypes

    def name(self, index: int) -> str:
        return next((n for k in range(len(self._dtypes)) if (n := self.output_name(index, k))), "")

    def output_name(self, index: int, output: int) -> str:
        """The archive, the offset and the name of a component; empty if it is missing."""
        number, offset, _ = self.index.place(index, output)
        if offset < 0:
            return ""
        files = self.index.files
        try:
            path = self._indexes[number] if self._indexes else ""
            if not path:
                name = self._look_up(index, number, offset)
            else:
                line = int(self._lines[index])
                name = "" if line < 0 else tar.name_in_index(path, line, offset, files.remote)
        except (OSError, ValueError):  # the file has changed, or its server does not answer
            name = ""
        return f"{files.paths[number]}:{offset}:{name}"

    def _look_up(self, index: int, number: int, offset: int) -> str:
        """The name of the member at an offset of an archive."""
        files = self.index.files
        start = 0
        if index > 0 and self.index.file(index - 1) == number:  # go on behind the sample before
            places = [self.index.place(index - 1, k) for k in range(len(self._dtypes))]
            end = max(at + size for _, at, size in places)
            start = max(0, -(-end // tar.BLOCK_BYTES) * tar.BLOCK_BYTES)
        found = tar.members(files.paths[number], files.remote, start)
        return next((m.name for m in found if m.offset >= offset), "")

    def read(self, index: int) -> Sample:
        (found,) = self.read_many([index])
        if isinstance(found, Bad):
            raise found.cause
        return found

    def read_many(self, indices: Sequence[int]) -> Sequence[Sample | Bad]:
        width = len(self._dtypes)
        numbers, offsets, lengths = self.index.places(indices, width)
        contents = self.index.files.read_parts(numbers, np.maximum(offsets, 0), lengths)
        stored = contents.storage()
        if stored is not None:
            storage, sizes = stored
            addresses = np.ascontiguousarray(storage.addresses.reshape(-1, width).T)
            columns = [
                self._column(
                    d, Storage(addresses[k], storage.owner).share_flags(storage), sizes[k::width]
                )
                for k, d in enumerate(self._dtypes)
            ]
            return ColumnTable(len(indices), columns)
        return [
            self._sample(i, [contents[width * s + k] for k in range(width)])
            for s, i in enumerate(indices)
        ]

    def _column(self, dtype: DType, storage: Storage, sizes: Array) -> Column:
        return Column(storage, Shapes(sizes[:, None] // dtype.bytes), dtype)

    def _sample(self, index: int, parts: Sequence[Array | Exception]) -> Sample | Bad:
        for part in parts:
            if isinstance(part, Exception):
                return Bad(index, part)
        return tuple(p.view(d.np) for p, d in zip(parts, self._dtypes, strict=True))  # type: ignore[union-attr]

    def empty(self) -> Sample:
        return tuple(np.zeros(0, d.np) for d in self._dtypes)


class Webdataset(Reader):
    """Reads tar archives in the format of the webdataset package.

    >>> import ndd, io, pathlib, tarfile, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "shard-0.tar"
    >>> with tarfile.open(path, "w") as archive:
    ...     for name, data in (("0.jpg", b"picture"), ("0.cls", b"7"), ("1.jpg", b"other")):
    ...         member = tarfile.TarInfo(name)
    ...         member.size = len(data)
    ...         archive.addfile(member, io.BytesIO(data))
    >>> reader = ndd.readers.Webdataset(paths=path, ext=["jpg", "cls"])
    >>> for pictures, classes in reader.next_epoch(batch_size=2):
    ...     print(pictures.shape, classes.shape)
    [(7,), (5,)] [(1,), (0,)]

    Members of an archive whose names are equal up to the first dot are components of one sample.
    Names that begin with a dot, folders, links and devices are left out.

    Parameters
    ----------
    paths : path or list of path
        The archives.
    ext : str or list of str
        For each output, the extensions of its component, separated by semicolons: ``"jpg;png"``.
        If several components of a sample fit, the first one in the archive is used.
    index_paths : path or list of path, optional
        An index for each archive, as ``python -m ndd index tar FILES…`` (or wds2idx) writes them.
        Without them, the headers of all members are read once, as for indexes of version 1.0.
    missing_component_behavior : "empty" | "skip" | "error"
        What to do with a sample that lacks a component: give an empty tensor, leave the sample
        out, or raise an error.
    case_sensitive_extensions : bool
        Whether extensions are case-sensitive.
    dtypes : DType or list of DType, optional
        The element type of each output; uint8 if omitted. The sizes of the components must be
        multiples of its size.
    shuffle_after_epoch : bool
        Shuffle the order of the archives in each epoch; each is read in its own order. It can be
        combined with `random_shuffle`, which then shuffles the samples of the shard, too.
    dont_use_mmap : bool
        Copy large components, too; otherwise they stay in the archive, which is mapped into memory.
    read_ahead, skip_cached_images, tensor_init_bytes, num_inputs
        Accepted for compatibility; they have no effect.
    **options
        Arguments of all readers, see `ndd.readers.Reader`.
    """

    _shuffles_files = True

    def __init__(
        self,
        max_batch_size: int | None = None,
        name: str | None = None,
        device: Any = "cpu",
        num_inputs: int | None = None,
        *,
        paths: Any,
        ext: str | Sequence[str],
        index_paths: Any = None,
        missing_component_behavior: str | None = "",
        case_sensitive_extensions: bool | None = True,
        dtypes: Any = None,
        read_ahead: bool | None = False,
        dont_use_mmap: bool | None = False,
        skip_cached_images: bool | None = False,
        tensor_init_bytes: int | None = 1048576,
        **options: Any,
    ) -> None:
        where = "readers.Webdataset"
        self._paths = paths_of(where, "paths", paths)
        self._indexes = paths_of(where, "index_paths", () if index_paths is None else index_paths)
        if not self._paths:
            raise ValueError(f"{where}: `paths` is empty")
        if self._indexes and len(self._indexes) != len(self._paths):
            raise ValueError(
                f"{where}: `index_paths` must have one index for each of the {len(self._paths)} "
                f"archives, got {len(self._indexes)}"
            )
        self._missing = (missing_component_behavior or "empty").lower()
        if self._missing not in _MISSING:
            raise ValueError(
                f"{where}: `missing_component_behavior` must be one of {', '.join(_MISSING)}, got "
                f"{missing_component_behavior!r}"
            )
        self._fold = not (case_sensitive_extensions is None or case_sensitive_extensions)
        self._ext = self._sets(where, [ext] if isinstance(ext, str) else list(ext))
        self._dtypes = _dtypes(where, dtypes, len(self._ext))
        self.outputs = [(d, False) for d in self._dtypes]
        self._maps = not dont_use_mmap
        super().__init__(max_batch_size, name, device, **options)

    def _sets(self, where: str, given: list[str]) -> list[set[str]]:
        if not given:
            raise ValueError(f"{where}: `ext` is empty; it has the extensions of each output")
        return [{self._cased(e) for e in text.split(";") if e} for text in given]

    def _cased(self, ext: str) -> str:
        return ext.lower() if self._fold else ext

    def _list(self) -> Samples:
        lines = Columns(1)
        indexes = listed(self._where, self._usable_indexes)
        index = listed(self._where, lambda: self._index(indexes, lines))
        return TarSamples(index, indexes, Packed(lines.finish()[0]), self._dtypes)

    def _usable_indexes(self) -> list[str]:
        """The index of each archive; an empty path for one that says too little."""
        found = ["" if tar.is_first_version(p, self._remote) else p for p in self._indexes]
        if "" in found:
            warnings.warn(
                f"{self._where}: indexes of version v1.0, such as "
                f"{self._indexes[found.index('')]!r}, are not used: the headers of the archives "
                f"are read instead; `python -m ndd index tar FILES…` makes new ones",
                stacklevel=2,
            )
        return found

    def _index(self, indexes: Sequence[str], lines: Columns) -> RecordIndex:
        exts = sorted({ext for wanted in self._ext for ext in wanted})
        wanted = tar.Wanted(exts, self._fold)
        # Which extensions, by number, belong to each output; the last entry is for -1.
        fits = np.array([[e in own for e in exts] + [False] for own in self._ext], bool)
        index = RecordIndex(self._paths, len(self._ext), self._remote, self._maps)
        for k, path in enumerate(self._paths):
            if indexes and indexes[k]:
                parts = tar.read_index(indexes[k], wanted, self._remote)
            else:
                parts = tar.scan(path, wanted, self._remote)
            size = open_bytes(path, self._remote).size
            index.add(_Gathering(self, path, size, fits, lines).filled(parts))
        if len(index.finish()) == 0:
            raise ValueError(f"no samples found in {self._paths}")
        return index


class _Gathering:
    """Gathers the components of an archive into samples: a row of offsets and sizes for each."""

    def __init__(
        self, reader: Webdataset, path: str, size: int, fits: Array, lines: Columns
    ) -> None:
        self._where, self._path, self._size = reader._where, path, size
        self._fits, self._lines = fits, lines
        self._missing, self._dtypes, self._ext = reader._missing, reader._dtypes, reader._ext
        self._rows = Columns(2 * len(fits))
        self._has_index = bool(reader._indexes)
        self._count = 0  # samples so far
        self._is_twice = False

    def filled(self, parts: Iterable[tar.Components]) -> Array:
        """Offset and length of each output of each sample; -1 and 0 for a missing one."""
        waiting: list[tar.Components] = []
        count, enough = 0, _TOGETHER
        for part in parts:
            waiting.append(part)
            count += len(part.ext)
            if count >= enough:  # the last sample may go on in the next part
                whole = _joined(waiting)
                last = int(np.flatnonzero(whole.is_new)[-1])
                self._add(_cut(whole, slice(0, last)))
                waiting = [_cut(whole, slice(last, None))]
                count = len(whole.ext) - last
                enough = max(_TOGETHER, 2 * count)
        if waiting:
            self._add(_joined(waiting))
        if self._is_twice:
            warnings.warn(
                f"{self._where}: samples of {self._path!r} have several components for one "
                f"output; the first is used",
                stacklevel=2,
            )
        return self._rows.table()

    def _add(self, found: tar.Components) -> None:
        """Append whole samples."""
        sample = np.cumsum(found.is_new) - 1
        count = int(sample[-1]) + 1 if len(sample) else 0
        rows = np.tile(np.array([-1, 0], np.int64), (count, len(self._fits)))
        for k, fits in enumerate(self._fits):
            chosen = np.flatnonzero(fits[found.ext])
            own = sample[chosen]
            is_first = np.diff(own, prepend=-1) > 0
            self._is_twice |= not is_first.all()
            chosen, own = chosen[is_first], own[is_first]
            self._check(k, found, chosen)
            rows[own, 2 * k], rows[own, 2 * k + 1] = found.offsets[chosen], found.sizes[chosen]
        self._keep(rows, found)
        self._count += count

    def _check(self, output: int, found: tar.Components, chosen: Array) -> None:
        """Components lie in the archive, and hold whole elements."""
        offsets, sizes, dtype = found.offsets[chosen], found.sizes[chosen], self._dtypes[output]
        wrong = np.flatnonzero((sizes > self._size - offsets) | (sizes % dtype.bytes != 0))
        if not len(wrong):
            return
        at, size = int(offsets[wrong[0]]), int(sizes[wrong[0]])
        what = f"{self._path!r}: component {';'.join(sorted(self._ext[output]))!r} at {at}"
        if at + size > self._size:
            raise ValueError(
                f"{what} has {size} bytes by the index, but the archive has {self._size}"
            )
        raise ValueError(
            f"{what} has {size} bytes, no multiple of the size of {dtype}, the type of output "
            f"{output}"
        )

    def _keep(self, rows: Array, found: tar.Components) -> None:
        """Append the samples that have all components, or all samples."""
        lacking = np.flatnonzero((rows[:, ::2] < 0).any(1))
        if self._missing == "error" and len(lacking):
            row = rows[lacking[0]]
            ext = ";".join(sorted(self._ext[int(np.flatnonzero(row[::2] < 0)[0])]))
            number, at = self._count + int(lacking[0]), int(found.offsets[found.is_new][lacking[0]])
            raise ValueError(f"{self._path!r}: sample {number} (at {at}) has no component {ext!r}")
        kept = np.arange(len(rows))
        if self._missing == "skip":
            kept = np.delete(kept, lacking)
        self._rows.chunk(rows[kept])
        if found.lines is not None:
            self._lines.chunk(found.lines[found.is_new][kept])
        elif self._has_index:  # an old one, without names
            self._lines.chunk(np.full(len(kept), -1))


def _joined(parts: Sequence[tar.Components]) -> tar.Components:
    if len(parts) == 1:
        return parts[0]
    ones = [p.lines for p in parts if p.lines is not None]
    return tar.Components(
        np.concatenate([p.is_new for p in parts]), np.concatenate([p.ext for p in parts]),
        np.concatenate([p.offsets for p in parts]), np.concatenate([p.sizes for p in parts]),
        np.concatenate(ones) if ones else None,
    )  # fmt: skip


def _cut(part: tar.Components, where: slice) -> tar.Components:
    lines = None if part.lines is None else part.lines[where]
    return tar.Components(
        part.is_new[where], part.ext[where], part.offsets[where], part.sizes[where], lines
    )


def _dtypes(where: str, given: Any, count: int) -> list[DType]:
    if given is None:
        return [dt.uint8] * count
    given = list(given) if isinstance(given, (list, tuple)) else [given]
    if len(given) != count:
        raise ValueError(
            f"{where}: `dtypes` must have one type for each of the {count} outputs, got "
            f"{len(given)}"
        )
    found = [dt.dtype(d) for d in given]
    for dtype in found:
        if dtype not in _NUMERIC:
            names = ", ".join(map(str, _NUMERIC))
            raise ValueError(f"{where}: `dtypes` must be some of {names}, got {dtype}")
    return found
