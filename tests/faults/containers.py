"""Damaged data sets: archives, records, databases, annotations and their indexes.

`python -m tests.faults.containers webdataset 1 1000` reads 1000 of them. Lengths, offsets and counts are changed, and
checksums are repaired, so that readers believe what they are told. A reader yields samples, or refuses by an error
that users expect; it takes little memory, whatever a number in a file says, and time in proportion to the files.
"""

from __future__ import annotations

import json
import random
import re
import resource
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import ndd
from tests.faults.child import Resources, main, numbers, size_limit
from tests.faults.mutations import mutated
from tests.faults.structures import Field
from tests.readers import datasets

SAMPLES = 7
EXPECTED = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    OSError,
)  # no MemoryError: sizes are checked first
MOST_SECONDS = 10.0  # of CPU time
MOST_MEMORY = 1 << 30
Files = dict[str, bytes]  # names in the folder of a data set → contents


# -- where the numbers are -------------------------------------------------------------------------


def _records(data: bytes) -> Iterator[Field]:
    """TFRecord: lengths and checksums, and the lengths inside of messages, which have one byte here."""
    at = 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        yield from (Field(at, 8, "<"), Field(at, 4, "<"), Field(at + 8, 4, "<"))
        yield from (Field(at + 12 + k, 1, "<") for k in range(min(length, 12)))
        at += 16 + length


