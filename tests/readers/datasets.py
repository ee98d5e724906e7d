"""The same numbered samples in every format that a reader knows: sample i holds the byte i."""

from __future__ import annotations

import io
import itertools
import json
import struct
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import nvidia.dali.tfrecord as dali_tfrecord

import ndd
from ndd.readers.stores import crc32c

# -- TFRecord --------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def field(number: int, content: bytes) -> bytes:
    """A field with a length."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def strings(*values: bytes) -> bytes:
    return field(1, b"".join(field(1, v) for v in values))


def floats(*values: float, packed: bool = True) -> bytes:
    if packed:
        return field(2, field(1, struct.pack(f"<{len(values)}f", *values)))
    return field(2, b"".join(varint(1 << 3 | 5) + struct.pack("<f", v) for v in values))


def ints(*values: int, packed: bool = True) -> bytes:
    if packed:
        return field(3, field(1, b"".join(map(varint, values))))
    return field(3, b"".join(varint(1 << 3) + varint(v) for v in values))


def example(**features: bytes) -> bytes:
    entries = (field(1, field(1, k.encode()) + field(2, v)) for k, v in features.items())
    return field(1, b"".join(entries))


def checksum(data: bytes) -> bytes:
    array = np.frombuffer(data + b"\0", np.uint8)
    address = np.array([array.__array_interface__["data"][0]], np.int64)
    return bytes(crc32c.of_memory(address, np.array([len(data)], np.int64)).astype("<u4"))


def tfrecord(*records: bytes) -> bytes:
    found = b""
    for record in records:
        length = struct.pack("<Q", len(record))
        found += length + checksum(length) + record + checksum(record)
    return found


def tfrecord_index(data: bytes) -> str:
    lines, at = "", 0
    while at < len(data):
        size = struct.unpack_from("<Q", data, at)[0] + 16
        lines += f"{at} {size}\n"
        at += size
    return lines


def write_tfrecord(path: Path, *records: bytes) -> dict[str, str]:
    data = tfrecord(*records)
    path.write_bytes(data)
    index = path.with_suffix(".idx")
    index.write_text(tfrecord_index(data))
    return {"path": str(path), "index_path": str(index)}


# -- tar -------------------------------------------------------------------------------------------

FOLDER, LINK, DEVICE = tarfile.DIRTYPE.decode(), tarfile.SYMTYPE.decode(), tarfile.CHRTYPE.decode()


def write_tar(path: Path, items: list[tuple[str, Any]], format: int = tarfile.GNU_FORMAT) -> str:
    """Members with bytes, or of a type (a text) without any."""
    with tarfile.open(path, "w", format=format) as archive:
        for name, data in items:
            member = tarfile.TarInfo(name)
            if isinstance(data, bytes):
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
            else:
                member.type, member.linkname = data.encode(), "x.jpg"
                archive.addfile(member)
    return str(path)


# -- RecordIO --------------------------------------------------------------------------------------

MAGIC = 0xCED7230A


def recordio(data: bytes, kind: int = 0) -> bytes:
    """A part of a record; kind 0 is all of it."""
    found = struct.pack("<II", MAGIC, kind << 29 | len(data)) + data
    return found + bytes(-len(found) % 4)


def labelled(label: float, data: bytes, *labels: float) -> bytes:
    """A picture with one label, or with several."""
    head = struct.pack("<IfQQ", len(labels), label, 0, 0)
    return head + struct.pack(f"<{len(labels)}f", *labels) + data


def write_recordio(path: Path, *records: bytes) -> dict[str, str]:
    path.write_bytes(b"".join(records))
    index = path.with_suffix(".idx")
    offsets = itertools.accumulate((len(r) for r in records[:-1]), initial=0)
    index.write_text("".join(f"{k}\t{offset}\n" for k, offset in enumerate(offsets)))
    return {"path": str(path), "index_path": str(index)}


# -- LMDB ------------------------------------------------------------------------------------------

FLOAT, INT32, BYTE, STRING = 1, 2, 3, 4  # types of a TensorProto


def write_lmdb(folder: Path, items: dict[bytes, bytes]) -> str:
    environment = lmdb.open(str(folder), map_size=1 << 26)
    with environment.begin(write=True) as transaction:
        for key, value in items.items():
            transaction.put(key, value)
    environment.close()
    return str(folder)


def datum(data: bytes | None, label: int | None, more: bytes = b"") -> bytes:
    found = b"\x08\x03\x10\x02\x18\x01" + more  # channels, height, width
    found += b"" if data is None else field(4, data)
    return found if label is None else found + varint(5 << 3) + varint(label)


def proto(
    dims: list[int], kind: int, *, f: Any = (), i: Any = (), b: bytes = b"", s: Any = ()
) -> bytes:
    """A TensorProto of a TensorProtos message."""
    found = b"".join(b"\x08" + varint(d) for d in dims) + b"\x10" + varint(kind)
    found += field(3, struct.pack(f"<{len(f)}f", *f)) if f else b""
    found += field(4, b"".join(map(varint, i))) if i else b""
    found += field(5, b) if b else b""
    return field(1, found + b"".join(field(6, text) for text in s))


# -- FITS ------------------------------------------------------------------------------------------


def fits_header(*cards: str) -> bytes:
    text = "".join(card.ljust(80) for card in (*cards, "END"))
    return text.ljust(-(-len(text) // 2880) * 2880).encode()


def fits_image(array: np.ndarray, first: bool = True) -> bytes:
    bits = {"u1": 8, "i2": 16, "i4": 32, "i8": 64, "f4": -32, "f8": -64}[array.dtype.str[1:]]
    cards = ["SIMPLE  =                    T" if first else "XTENSION= 'IMAGE   '"]
    cards += [f"BITPIX  = {bits:20d}", f"NAXIS   = {array.ndim:20d}"]
    cards += [f"NAXIS{k + 1:<3d}= {n:20d}" for k, n in enumerate(array.shape[::-1])]
    data = array.astype(array.dtype.newbyteorder(">")).tobytes()
    return fits_header(*cards) + data.ljust(-(-len(data) // 2880) * 2880, b"\0")


# -- all readers -----------------------------------------------------------------------------------


def split(count: int, parts: int) -> list[range]:
    """Unequal ranges of samples, one for each file."""
    cuts = [0, *(count * (k + 1) // parts - (k + 1 < parts) for k in range(parts))]
    return [range(a, b) for a, b in itertools.pairwise(cuts)]


def _tfrecords(folder: Path, count: int) -> dict[str, Any]:
    made = [
        write_tfrecord(
            folder / f"{k}.tfrecord", *(example(n=ints(i), b=strings(bytes([i]))) for i in part)
        )
        for k, part in enumerate(split(count, 3))
    ]
    return {key: [m[key] for m in made] for key in ("path", "index_path")}


def _features(library: Any) -> dict[str, Any]:
    kind = ndd.tfrecord if library is ndd else dali_tfrecord
    return {
        "b": kind.FixedLenFeature((), kind.string, ""),
        "n": kind.FixedLenFeature([1], kind.int64, -1),
    }


def _tars(folder: Path, count: int) -> dict[str, Any]:
    paths = [
        write_tar(
            folder / f"{k}.tar",
            [(f"{i:03d}.{e}", bytes([i])) for i in part for e in ("bin", "cls")],
        )
        for k, part in enumerate(split(count, 3))
    ]
    return {"paths": paths, "ext": ["bin", "cls"]}


def _recordios(folder: Path, count: int) -> dict[str, Any]:
    """Three files with one index."""
    lines, begin, paths = "", 0, []
    for k, part in enumerate(split(count, 3)):
        records = [recordio(labelled(float(i), bytes([i]))) for i in part]
        paths.append(write_recordio(folder / f"{k}.rec", *records)["path"])
        for record in records:
            lines += f"{len(lines)}\t{begin}\n"
            begin += len(record)
    (folder / "all.idx").write_text(lines)
    return {"path": paths, "index_path": str(folder / "all.idx")}


def _npys(folder: Path, count: int) -> dict[str, Any]:
    for i in range(count):
        np.save(folder / f"{i:03d}.npy", np.array([[i, 7]], np.int16))
    return {"file_root": str(folder)}


def _coco(folder: Path, count: int) -> dict[str, Any]:
    """Pictures that are no pictures: readers do not decode them."""
    for i in range(count):
        (folder / f"{i:03d}.jpg").write_bytes(bytes([i]))
    content = {
        "images": [{"id": i, "file_name": f"{i:03d}.jpg", "height": 9, "width": 9} for i in range(count)],
        "categories": [{"id": i} for i in range(count)],
        "annotations": [
            {"image_id": i, "category_id": i, "bbox": [i, i, 3, 3], "iscrowd": 0} for i in reversed(range(count))
        ],
}  # fmt: skip
    (folder / "all.json").write_text(json.dumps(content))
    return {
        "file_root": str(folder), "annotations_file": str(folder / "all.json"), "image_ids": True,
        "avoid_class_remapping": True,
}  # fmt: skip


def _databases(value: Callable[[int], bytes]) -> Callable[[Path, int], dict[str, Any]]:
    def make(folder: Path, count: int) -> dict[str, Any]:
        paths = [
            write_lmdb(folder / f"{k}", {b"%03d" % i: value(i) for i in part})
            for k, part in enumerate(split(count, 3))
        ]
        return {"path": paths}

    return make


def _fits(folder: Path, count: int) -> dict[str, Any]:
    for i in range(count):
        (folder / f"{i:03d}.fits").write_bytes(fits_image(np.array([[i, 7]], np.int16)))
    return {"file_root": str(folder), "hdu_indices": [1]}


def _sounds(folder: Path, count: int) -> dict[str, Any]:
    import soundfile

    lines = ["", ""]
    for k, part in enumerate(split(count, 2)):
        for i in part:
            path = folder / f"{i:03d}.wav"
            soundfile.write(path, np.array([i, 7], np.int16), 8000)
            lines[k] += json.dumps({"audio_filepath": str(path)}) + "\n"
        (folder / f"{k}.json").write_text(lines[k])
    return {"manifest_filepaths": [str(folder / f"{k}.json") for k in range(2)]}


_LEVELS = 5  # levels of grey between two samples; JPEG changes some of them by one


def _videos(folder: Path, count: int) -> dict[str, Any]:
    import av

    for k, part in enumerate(split(count, 3)):
        with av.open(folder / f"{k}.mp4", "w") as file:
            stream = file.add_stream("mjpeg", rate=25, width=16, height=16, pix_fmt="yuvj420p")
            for i in part:
                grey = np.full((16, 16, 3), i * _LEVELS, np.uint8)
                file.mux(stream.encode(av.VideoFrame.from_ndarray(grey, "rgb24")))
            file.mux(stream.encode())
    return {"filenames": [str(folder / f"{k}.mp4") for k in range(3)], "sequence_length": 1}


def _by_level(value: Any) -> int:
    return round(int(np.asarray(value).ravel()[0]) / _LEVELS)


@dataclass
class Case:
    """A format: how to make a data set of it, and the reader's further options."""

    reader: str
    make: Callable[[Path, int], dict[str, Any]]
    more: Callable[[Any], dict[str, Any]] = lambda library: {}
    # Which numbers are in an output: its first element, unless told otherwise.
    number: Callable[[Any], int] = lambda value: int(np.asarray(value).ravel()[0])
    shuffles_files: bool = False
    has_oracle: bool = True

    def open(self, library: Any, made: dict[str, Any], **options: Any) -> Any:
        module: Any = library.readers
        if self.reader.startswith("experimental."):
            module = library.experimental.readers
        kind = getattr(module, self.reader.rpartition(".")[2])
        return kind(**made, **self.more(library), **options)

    def numbers(self, item: Any) -> list[int]:
        """The numbers of a batch, which all outputs must agree on."""
        outputs = list(item.values()) if isinstance(item, dict) else list(item)
        found = [
            [self.number(t) for t in output.tensors]
            if hasattr(output, "tensors")
            else [self.number(output)]
            for output in outputs
        ]
        assert all(f == found[0] for f in found), found
        return found[0]

    def epoch(self, reader: Any, batch_size: int | None) -> list[list[int]]:
        return [self.numbers(item) for item in reader.next_epoch(batch_size)]


CASES = {
    "TFRecord": Case("TFRecord", _tfrecords, lambda lib: {"features": _features(lib)}, shuffles_files=True),
    "Webdataset": Case("Webdataset", _tars, shuffles_files=True),
    "MXNet": Case("MXNet", _recordios, shuffles_files=True),
    "Numpy": Case("Numpy", _npys),
    "COCO": Case("COCO", _coco),
    "Caffe": Case("Caffe", _databases(lambda i: datum(bytes([i]), i))),
    "Caffe2": Case("Caffe2", _databases(lambda i: proto([1], STRING, s=[bytes([i])]) + proto([1], INT32, i=[i]))),
    "NemoAsr": Case("NemoAsr", _sounds, lambda lib: {"dtype": lib.int16, "read_sample_rate": False, "read_text": False}),
    "Video": Case("experimental.Video", _videos, number=_by_level),
    "Fits": Case("experimental.Fits", _fits, has_oracle=False),
}  # fmt: skip
