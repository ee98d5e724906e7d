"""`readers.Caffe2`: LMDB databases of TensorProtos enter, pictures, labels and more leave."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..fusion.graph.shapes import Array
from .epoch import Sample
from .lmdb_samples import LmdbReader, LmdbSamples
from .stores import wire
from .stores.record_index import RecordIndex

_FLOAT, _INT32, _BYTE, _STRING = 1, 2, 3, 4  # types of a TensorProto
_SINGLE, _SPARSE, _DENSE, _WEIGHTED, _NONE = range(5)  # types of labels


@dataclass
class _Proto:
    """A TensorProto."""

    dims: list[int] = field(default_factory=list)
    kind: int = 0
    floats: list[Array] = field(default_factory=list)
    ints: list[int] = field(default_factory=list)
    raw: memoryview = field(default_factory=lambda: memoryview(b""))
    strings: list[memoryview] = field(default_factory=list)


def _proto(data: memoryview) -> _Proto:
    found = _Proto()
    for number, kind, value in wire.fields(data):
        if number == 1:
            found.dims += wire.int32s(kind, value)
        elif number == 2 and isinstance(value, int):
            found.kind = value
        elif number == 3:
            found.floats.append(wire.floats(kind, value))
        elif number == 4:
            found.ints += wire.int32s(kind, value)
        elif number == 5:
            found.raw = wire.content(value)
        elif number == 6:
            found.strings.append(wire.content(value))
    return found


@dataclass
class _Wanted2:
    """What a record holds."""

    image: bool
    label_type: int
    num_labels: int
    additional: int
    box: bool

    @property
    def count(self) -> int:
        """The number of outputs."""
        return self.image + (self.label_type != _NONE) + self.additional + self.box


class ProtosSamples(LmdbSamples):
    """TensorProtos messages, which hold the outputs one after the other."""

    def __init__(self, index: RecordIndex, folders: list[str], wanted: _Wanted2) -> None:
        super().__init__("readers.Caffe2", index, folders)
        self._wanted = wanted

    def output_name(self, index: int, output: int) -> str:
        """Only the picture has a name, as upstream."""
        return self.name(index) if self._wanted.image and output == 0 else ""

    def parse_value(self, data: memoryview, content: Array) -> Sample:
        protos = [_proto(wire.content(v)) for number, _, v in wire.fields(data) if number == 1]
        wanted = self._wanted
        needed = wanted.count + (wanted.label_type == _WEIGHTED)
        if len(protos) < needed:
            raise ValueError(f"it holds {len(protos)} tensors, wanted {needed}")
        left = iter(protos)
        found: list[Array] = []
        if wanted.image:
            found.append(_picture(next(left)))
        if wanted.label_type != _NONE:
            weights = None
            label = next(left)
            if wanted.label_type == _WEIGHTED:
                weights = _floats(next(left))
            found.append(self._label(label, weights))
        found += [_additional(next(left)) for _ in range(wanted.additional)]
        if wanted.box:
            found.append(_box(next(left)))
        return tuple(found)

    def _label(self, proto: _Proto, weights: Array | None) -> Array:
        kind, count = self._wanted.label_type, self._wanted.num_labels
        if kind == _DENSE:
            return _floats(proto)
        if proto.kind != _INT32:
            raise ValueError(f"labels are tensors of type {proto.kind}, wanted int32")
        if kind == _SINGLE:
            if len(proto.ints) != 1:
                raise ValueError(f"it has {len(proto.ints)} labels, wanted one")
            return np.array(proto.ints, np.int32)
        outside = [n for n in proto.ints if not 0 <= n < count]
        if outside:
            raise ValueError(f"label {outside[0]} is not in 0 … {count - 1} (num_labels - 1)")
        if weights is not None and len(weights) != len(proto.ints):
            raise ValueError(f"it has {len(proto.ints)} labels and {len(weights)} weights")
        found = np.zeros(count, np.int32 if weights is None else np.float32)
        found[proto.ints] = 1 if weights is None else weights
        return found

    def empty(self) -> Sample:
        wanted = self._wanted
        found: list[Array] = [np.zeros(0, np.uint8)] if wanted.image else []
        if wanted.label_type != _NONE:
            is_float = wanted.label_type in (_DENSE, _WEIGHTED)
            found.append(np.zeros(0, np.float32 if is_float else np.int32))
        found += [np.zeros(0, np.int32)] * wanted.additional
        return (*found, *([np.zeros(4, np.int32)] if wanted.box else []))


def _picture(proto: _Proto) -> Array:
    if proto.kind == _STRING:
        if len(proto.strings) != 1:
            raise ValueError(f"it has {len(proto.strings)} pictures, wanted one")
        return np.frombuffer(proto.strings[0], np.uint8)
    if proto.kind != _BYTE:
        raise ValueError(f"the picture is a tensor of type {proto.kind}, wanted string or byte")
    if min(proto.dims, default=0) < 0 or math.prod(proto.dims) != len(proto.raw):
        raise ValueError(f"a picture of shape {proto.dims} has {len(proto.raw)} bytes")
    return np.frombuffer(proto.raw, np.uint8).reshape(proto.dims)


def _floats(proto: _Proto) -> Array:
    if proto.kind != _FLOAT:
        raise ValueError(f"a tensor of type {proto.kind}, wanted float")
    return np.concatenate([np.zeros(0, np.float32), *proto.floats])


def _additional(proto: _Proto) -> Array:
    if proto.kind == _INT32:
        return np.array(proto.ints, np.int32)
    return _floats(proto)


def _box(proto: _Proto) -> Array:
    if proto.kind != _INT32 or len(proto.ints) != 4:
        raise ValueError(f"a box is four int32 numbers, got {len(proto.ints)}")
    return np.array(proto.ints, np.int32)


class Caffe2(LmdbReader):
    """Reads LMDB databases of Caffe2; yields pictures, labels, further tensors and boxes.

    >>> import ndd
    >>> reader = ndd.readers.Caffe2(path="train_lmdb")  # doctest: +SKIP
    >>> for jpegs, labels in reader.next_epoch(batch_size=64):  # doctest: +SKIP
    ...     images = ndd.decoders.image(jpegs)

    >>> try:
    ...     ndd.readers.Caffe2(path="nowhere")
    ... except FileNotFoundError as error:
    ...     print(error)
    readers.Caffe2: cannot read 'nowhere': No such file or directory

    The databases are read without the LMDB library.

    Parameters
    ----------
    path : path or list of path
        The folders of the databases, or their files.
    image_available : bool
        Whether records hold a picture.
    label_type : int
        0: one label. 1: some of `num_labels` labels, which become a vector of 0 and 1. 2: a vector
        of floats. 3: as 1, with a weight for each label. 4: there are no labels.
    num_labels : int
        The number of labels, for types 1 and 3.
    additional_inputs : int
        The number of further tensors, of int32 or float, which become vectors.
    bbox : bool
        Whether records hold a box, four int32 numbers.
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
        path: Any,
        image_available: bool | None = True,
        label_type: int | None = 0,
        num_labels: int | None = 1,
        additional_inputs: int | None = 0,
        bbox: bool | None = False,
        read_ahead: bool | None = False,
        dont_use_mmap: bool | None = False,
        skip_cached_images: bool | None = False,
        tensor_init_bytes: int | None = 1048576,
        **options: Any,
    ) -> None:
        self._open(path)
        kind = label_type or 0
        if kind not in range(5):
            raise ValueError(f"readers.Caffe2: `label_type` must be in 0 … 4, got {label_type!r}")
        image = image_available is None or bool(image_available)
        additional = additional_inputs or 0
        labels = 1 if num_labels is None else num_labels
        if additional < 0 or not 0 < labels < 2**31:
            raise ValueError(
                f"readers.Caffe2: `additional_inputs` must not be negative and `num_labels` "
                f"must be positive, got {additional_inputs} and {num_labels}"
            )
        self._wanted = _Wanted2(image, kind, labels, additional, bool(bbox))
        if self._wanted.count == 0:
            raise ValueError("readers.Caffe2: no output is wanted")
        self.outputs = [(None, k > 0 or not image) for k in range(self._wanted.count)]
        super().__init__(max_batch_size, name, device, **options)

    def _samples(self, index: RecordIndex) -> LmdbSamples:
        return ProtosSamples(index, self._folders, self._wanted)
