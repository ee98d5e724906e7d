"""`readers.Caffe`: LMDB databases of Caffe's Datum messages enter, pictures and labels leave."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..fusion.graph.shapes import Array
from ..kernels.ir import dtypes as dt
from .epoch import Sample
from .lmdb_samples import LmdbReader, LmdbSamples
from .stores import wire
from .stores.record_index import RecordIndex

_DATA, _LABEL = 4, 5  # fields of a Datum


class DatumSamples(LmdbSamples):
    """Datum messages: a picture and a label."""

    def __init__(self, index: RecordIndex, folders: list[str], image: bool, label: bool) -> None:
        super().__init__("readers.Caffe", index, folders)
        self._image, self._label = image, label

    def output_name(self, index: int, output: int) -> str:
        """Only the picture has a name, as upstream."""
        return self.name(index) if self._image and output == 0 else ""

    def parse_value(self, data: memoryview, content: Array) -> Sample:
        picture, label = np.zeros(0, np.uint8), np.zeros(0, np.int32)
        for number, kind, value in wire.fields(data):
            if number == _DATA:
                picture = np.frombuffer(wire.content(value), np.uint8)
            elif number == _LABEL:
                label = np.array(wire.int32s(kind, value)[-1:], np.int32)
        return ((picture,) if self._image else ()) + ((label,) if self._label else ())

    def empty(self) -> Sample:
        picture, label = np.zeros(0, np.uint8), np.zeros(0, np.int32)
        return ((picture,) if self._image else ()) + ((label,) if self._label else ())


class Caffe(LmdbReader):
    """Reads LMDB databases of Caffe; yields the bytes of pictures and their labels.

    >>> import ndd
    >>> reader = ndd.readers.Caffe(path="train_lmdb")  # doctest: +SKIP
    >>> for jpegs, labels in reader.next_epoch(batch_size=64):  # doctest: +SKIP
    ...     images = ndd.decoders.image(jpegs)

    >>> try:
    ...     ndd.readers.Caffe(path="nowhere")
    ... except FileNotFoundError as error:
    ...     print(error)
    readers.Caffe: cannot read 'nowhere': No such file or directory

    The databases are read without the LMDB library.

    Parameters
    ----------
    path : path or list of path
        The folders of the databases, or their files.
    image_available, label_available : bool
        Whether to yield pictures and labels.
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
        label_available: bool | None = True,
        read_ahead: bool | None = False,
        dont_use_mmap: bool | None = False,
        skip_cached_images: bool | None = False,
        tensor_init_bytes: int | None = 1048576,
        **options: Any,
    ) -> None:
        self._open(path)
        self._image = image_available is None or bool(image_available)
        self._label = label_available is None or bool(label_available)
        if not (self._image or self._label):
            raise ValueError("readers.Caffe: neither pictures nor labels are wanted")
        self.outputs = [(dt.uint8, False)] * self._image + [(dt.int32, True)] * self._label
        super().__init__(max_batch_size, name, device, **options)

    def _samples(self, index: RecordIndex) -> LmdbSamples:
        return DatumSamples(index, self._folders, self._image, self._label)
