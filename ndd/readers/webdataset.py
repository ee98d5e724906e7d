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
from .stores.record_index import RecordIndex

_MISSING = ("empty", "skip", "error")
_NUMERIC = (
    dt.uint8, dt.uint16, dt.uint32, dt.uint64, dt.int8, dt.int16, dt.int32, dt.int64,
    dt.float16, dt.float32, dt.float64,
)  # fmt: skip


class TarSamples(RecordSamples):
    """Samples of tar archives: a record has one part per output."""

    def __init__(self, index: RecordIndex, names: Names, dtypes: Sequence[DType]) -> None:
        super().__init__("readers.Webdataset", index)
        self._names, self._dtypes = names, dtypes

    def name(self, index: int) -> str:
        return next((n for k in range(len(self._dtypes)) if (n := self.output_name(index, k))), "")

    def output_name(self, index: int, output: int) -> str:
        """The archive, the offset and the name of a component; empty if it is missing."""
        number, offset, _ = self.index.place(index, output)
        if offset < 0:
            return ""
        name = self._names[index * len(self._dtypes) + output].decode("utf-8", "surrogateescape")
        return f"{self.index.files.paths[number]}:{offset}:{name}"

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
        names = Names()
        index = listed(self._where, lambda: self._index(names))
        names.finish()
        return TarSamples(index, names, self._dtypes)

    def _index(self, names: Names) -> RecordIndex:
        index = RecordIndex(self._paths, len(self._ext), self._remote)
        for k, path in enumerate(self._paths):
            size = open_bytes(path, self._remote).size
            found = self._samples_of(k)
            index.add(self._rows(path, size, found, names))
        if len(index.finish()) == 0:
            raise ValueError(f"no samples found in {self._paths}")
        return index

    def _samples_of(self, k: int) -> Iterable[list[tar.Component]]:
        if self._indexes:
            return tar.read_index(self._indexes[k], self._remote)
        return tar.scan(self._paths[k], self._remote)

    def _rows(
        self, path: str, size: int, samples: Iterable[list[tar.Component]], names: Names
    ) -> Array:
        """Offset and length of each output of each sample; -1 and 0 for a missing one."""
        rows: list[list[int]] = []
        texts: list[bytes] = []
        twice = False
        for number, sample in enumerate(samples):
            row, name = [-1, 0] * len(self._ext), [b""] * len(self._ext)
            for component in sample:
                ext = self._cased(component.ext)
                for k, wanted in enumerate(self._ext):
                    if ext not in wanted:
                        continue
                    if row[2 * k] >= 0:
                        twice = True
                        continue
                    self._check(path, size, k, component)
                    row[2 * k : 2 * k + 2] = component.offset, component.size
                    name[k] = component.name.encode("utf-8", "surrogateescape")
            if -1 in row[::2] and self._missing != "empty":
                if self._missing == "error":
                    raise self._underfull(path, number, sample, row)
                continue
            rows.append(row)
            texts += name
        if twice:
            warnings.warn(
                f"{self._where}: samples of {path!r} have several components for one output; the "
                f"first is used",
                stacklevel=2,
            )
        names.add(texts)
        return np.array(rows, np.int64).reshape(-1, 2 * len(self._ext))

    def _check(self, path: str, size: int, output: int, component: tar.Component) -> None:
        what = f"{path!r}: component {component.name or component.ext!r} at {component.offset}"
        if component.offset + component.size > size:
            raise ValueError(
                f"{what} has {component.size} bytes by the index, but the archive has {size}"
            )
        if component.size % self._dtypes[output].bytes:
            raise ValueError(
                f"{what} has {component.size} bytes, no multiple of the size of "
                f"{self._dtypes[output]}, the type of output {output}"
            )

    def _underfull(
        self, path: str, number: int, sample: list[tar.Component], row: list[int]
    ) -> ValueError:
        lacking = ";".join(sorted(self._ext[row[::2].index(-1)]))
        return ValueError(
            f"{path!r}: sample {number} (at {sample[0].offset}) has no component {lacking!r}; it "
            f"has {', '.join(c.ext for c in sample)}"
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
