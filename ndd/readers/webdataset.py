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
from .names import Names
from .reader import Reader
from .record_samples import Column, ColumnTable, RecordSamples, listed, paths_of
from .stores import tar
from .stores.byte_files import open_bytes
from .stores.columns import Columns
from .stores.record_index import RecordIndex

_MISSING = ("empty", "skip", "error")
_NUMERIC = (
    dt.uint8, dt.uint16, dt.uint32, dt.uint64, dt.int8, dt.int16, dt.int32, dt.int64,
    dt.float16, dt.float32, dt.float64,
)  # fmt: skip


class TarSamples(RecordSamples):
    """Samples of tar archives: a record has one part per output.

    `names` are those of an index; without one, names are looked up in the archives.
    """

    def __init__(self, index: RecordIndex, names: Names | None, dtypes: Sequence[DType]) -> None:
        super().__init__("readers.Webdataset", index)
        self._names, self._dtypes = names, dtypes

    def name(self, index: int) -> str:
        return next((n for k in range(len(self._dtypes)) if (n := self.output_name(index, k))), "")

    def output_name(self, index: int, output: int) -> str:
        """The archive, the offset and the name of a component; empty if it is missing."""
        number, offset, _ = self.index.place(index, output)
        if offset < 0:
            return ""
        path = self.index.files.paths[number]
        if self._names is None:
            return f"{path}:{offset}:{self._look_up(index, number, offset)}"
        name = self._names[index * len(self._dtypes) + output].decode("utf-8", "surrogateescape")
        return f"{path}:{offset}:{name}"

    def _look_up(self, index: int, number: int, offset: int) -> str:
        """The name of the member at an offset. Keeping all names would take more than the index."""
        files = self.index.files
        start = 0
        if index > 0 and self.index.file(index - 1) == number:  # go on behind the sample before
            places = [self.index.place(index - 1, k) for k in range(len(self._dtypes))]
            end = max(at + size for _, at, size in places)
            start = max(0, -(-end // tar.BLOCK_BYTES) * tar.BLOCK_BYTES)
        try:
            found = tar.members(files.paths[number], files.remote, start)
            return next((m.name for m in found if m.offset >= offset), "")
        except (OSError, ValueError):  # it has changed, or its server does not answer
            return ""

    def read(self, index: int) -> Sample:
        (found,) = self.read_many([index])
        if isinstance(found, Bad):
            raise found.cause
        return found

    def read_many(self, indices: Sequence[int]) -> Sequence[Sample | Bad]:
        contents = []
        for k in range(len(self._dtypes)):
            files, offsets, lengths = self.index.places(indices, k)
            contents.append(
                self.index.files.read_parts(files, [max(0, o) for o in offsets], lengths)
            )
        stored = [c.storage() for c in contents]
        if all(s is not None for s in stored):
            columns = [self._column(d, *s) for d, s in zip(self._dtypes, stored, strict=True) if s]
            return ColumnTable(len(indices), columns)
        return [self._sample(i, [c[k] for c in contents]) for k, i in enumerate(indices)]

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
        Without them, the headers of all members are read once.
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
    read_ahead, dont_use_mmap, skip_cached_images, tensor_init_bytes, num_inputs
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
        super().__init__(max_batch_size, name, device, **options)

    def _sets(self, where: str, given: list[str]) -> list[set[str]]:
        if not given:
            raise ValueError(f"{where}: `ext` is empty; it has the extensions of each output")
        return [{self._cased(e) for e in text.split(";") if e} for text in given]

    def _cased(self, ext: str) -> str:
        return ext.lower() if self._fold else ext

    def _list(self) -> Samples:
        names = Names() if self._indexes else None
        index = listed(self._where, lambda: self._index(names))
        if names is not None:
            names.finish()
        return TarSamples(index, names, self._dtypes)

    def _index(self, names: Names | None) -> RecordIndex:
        index = RecordIndex(self._paths, len(self._ext), self._remote)
        for k, path in enumerate(self._paths):
            if self._indexes:
                components = tar.read_index(self._indexes[k], self._remote)
            else:
                components = tar.scan(path, self._remote)
            size = open_bytes(path, self._remote).size
            index.add(self._rows(path, size, components, names))
        if len(index.finish()) == 0:
            raise ValueError(f"no samples found in {self._paths}")
        return index

    def _rows(
        self, path: str, size: int, components: Iterable[tar.Component], names: Names | None
    ) -> Array:
        """Offset and length of each output of each sample; -1 and 0 for a missing one."""
        rows, texts = Columns(2 * len(self._ext)), [] if names is not None else None
        lacking = [-1, 0] * len(self._ext)
        outputs = self._outputs_by_ext()
        number, twice = -1, False
        last: str | int | None = None
        row: list[int] = []
        exts: list[str] = []
        name: list[str] = []
        for key, ext, offset, length, text in components:
            if key != last:
                if number >= 0:
                    self._add(path, number, row, exts, name, rows, texts)
                last, number, row, exts = key, number + 1, lacking.copy(), []
                name = [""] * len(self._ext)
            exts.append(ext)
            for k in outputs.get(self._cased(ext), ()):
                if row[2 * k] >= 0:
                    twice = True
                    continue
                if offset + length > size or length % self._dtypes[k].bytes:
                    raise self._misfit(path, size, k, text or ext, offset, length)
                row[2 * k : 2 * k + 2] = offset, length
                name[k] = text
        if number >= 0:
            self._add(path, number, row, exts, name, rows, texts)
        if twice:
            warnings.warn(
                f"{self._where}: samples of {path!r} have several components for one output; the "
                f"first is used",
                stacklevel=2,
            )
        if names is not None and texts is not None:
            names.add(texts)
        return rows.table()

    def _outputs_by_ext(self) -> dict[str, list[int]]:
        """The outputs that want each extension."""
        found: dict[str, list[int]] = {}
        for k, wanted in enumerate(self._ext):
            for ext in wanted:
                found.setdefault(ext, []).append(k)
        return found

    def _add(
        self, path: str, number: int, row: list[int], exts: list[str], names: list[str],
        rows: Columns, texts: list[bytes] | None,
    ) -> None:  # fmt: skip
        """Append a sample, unless components are missing."""
        if self._missing != "empty" and -1 in row[::2]:
            if self._missing == "error":
                raise self._underfull(path, number, row, exts)
            return
        rows.row(*row)
        if texts is not None:
            texts += [n.encode("utf-8", "surrogateescape") for n in names]

    def _misfit(
        self, path: str, size: int, output: int, name: str, offset: int, length: int
    ) -> ValueError:
        what = f"{path!r}: component {name!r} at {offset} has {length} bytes"
        if offset + length > size:
            return ValueError(f"{what} by the index, but the archive has {size}")
        dtype = self._dtypes[output]
        return ValueError(f"{what}, no multiple of the size of {dtype}, the type of output {output}")

    def _underfull(self, path: str, number: int, row: list[int], exts: list[str]) -> ValueError:
        lacking = ";".join(sorted(self._ext[row[::2].index(-1)]))
        at = max(row[::2])
        place = f" (at {at})" if at >= 0 else ""
        return ValueError(
            f"{path!r}: sample {number}{place} has no component {lacking!r}; it has "
            f"{', '.join(exts)}"
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
