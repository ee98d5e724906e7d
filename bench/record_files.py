"""Record files: TFRecord and tar beside plain files, the oracle's readers and Python packages.

Chains decode photos of 110 KB, crop, mirror and normalise them; the files are in the page cache.
Without decoding, a call reads one epoch of records. The oracle and the packages (`tfrecord` and
`webdataset`, whose iterators are Python) have copied each byte then. `ndd` leaves large records in
mapped files, so here, and only here, a byte of each page of each record is read as well, by native
code: in NumPy it would take a third of the time that is measured.
"""

from __future__ import annotations

import io
import itertools
import os
import struct
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

import ndd
from ndd.kernels.cpu.bus_errors import PAGE
from ndd.kernels.cpu.native import primitives
from ndd.readers.stores import tar, tfrecord_file
from ndd.readers.stores.crc32c import of_memory

from .harness import ROUNDS, Row, compare, optional, show
from .peers import MEAN, SIZE, STD
from .photos import folder, photos

BATCH = 64
SMALL, SMALL_BYTES = 20_000, 1000
FILES = 4  # of each data set
_get_u8 = primitives.get_u8  # type: ignore[attr-defined]
Runs = dict[str, Callable[[], object]]


class RecordSet:
    """The same bytes and labels as TFRecord files and as tar archives, with indexes."""

    def __init__(self, name: str, contents: Callable[[], Iterator[bytes]]) -> None:
        self.root = folder() / f"records-{name}-v1"
        if not (self.root / "done").exists():
            self.root.mkdir(parents=True, exist_ok=True)
            self._write(list(contents()))
            (self.root / "done").touch()
        self.tfrecords = [str(p) for p in sorted(self.root.glob("*.tfrecord"))]
        self.tars = [str(p) for p in sorted(self.root.glob("*.tar"))]

    def _write(self, contents: list[bytes]) -> None:
        for k in range(FILES):
            own = list(enumerate(contents))[k::FILES]
            records, archive = self.root / f"{k}.tfrecord", self.root / f"{k}.tar"
            records.write_bytes(b"".join(_record(_example(data, i % 8)) for i, data in own))
            with tarfile.open(archive, "w") as out:
                for i, data in own:
                    for ext, part in (("jpg", data), ("cls", b"%d" % (i % 8))):
                        member = tarfile.TarInfo(f"{i:06d}.{ext}")
                        member.size = len(part)
                        out.addfile(member, io.BytesIO(part))
            tfrecord_file.write_index(str(records), f"{records}.idx")
            tar.write_index(str(archive), f"{archive}.idx")

    def tfrecord_reader(self, lib: Any, **options: Any) -> Any:
        kind = ndd.tfrecord if lib is ndd else optional("nvidia.dali.tfrecord")
        features = {
            "image": kind.FixedLenFeature((), kind.string, ""),
            "label": kind.FixedLenFeature([1], kind.int64, -1),
        }
        indexes = [f"{p}.idx" for p in self.tfrecords]
        return lib.readers.TFRecord(
            path=self.tfrecords, index_path=indexes, features=features, **options
        )

    def tar_reader(self, lib: Any, **options: Any) -> Any:
        indexes = [f"{p}.idx" for p in self.tars]
        return lib.readers.Webdataset(
            paths=self.tars, index_paths=indexes, ext=["jpg", "cls"], **options
        )


def _varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + _varint(rest) if rest else bytes([low])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _example(data: bytes, label: int) -> bytes:
    image = _field(1, b"image") + _field(2, _field(1, _field(1, data)))
    number = _field(1, b"label") + _field(2, _field(3, _field(1, _varint(label))))
    return _field(1, _field(1, image) + _field(1, number))


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _checksum(data: bytes) -> bytes:
    array = np.frombuffer(data, np.uint8)
    address = np.array([array.__array_interface__["data"][0]], np.int64)
    return bytes(of_memory(address, np.array([len(data)], np.int64)).astype("<u4"))


# -- decoding --------------------------------------------------------------------------------------