def _parts(data: bytes) -> Iterator[Field]:
    """RecordIO: magic number and length of each part, number of labels."""
    at = 0
    while at + 12 <= len(data):
        length = struct.unpack_from("<I", data, at + 4)[0] & (1 << 29) - 1
        yield from (
            Field(at, 4, "<"),
            Field(at + 4, 4, "<"),
            Field(at + 7, 1, "<"),
            Field(at + 8, 4, "<"),
        )
        at += 8 + -(-length // 4) * 4


def _words(data: bytes) -> Iterator[Field]:
    """Any binary file: words that may be a length, a count or an offset."""
    for size in (2, 4, 8):
        for at in range(0, len(data) - size + 1, size):
            if 0 < int.from_bytes(data[at : at + size], "little") <= len(data):
                yield Field(at, size, "<")


def _repaired_records(data: bytes) -> bytes:
    """A TFRecord file with right checksums of lengths."""
    out, at = bytearray(data), 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        out[at + 8 : at + 12] = datasets.checksum(data[at : at + 8])
        at += 16 + length
    return bytes(out)


def _repaired_tar(data: bytes) -> bytes:
    """A tar archive with right checksums of headers, wherever one may be."""
    out = bytearray(data)
    for at in range(0, len(out) - 511, 512):
        if out[at + 257 : at + 262] == b"ustar":
            out[at + 148 : at + 156] = b" " * 8
            out[at + 148 : at + 156] = b"%06o\0 " % sum(out[at : at + 512])
    return bytes(out)


def _tar_fields(data: bytes) -> Iterator[Field]:
    """Sizes (octal digits), kinds and first letters of names."""
    for at in range(0, len(data) - 511, 512):
        if data[at + 257 : at + 262] == b"ustar":
            yield from (Field(at + 124 + k, 1, "<") for k in range(12))
            yield from (Field(at + 156, 1, "<"), Field(at, 1, "<"), Field(at + 124, 8, ">"))


_STRANGE = (
    b"-1", b"0", b"1", b"7", b"511", b"512", b"4095", b"99999", b"2147483647", b"4294967296", b"9223372036854775807",
    b"99999999999999999999", b"1e9", b"1e999", b"nan", b"NaN", b"-0", b"0x10", b"null", b"true", b'"text"', b"[]",
    b"{}", b"", b"\xff\xfe", b"\0", b"9" * 5000, b"[" * 3000, b" ", b"\n", b'"\\ud800"', b"v9.9", b"''", b"1.5",
)  # fmt: skip


def _other_text(data: bytes, r: random.Random) -> bytes:
    """A text file with another number or word somewhere."""
    places = [*re.finditer(rb"-?\d+(\.\d+)?|\w+|[\[\]{}:,]", data)]
    if not places:
        return data + r.choice(_STRANGE)
    place = r.choice(places)
    return data[: place.start()] + r.choice(_STRANGE) + data[place.end() :]


def _other_card(data: bytes, r: random.Random) -> bytes:
    """A FITS file with another value in its header; everything stays where it is."""
    cards = [k for k in range(0, min(len(data), 2880), 80) if data[k + 8 : k + 10] == b"= "]
    if not cards:
        return data
    at = r.choice(cards)
    value = r.choice((*_STRANGE[:24], b"-8", b"16", b"-64", b"T", b"32", b"999"))[:60]
    return data[: at + 10] + value.rjust(20).ljust(70)[:70] + data[at + 80 :]


# -- damages of a file, by its name ----------------------------------------------------------------


def damaged(name: str, data: bytes, others: Files, r: random.Random) -> bytes:
    """A file with one mutation that fits its format."""
    rng = np.random.default_rng(r.randrange(1 << 62))
    suffix = Path(name).suffix
    if suffix in (".idx", ".json", ".txt", ".index") and r.random() < 0.7:
        return _other_text(data, r)
    if suffix == ".fits" and r.random() < 0.7:
        return _other_card(data, r)
    walk = {".tfrecord": _records, ".rec": _parts, ".tar": _tar_fields}.get(suffix, _words)
    fields = [f for f in walk(data) if f.at + f.size <= len(data)]
    found = mutated(data, fields, others, rng)
    repair = {".tfrecord": _repaired_records, ".tar": _repaired_tar}.get(suffix)
    return found if repair is None or r.random() < 0.2 else repair(found)


# -- data sets -------------------------------------------------------------------------------------


class DataSet:
    """Files of a small sound data set, and how to open a reader for them."""

    def __init__(self, make: Callable[[Path], dict[str, Any]], opened: Callable[..., Any]) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="ndd-containers-"))
        self.arguments, self.opened = make(self.home), opened
        self.files: Files = {
            str(p.relative_to(self.home)): p.read_bytes()
            for p in sorted(self.home.rglob("*")) if p.is_file() and p.name != "lock.mdb"
        }  # fmt: skip
        assert self.read(on_error="raise") > 0

    def write(self, files: Files) -> None:
        for name, data in files.items():
            (self.home / name).write_bytes(data)

    def read(self, **options: Any) -> int:
        """Read an epoch; returns how many samples there were."""
        total = sum(map(len, self.files.values()))
        count = 0
        for item in self.opened(**self.arguments, **options).next_epoch(batch_size=2):
            for output in item.values() if isinstance(item, dict) else item:
                for tensor in output.tensors:
                    array = np.asarray(tensor)
                    assert array.nbytes <= 16 * total + MOST_PIXELS * 4, array.shape
                    array.sum() if array.dtype.kind in "uif" else None  # all of it can be read
            count += 2
            assert count <= 100_000
        return count


MOST_PIXELS = 1 << 16


def _opener(case: datasets.Case) -> Callable[..., Any]:
    def opened(on_error: str, **made: Any) -> Any:
        return case.open(ndd, made, on_error=on_error)

    return opened


def _of(case: datasets.Case) -> DataSet:
    return DataSet(lambda home: case.make(home, SAMPLES), _opener(case))


def _webdataset() -> DataSet:
    """Archives with an index for each."""
    from ndd.readers.stores.tar import write_index

    case = datasets.CASES["Webdataset"]

    def make(home: Path) -> dict[str, Any]:
        made = case.make(home, SAMPLES)
        made["index_paths"] = [str(Path(p).with_suffix(".idx")) for p in made["paths"]]
        for path, index in zip(made["paths"], made["index_paths"], strict=True):
            write_index(path, index)
        return made

    return DataSet(make, _opener(case))


