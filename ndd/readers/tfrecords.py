"""`readers.TFRecord`: TFRecord files enter, dictionaries of features leave."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np

from ..core.batch import Batch
from ..core.tensor import Tensor
from ..fusion.graph.shapes import Array, Shapes
from ..fusion.graph.storage import Held, Joined, Storage, address_of, allocate, array_at
from ..kernels.cpu.helpers import function
from ..kernels.ir import dtypes as dt
from ..tfrecord import Feature, float32, int64, string
from .epoch import Epoch, Sample, Samples
from .reader import Reader
from .record_samples import Column, ColumnTable, RecordSamples, filled, listed, paths_of
from .stores import crc32c, tfrecord_file
from .stores.record_index import RecordIndex
from .stores.tfrecord_file import FRAME_BYTES, HEAD_BYTES

_DTYPES = {int64: dt.int64, string: dt.uint8, float32: dt.float32}
_KINDS = {string: 1, float32: 2, int64: 3}  # as the native parser numbers them
_KIND_NAMES = ("nothing", "strings", "floats", "integers")


class _Wanted:
    """The wanted features, as the native parser needs them."""

    def __init__(self, features: Mapping[str, Feature]) -> None:
        self.names, self.features = list(features), list(features.values())
        texts = [name.encode() for name in self.names]
        self._text = np.frombuffer(b"".join(texts) or b"\0", np.uint8)
        self._ends = np.cumsum([len(t) for t in texts], dtype=np.int64)

    def find(self, addresses: Array, sizes: Array) -> Array:
        """Kind, count, begin and end of each feature in each record."""
        records = np.stack([addresses, sizes], 1)
        found = np.empty((len(records), len(self.names), 4), np.int64)
        job = np.array(
            [address_of(self._text), address_of(self._ends), len(self.names), address_of(records)],
            np.int64,
        )
        function("example_fields")(address_of(job), len(records), address_of(found))
        return found


class TFRecordSamples(RecordSamples):
    """Records that are Example messages, as samples of a reader."""

    def __init__(self, index: RecordIndex, wanted: _Wanted, verify: bool) -> None:
        super().__init__("readers.TFRecord", index)
        self._wanted, self._verify = wanted, verify

    def parse(self, index: int, content: Array) -> Sample:
        storage = Storage(np.array([address_of(content)], np.int64), Held([content]))
        return self.table([index], storage, np.array([len(content)], np.int64))[0]  # type: ignore[no-any-return]

    def table(self, indices: Sequence[int], storage: Storage, sizes: Array) -> ColumnTable:
        begin = storage.addresses
        self._check_frames(indices, begin, sizes)
        begin, sizes = begin + HEAD_BYTES, sizes - FRAME_BYTES
        found = self._wanted.find(begin, sizes)
        wrong = np.flatnonzero(found[:, 0, 0] < 0)
        if len(wrong):
            at = int(found[wrong[0], 0, 1]) + HEAD_BYTES
            raise self._bad(indices[wrong[0]], f"its message is invalid at byte {at}")
        columns = [
            self._column(indices, k, storage, begin, found[:, k])
            for k in range(len(self._wanted.names))
        ]
        return ColumnTable(len(indices), columns)

    def _check_frames(self, indices: Sequence[int], begin: Array, sizes: Array) -> None:
        """Check the lengths in the heads of the records, and the checksums if wanted."""
        lengths = _numbers(begin, "<u8")
        wrong = np.flatnonzero(lengths != (sizes - FRAME_BYTES).astype(np.uint64))
        if len(wrong):
            k = int(wrong[0])
            raise self._bad(
                indices[k],
                f"its head says {lengths[k]} bytes, the index {sizes[k] - FRAME_BYTES}",
            )
        if self._verify:
            for part, at, size in (("length", 0, np.full_like(sizes, 8)),
                                   ("data", HEAD_BYTES, sizes - FRAME_BYTES)):  # fmt: skip
                checks = crc32c.of_memory(begin + at, size)
                stored = _numbers(begin + at + size, "<u4")
                wrong = np.flatnonzero(checks != stored)
                if len(wrong):
                    raise self._bad(indices[wrong[0]], f"the checksum of its {part} is wrong")

    def _column(
        self, indices: Sequence[int], k: int, storage: Storage, begin: Array, rows: Array
    ) -> Column:
        """One feature of all records."""
        feature = self._wanted.features[k]
        kinds, counts = rows[:, 0], rows[:, 1]
        foreign = np.flatnonzero((kinds != 0) & (kinds != _KINDS[feature.dtype]) & (counts > 0))
        if len(foreign):
            s = foreign[0]
            raise self._of_feature(
                indices[s], k, f"holds {_KIND_NAMES[kinds[s]]}, wanted {feature!r}"
            )
        counts = np.where(kinds == _KINDS[feature.dtype], counts, 0)
        if feature.dtype == string:
            return self._strings(indices, k, storage, begin, rows, counts)
        shapes = self._shapes(indices, k, counts)
        values = allocate(shapes, _DTYPES[feature.dtype].bytes)
        if feature.shape is not None:
            self._put_defaults(feature, values, shapes, counts)
        sizes = np.where(counts == 0, 0, rows[:, 3] - rows[:, 2])
        lists = np.stack([begin + rows[:, 2], sizes, values.addresses, counts], 1)
        function("example_values")(address_of(lists), len(lists), _KINDS[feature.dtype])
        return Column(values, shapes, _DTYPES[feature.dtype])

    def _shapes(self, indices: Sequence[int], k: int, counts: Array) -> Shapes:
        feature = self._wanted.features[k]
        if feature.shape is not None:
            volume = math.prod(feature.shape)
            many = np.flatnonzero(counts > volume)
            if len(many):
                s = many[0]
                raise self._of_feature(indices[s], k, f"has {counts[s]} values, wanted {feature!r}")
            rows = np.broadcast_to(
                np.array(feature.shape, np.int64), (len(counts), len(feature.shape))
            )
            return Shapes(np.ascontiguousarray(rows))
        step = math.prod(feature.partial)
        uneven = np.flatnonzero(counts % step if step else counts)
        if len(uneven):
            s = uneven[0]
            raise self._of_feature(
                indices[s], k, f"has {counts[s]} values, not a multiple of {step}: {feature!r}"
            )
        rows = np.empty((len(counts), 1 + len(feature.partial)), np.int64)
        rows[:, 0] = counts // step if step else 0
        rows[:, 1:] = feature.partial
        return Shapes(rows)

    def _put_defaults(
        self, feature: Feature, values: Storage, shapes: Shapes, counts: Array
    ) -> None:
        volume = math.prod(feature.shape or ())
        dtype = _DTYPES[feature.dtype].np
        for s in np.flatnonzero(counts < volume).tolist():
            array = array_at(int(values.addresses[s]), shapes.tuples[s], dtype, None, values)
            array[...] = feature.default

    def _strings(
        self, indices: Sequence[int], k: int, storage: Storage, begin: Array, rows: Array,
        counts: Array,
    ) -> Column:  # fmt: skip
        """Strings stay where they were read to."""
        many = np.flatnonzero(counts > 1)
        if len(many):
            raise self._of_feature(
                indices[many[0]], k, f"has {counts[many[0]]} strings, wanted one"
            )
        default = _default_bytes(self._wanted.features[k].default)
        is_there = counts == 1
        addresses = np.where(is_there, begin + rows[:, 2], address_of(default))
        sizes = np.where(is_there, rows[:, 3] - rows[:, 2], _size(default))
        owner = Joined([storage.owner, Held([default])])
        strings = Storage(addresses, owner).share_flags(storage)
        return Column(strings, Shapes(sizes[:, None]), dt.uint8)

    def empty(self) -> Sample:
        found = []
        for feature in self._wanted.features:
            if feature.dtype == string:
                default = _default_bytes(feature.default)
                found.append(default[: _size(default)].copy())
            elif feature.shape is not None:
                found.append(np.full(feature.shape, feature.default, _DTYPES[feature.dtype].np))
            else:
                found.append(np.zeros((0, *feature.partial), _DTYPES[feature.dtype].np))
        return tuple(found)

    def fill(self, index: int, data: Any = None) -> Sample:
        return filled(self._where, self.empty(), data, self._wanted.names)

    def _bad(self, index: int, what: str) -> ValueError:
        return ValueError(f"{self.name(index)}: {what}")

    def _of_feature(self, index: int, k: int, what: str) -> ValueError:
        return self._bad(index, f"feature {self._wanted.names[k]!r} {what}")


def _numbers(addresses: Array, dtype: str) -> Array:
    """The number at each address."""
    # One number at each byte; nothing but those at the addresses is looked at.
    first = int(addresses.min())
    memory = array_at(first, (int(addresses.max()) - first + 1,), np.dtype(dtype), (1,))
    found: Array = memory[addresses - first]
    return found


def _default_bytes(default: Any) -> Array:
    """The default of a string as bytes; it has one byte more than its text, so never none."""
    raw = default.encode() if isinstance(default, str) else bytes(default or b"")
    return np.frombuffer(raw + b"\0", np.uint8)


def _size(default: Array) -> int:
    return len(default) - 1


class TFRecord(Reader):
    """Reads TFRecord files; yields a dictionary with a Tensor or Batch for each feature.

    >>> import ndd, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "numbers.tfrecord"
    >>> example = b"\\n\\x0e\\n\\x0c\\n\\x03age\\x12\\x05\\x1a\\x03\\n\\x01*"  # {"age": [42]}
    >>> head = len(example).to_bytes(8, "little") + b"\\x95\\xfb\\xfe\\x18"
    >>> _ = path.write_bytes(head + example + bytes(4))
    >>> features = {"age": ndd.tfrecord.FixedLenFeature([1], ndd.tfrecord.int64, -1)}
    >>> reader = ndd.readers.TFRecord(path=path, features=features)
    >>> for batch in reader.next_epoch(batch_size=1):
    ...     print(batch["age"].torch().tolist())
    [[42]]

    Parameters
    ----------
    path : path or list of path
        The files.
    index_path : path or list of path, optional
        An index for each file, as ``python -m ndd index tfrecord FILES…`` (or tfrecord2idx) writes
        them. Without them, the files are gone through once, reading the heads of all records.
    features : dict of str to Feature
        The features to read, see `ndd.tfrecord`. Unlike upstream, a `FixedLenFeature` that a
        record does not have, or only in part, is filled with its default.
    verify_crc : bool
        Check the checksums of records when they are read. The default is not to, as upstream; the
        lengths in the records must always agree with the index.
    shuffle_after_epoch : bool
        Shuffle the order of the files in each epoch; each is read in its own order. It can be
        combined with `random_shuffle`, which then shuffles the samples of the shard, too.
    dont_use_mmap : bool
        Copy large strings, too; otherwise they stay in the file, which is mapped into memory.
    read_ahead, use_o_direct, skip_cached_images, tensor_init_bytes, num_inputs
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
        path: Any,
        index_path: Any = None,
        features: Mapping[str, Any],
        verify_crc: bool = False,
        read_ahead: bool | None = False,
        dont_use_mmap: bool | None = False,
        use_o_direct: bool | None = False,
        skip_cached_images: bool | None = False,
        tensor_init_bytes: int | None = 1048576,
        **options: Any,
    ) -> None:
        where = "readers.TFRecord"
        self._paths = paths_of(where, "path", path)
        self._indexes = paths_of(where, "index_path", () if index_path is None else index_path)
        if self._indexes and len(self._indexes) != len(self._paths):
            raise ValueError(
                f"{where}: `index_path` must have one index for each of the {len(self._paths)} "
                f"files, got {len(self._indexes)}"
            )
        _check_features(features)
        self._wanted, self._verify = _Wanted(features), bool(verify_crc)
        self._maps = not dont_use_mmap
        self.outputs = [(_DTYPES[f.dtype], f.dtype != string) for f in self._wanted.features]
        super().__init__(max_batch_size, name, device, **options)

    def _list(self) -> Samples:
        return TFRecordSamples(listed(self._where, self._index), self._wanted, self._verify)

    def _index(self) -> RecordIndex:
        index = RecordIndex(self._paths, remote=self._remote, maps=self._maps)
        for k, path in enumerate(self._paths):
            if self._indexes:
                index.add(tfrecord_file.read_index(self._indexes[k], path, self._remote))
            else:
                index.add(tfrecord_file.scan(path, self._remote))
        if len(index.finish()) == 0:
            what = f"the indexes {self._indexes}" if self._indexes else f"{self._paths}"
            raise ValueError(f"no records found in {what}")
        return index

    def _item(self, outputs: tuple[Any, ...]) -> Any:
        return dict(zip(self._wanted.names, outputs, strict=True))

    @overload  # type: ignore[override]  # a dictionary, not a tuple
    def next_epoch(
        self, batch_size: None = None, ctx: Any = None, capture: bool = False, *,
        prefetch: int | None = None, progress: bool = False,
    ) -> Epoch[dict[str, Tensor]]: ...  # fmt: skip
    @overload
    def next_epoch(
        self, batch_size: int, ctx: Any = None, capture: bool = False, *,
        prefetch: int | None = None, progress: bool = False,
    ) -> Epoch[dict[str, Batch]]: ...  # fmt: skip
    def next_epoch(self, batch_size: int | None = None, *arguments: Any, **options: Any) -> Any:
        """As for all readers, but items are dictionaries by the names of the features."""
        return super().next_epoch(batch_size, *arguments, **options)


def _check_features(features: Any) -> None:
    if not isinstance(features, Mapping) or not features:
        raise ValueError(
            f"readers.TFRecord: `features` must be a dictionary of features, "
            f"{{name: ndd.tfrecord.FixedLenFeature(…)}}, got {features!r}"
        )
    for name, feature in features.items():
        if not isinstance(name, str) or not isinstance(feature, Feature):
            raise TypeError(
                f"readers.TFRecord: `features` must map names to ndd.tfrecord.FixedLenFeature(…) "
                f"or VarLenFeature(…), got {name!r}: {feature!r}"
            )