def chains(rounds: int) -> list[Row]:
    """The chain of `train` from plain files, from TFRecord files and from archives."""
    files = photos()
    made = RecordSet("photos", lambda: (Path(f).read_bytes() for f in files))
    shuffled = dict(random_shuffle=True, last_batch="drop")
    readers: dict[str, tuple[Any, Callable[[Any], Any]]] = {
        "plain files": (ndd.readers.File(files=files, **shuffled), lambda item: item[0]),
        "TFRecord": (made.tfrecord_reader(ndd, **shuffled), lambda item: item["image"]),
        "tar": (made.tar_reader(ndd, **shuffled), lambda item: item[0]),
    }

    def run(reader: Any, jpegs: Callable[[Any], Any]) -> Callable[[], object]:
        def epoch() -> None:
            for item in reader.next_epoch(batch_size=BATCH):
                x = ndd.random_resized_crop(ndd.decoders.image(jpegs(item)), size=[SIZE, SIZE])
                mirror = ndd.random.coin_flip(batch_size=BATCH)
                ndd.crop_mirror_normalize(x, mirror=mirror, mean=MEAN, std=STD).torch()

        return epoch

    runs = {name: run(*entry) for name, entry in readers.items()}
    threads = len(os.sched_getaffinity(0))
    name = f"photos from record files, train chain, {threads} threads, batch {BATCH}"
    return compare(name, runs, rounds, divide=len(files) // BATCH * BATCH)


# -- no decoding -----------------------------------------------------------------------------------


def records(name: str, made: RecordSet, count: int, rounds: int) -> list[Row]:
    """Epochs of records that nobody decodes."""
    rows: list[Row] = []
    for kind, reader, package in (
        ("TFRecord", made.tfrecord_reader, _tfrecord_package(made)),
        ("tar", made.tar_reader, _webdataset_package(made)),
    ):
        runs: Runs = {"ndd": _epochs(reader(ndd), _look)}
        dali = optional("nvidia.dali.experimental.dynamic")
        if dali is not None:
            runs["oracle"] = _epochs(reader(dali))
        if package is not None:
            runs["tfrecord" if kind == "TFRecord" else "webdataset"] = package
        part = compare(f"records, {kind} of {name}, batch {BATCH}", runs, rounds, divide=count)
        show(part, "oracle", 1e6, "µs")
        rows += part
    return rows


def _epochs(reader: Any, look: Callable[[Any], object] = id) -> Callable[[], object]:
    def epoch() -> None:
        for item in reader.next_epoch(batch_size=BATCH):
            for output in item.values() if isinstance(item, dict) else item:
                output.evaluate()
                look(output)

    return epoch


def _look(batch: Any) -> int:
    """The sum of a byte of each page of each sample."""
    node = batch._node
    return int(_sum_of_pages(node.stored.addresses, node.shapes.sizes(node.dtype.bytes)))


@njit(nogil=True)
def _sum_of_pages(addresses: Any, sizes: Any) -> int:
    total = 0
    for k in range(len(addresses)):
        for at in range(0, sizes[k], PAGE):
            total += _get_u8(addresses[k], at)
        if sizes[k] > 0:  # where the last page begins depends on the address
            total += _get_u8(addresses[k], sizes[k] - 1)
    return total


def _tfrecord_package(made: RecordSet) -> Callable[[], object] | None:
    package = optional("tfrecord.reader")
    if package is None:
        return None
    wanted = {"image": "byte", "label": "int"}
    return lambda: _all(
        itertools.chain.from_iterable(
            package.tfrecord_loader(path, None, wanted) for path in made.tfrecords
        )
    )


def _webdataset_package(made: RecordSet) -> Callable[[], object] | None:
    package = optional("webdataset")
    if package is None:
        return None
    return lambda: _all(iter(package.WebDataset(made.tars, shardshuffle=False)))


def _all(found: Iterator[Any]) -> None:
    """Go over all records, in lists of one batch."""
    while list(itertools.islice(found, BATCH)):
        pass


def main(rounds: int = ROUNDS) -> list[Row]:
    """All workloads; tables as they come."""
    rows = chains(rounds)
    show(rows, "plain files")
    files = photos()
    large = RecordSet("photos", lambda: (Path(f).read_bytes() for f in files))
    rows += records("110 KB", large, len(files), rounds)
    noise = np.random.default_rng(0)
    small = RecordSet("small", lambda: (noise.bytes(SMALL_BYTES) for _ in range(SMALL)))
    rows += records("1 KB", small, SMALL, rounds)
    return rows


if __name__ == "__main__":
    main()