def _annotations(home: Path) -> dict[str, Any]:
    """Pictures with boxes, polygons and run lengths."""
    for k in range(SAMPLES):
        (home / f"{k}.jpg").write_bytes(bytes([k]))
    square = [1, 1, 5, 1, 5, 5, 1, 5]
    runs = {"size": [9, 9], "counts": [20, 11, 50]}
    content = {
        "images": [{"id": k, "file_name": f"{k}.jpg", "height": 9, "width": 9} for k in range(SAMPLES)],
        "categories": [{"id": k} for k in range(3)],
        "annotations": [
            {"image_id": k, "category_id": k % 3, "bbox": [k, 1, 3, 4], "iscrowd": k % 2,
             "segmentation": runs if k % 2 else [square, square]}
            for k in range(SAMPLES)
        ],
    }  # fmt: skip
    (home / "all.json").write_text(json.dumps(content))
    return {"file_root": str(home), "annotations_file": str(home / "all.json")}


def _coco(**kinds: bool) -> DataSet:
    return DataSet(_annotations, partial(ndd.readers.COCO, **kinds))


def _saved_coco() -> DataSet:
    """The binary files that the reader of annotations writes."""

    def make(home: Path) -> dict[str, Any]:
        given = _annotations(home)
        (home / "saved").mkdir()
        saved = str(home / "saved")
        reader = ndd.readers.COCO(
            **given, pixelwise_masks=True, image_ids=True,
            save_preprocessed_annotations=True, save_preprocessed_annotations_dir=saved,
        )  # fmt: skip
        list(reader.next_epoch(batch_size=2))
        return {"file_root": str(home), "preprocessed_annotations": saved}

    return DataSet(make, partial(ndd.readers.COCO, pixelwise_masks=True, image_ids=True))


WHATS: dict[str, Callable[[], DataSet]] = {
    "tfrecord": lambda: _of(datasets.CASES["TFRecord"]),
    "webdataset": _webdataset,
    "webdataset_scan": lambda: _of(datasets.CASES["Webdataset"]),
    "mxnet": lambda: _of(datasets.CASES["MXNet"]),
    "caffe": lambda: _of(datasets.CASES["Caffe"]),
    "caffe2": lambda: _of(datasets.CASES["Caffe2"]),
    "numpy": lambda: _of(datasets.CASES["Numpy"]),
    "fits": lambda: _of(datasets.CASES["Fits"]),
    "coco": lambda: _coco(polygon_masks=True),
    "coco_masks": lambda: _coco(pixelwise_masks=True),
    "coco_saved": _saved_coco,
}


def attack(what: str, seed: int, count: int) -> dict[str, Any]:
    ndd.decoders.set_max_pixels(MOST_PIXELS)
    sets = [made() for made in (WHATS.values() if what == "all" else [WHATS[what]])]
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MOST_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    counts: Counter[str] = Counter(tried=0)
    before = None
    for number in numbers(count):
        r = random.Random(f"{seed} {number}")
        dataset, begin = sets[number % len(sets)], time.process_time()
        counts[_tried(dataset, r)] += 1
        seconds = time.process_time() - begin
        assert seconds < MOST_SECONDS, f"case {number} took {seconds:.1f} s"
        counts["tried"] += 1
        if counts["tried"] == 100:
            before = Resources()
    if before is not None:
        before.check()
    return dict(counts)


def _tried(dataset: DataSet, r: random.Random) -> str:
    """Damage some files, read them all, and put everything back."""
    files: Files = {}
    for _ in range(size_limit(r.choice((1, 1, 2, 3)))):
        name = r.choice([*dataset.files])
        data = files.get(name, dataset.files[name])
        files[name] = damaged(name, data, dataset.files, r)
    dataset.write(files)
    try:
        dataset.read(on_error=r.choice(("raise", "skip", "fill")))
        return "read"
    except EXPECTED:
        return "refused"
    finally:
        dataset.write({name: dataset.files[name] for name in files})


WHATS["all"] = WHATS["tfrecord"]


if __name__ == "__main__":
    main(attack)
