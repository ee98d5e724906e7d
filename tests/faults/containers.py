"""Damaged files of all readers: TFRecord, tar, RecordIO, LMDB, .npy, FITS, COCO's annotations, and their indexes.

`python -m tests.faults.containers tar 1 5000` tries 5000 of them (`all`: of all formats in turns). Each is read, or refused by an error that names the
file and the place, or handled by `on_error`. What is read are bytes of the file, and memory is allocated for no more.
"""

from __future__ import annotations

import json
import random
import re
import resource
import struct
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import ndd
from ndd.readers.stores import byte_files
from tests.faults.child import Resources, main, numbers, size_limit
from tests.faults.mutations import mutated
from tests.faults.records import _damaged_json, _npy_fields, _other_header
from tests.faults.structures import Field
from tests.readers import datasets

MOST_SECONDS = 10.0  # of CPU time
# Address space beyond what the process has at the start. Files have a few kilobytes, so an allocation by a number in a
# file, if nobody checks it, fails.
MOST_BYTES = 1 << 30
COUNT = 7
# Records, bytes and lines have a place; JSON has one in its tree.
PLACE = re.compile(
    r"offset -?\d|index \d|byte \d|line \d|:\d+:|at \d|\w\[\d+\]|char \d|HDU \d|object \d|row \d|dictionary with lists|recursion|has no images|no pictures found|no records|are empty|is empty"
)


@dataclass(frozen=True)
class Damage:
    """A format: its data set, the files that are damaged, and how."""

    case: str
    files: str  # a pattern
    change: Callable[[bytes, random.Random, np.random.Generator], bytes]
    options: Callable[[random.Random], dict[str, Any]] = lambda r: {}
    has_place: bool = True
    #: Whether each sample is a file; then another file may be the one that does not fit.
    is_alone: bool = False
    named: tuple[str, ...] = ()  # what else an error may name: files whose names come from this one
    #: Whether bytes in outputs lie in the files as they are.
    is_verbatim: bool = True


# -- the formats ---------------------------------------------------------------------------------


def _tfrecord(data: bytes, r: random.Random, rng: np.random.Generator) -> bytes:
    heads = list(_tfrecord_heads(data))
    fields = [f for at in heads for f in (Field(at, 8, "<"), Field(at + 8, 4, "<"))]
    fields += [Field(at + 12 + k, 1, "<") for at in heads for k in range(20)]
    data = mutated(data, fields, _others("TFRecord"), rng)
    if r.random() < 0.6:  # deeper than the checksum of the length
        for at in heads:
            if at + 12 <= len(data):
                data = data[: at + 8] + datasets.checksum(data[at : at + 8]) + data[at + 12 :]
    return data


def _tfrecord_heads(data: bytes) -> Iterator[int]:
    at = 0
    while at + 12 <= len(data):
        yield at
        at += struct.unpack_from("<Q", data, at)[0] + 16


_TAR_FIELDS = (
    (0, 100),
    (100, 8),
    (108, 8),
    (124, 12),
    (136, 12),
    (148, 8),
    (156, 1),
    (157, 100),
    (257, 8),
    (345, 155),
)


def _tar(data: bytes, r: random.Random, rng: np.random.Generator) -> bytes:
    headers = [at for at in range(0, len(data) - 511, 512) if data[at + 257 : at + 262] == b"ustar"]
    if not headers or r.random() < 0.3:
        return mutated(
            data,
            [Field(at + f, min(n, 8), ">") for at in headers for f, n in _TAR_FIELDS],
            _others("Webdataset"),
            rng,
        )
    at = r.choice(headers)
    begin, size = r.choice(_TAR_FIELDS)
    odd = [b"%011o\0" % r.choice((0, 1, 511, 512, 513, len(data) - at, 2**31, 2**33 - 1)), b"\x80" + rng.bytes(11), b"\xff" * 12,
           b"-1", b"9", b"", b"x", b"L", b"g", b"S", b"K", b"3", b"5", b"../../etc/passwd", b"/dev/zero", b".", b"..", b"a.b/c",
           b"..jpg", b"\xff\xfe.bin", b" 7 7 ", b"00000000000\x80"]  # fmt: skip
    new = r.choice(odd)[:size].ljust(size, b"\0")
    data = data[: at + begin] + new + data[at + begin + size :]
    return _with_tar_checksums(data, headers) if r.random() < 0.85 else data


def _with_tar_checksums(data: bytes, headers: list[int]) -> bytes:
    for at in headers:
        block = data[at : at + 148] + b" " * 8 + data[at + 156 : at + 512]
        data = data[: at + 148] + b"%06o\0 " % sum(block) + data[at + 156 :]
    return data


def _recordio(data: bytes, r: random.Random, rng: np.random.Generator) -> bytes:
    magic = struct.pack("<I", datasets.MAGIC)
    heads = [m.start() for m in re.finditer(re.escape(magic), data)]
    fields = [Field(at + k, 4, "<") for at in heads for k in (0, 4, 8, 12)]
    return mutated(data, fields, _others("MXNet"), rng)


def _lmdb(data: bytes, r: random.Random, rng: np.random.Generator) -> bytes:
    """All numbers in the heads of the file and of its pages, places of entries, and entries."""
    fields = [
        Field(page + 16 + k, n, "<")
        for page in (0, 4096)
        for k, n in ((0, 4), (4, 4), (8, 8), (16, 8))
    ]
    fields += [Field(page + 40 + k, n, "<") for page in (0, 4096) for tree in (0, 48)
               for k, n in ((tree, 4), (tree + 4, 2), (tree + 6, 2), *((tree + j, 8) for j in range(8, 48, 8)))]  # fmt: skip
    for page in range(0, len(data) - 4095, 4096):
        fields += [Field(page + k, n, "<") for k, n in ((0, 8), (8, 2), (10, 2), (12, 2), (14, 2))]
        fields += [Field(page + 16 + 2 * k, 2, "<") for k in range(COUNT)]
        places = struct.unpack_from(f"<{COUNT}H", data, page + 16)
        fields += [Field(page + at + k, 2, "<") for at in places if at < 4080 for k in (0, 2, 4, 6)]
        fields += [Field(page + at + k, 1, "<") for at in places if at < 4064 for k in range(8, 30)]
    return mutated(data, [f for f in fields if f.at + f.size <= len(data)], _others("Caffe"), rng)


def _npy(data: bytes, r: random.Random, rng: np.random.Generator) -> bytes:
    if r.random() < 0.6:
        return _other_header(data, r)
    return mutated(data, _npy_fields(data), _others("Numpy"), rng)


def _regions(r: random.Random) -> dict[str, Any]:
    options: dict[str, Any] = {"cache_header_information": r.random() < 0.3}
    if r.random() < 0.5:
        options |= {"roi_start": [0, r.randrange(-1, 3)], "roi_end": [1, r.randrange(4)],
                    "out_of_bounds_policy": r.choice(("error", "pad", "trim_to_shape"))}  # fmt: skip
    return options


def _fits(data: bytes, r: random.Random, rng: np.random.Generator) -> bytes:
    cards = [*re.finditer(rb"-?\d+|= +T|END|NAXIS|BITPIX|SIMPLE", data[:2880])]
    if not cards or r.random() < 0.3:
        return mutated(data, [Field(k, 1, "<") for k in range(320)], _others("Fits"), rng)
    place = r.choice(cards)
    odd = [
        b"-1",
        b"0",
        b"999",
        b"99999999999999999",
        b"9" * 19,
        b"8",
        b"-64",
        b"64",
        b"1e9",
        b"'x'",
        b"2147483648",
        b"T",
        b"",
    ]
    new = r.choice(odd)
    size = max(len(new), place.end() - place.start())
    return data[: place.start()] + new.rjust(size) + data[place.start() + size :]


def _coco(data: bytes, r: random.Random, rng: np.random.Generator) -> bytes:
    return _damaged_json(data.decode(), r)


def _coco_options(r: random.Random) -> dict[str, Any]:
    options: dict[str, Any] = {
        k: r.random() < 0.5 for k in ("ltrb", "ratio", "skip_empty", "include_iscrowd")
    }
    return options | {r.choice(("polygon_masks", "pixelwise_masks", "masks", "image_ids")): True}


def _text(data: bytes, r: random.Random, rng: np.random.Generator) -> bytes:
    """An index: other numbers or words."""
    words = [*re.finditer(rb"\S+", data)]
    if not words or r.random() < 0.3:
        return mutated(data, [], {"other": b"0 1\nv1.1 3\n"}, rng)
    place = r.choice(words)
    odd = [b"-1", b"0", b"1", b"512", b"1024", b"9" * 19, b"9" * 400, b"v1.0", b"v1.1", b"1.5", b"x", b"\xff", b"\0", b"0x10",
           b"18446744073709551615", b"9223372036854775807", b"\n", b"1 2 3", b"bin", b"1_0", "٣".encode()]  # fmt: skip
    if place[0].isdigit() and r.random() < 0.5:
        odd = [b"%d" % max(0, int(place[0]) + step) for step in (-512, -16, -1, 1, 4, 8, 16, 512)]
    return data[: place.start()] + r.choice(odd) + data[place.end() :]


def _binary(data: bytes, r: random.Random, rng: np.random.Generator) -> bytes:
    fields = [Field(k, 4, "<") for k in range(0, len(data) - 3, 4)]
    return mutated(data, fields, {"other": bytes(range(256))}, rng)


FORMATS = {
    "tfrecord": Damage("TFRecord", "*.tfrecord", _tfrecord, lambda r: {"verify_crc": r.random() < 0.3, "index_path": None}),
    "tfrecord_index": Damage("TFRecord", "*.idx", _text),
    "tar": Damage("Webdataset", "*.tar", _tar, lambda r: {"missing_component_behavior": r.choice(("empty", "skip", "error"))}),
    "tar_index": Damage("TarIndex", "*.idx", _text),
    "recordio": Damage("MXNet", "*.rec", _recordio, lambda r: {} if r.random() < 0.5 else {"index_path": None}, is_verbatim=False),
    "recordio_index": Damage("MXNet", "*.idx", _text),
    "lmdb": Damage("Caffe", "*/data.mdb", _lmdb),
    "lmdb_protos": Damage("Caffe2", "*/data.mdb", _lmdb),
    "npy_files": Damage("Numpy", "*.npy", _npy, _regions, has_place=False, is_alone=True, is_verbatim=False),
    "fits": Damage("Fits", "*.fits", _fits, has_place=False, is_alone=True, is_verbatim=False),
    "coco": Damage("Outlines", "*.json", _coco, _coco_options, named=("cannot read",)),
    "coco_saved": Damage("Saved", "saved/*.dat", _binary, lambda r: {"polygon_masks": True, "image_ids": True}, has_place=False, named=("cannot read",)),
}  # fmt: skip


# -- data sets -----------------------------------------------------------------------------------


def _with_outlines(folder: Path, count: int) -> dict[str, Any]:
    made = datasets.CASES["COCO"].make(folder, count)
    path = folder / "all.json"
    content = json.loads(path.read_text())
    outlines: list[Any] = [
        [[1.0, 1.0, 5.0, 1.5, 4.0, 6.0]],
        {"size": [9, 9], "counts": [10, 21, 50]},
        {"size": [9, 9], "counts": ";36000000000007"},
    ]
    for k, entry in enumerate(content["annotations"]):
        entry["segmentation"] = outlines[k % 3]
    path.write_text(json.dumps(content))
    return {k: made[k] for k in ("file_root", "annotations_file")}


def _saved(folder: Path, count: int) -> dict[str, Any]:
    made = _with_outlines(folder, count)
    (folder / "saved").mkdir()
    ndd.readers.COCO(
        **made, polygon_masks=True, image_ids=True, save_preprocessed_annotations=True,
        save_preprocessed_annotations_dir=str(folder / "saved"),
    )  # fmt: skip
    return {"file_root": made["file_root"], "preprocessed_annotations": str(folder / "saved")}


def _indexed_tars(folder: Path, count: int) -> dict[str, Any]:
    from ndd.readers.stores import tar

    made = datasets.CASES["Webdataset"].make(folder, count)
    for path in made["paths"]:
        tar.write_index(path, f"{path}.idx")
    return {**made, "index_paths": [f"{p}.idx" for p in made["paths"]]}


_CASES = datasets.CASES | {
    "Outlines": datasets.Case("COCO", _with_outlines),
    "Saved": datasets.Case("COCO", _saved),
    "TarIndex": datasets.Case("Webdataset", _indexed_tars),
}
_kept: list[tempfile.TemporaryDirectory[str]] = []


@lru_cache(maxsize=64)
def _made(case: str) -> tuple[Path, dict[str, Any], dict[Path, bytes]]:
    """Folder, options and files of a data set; `attack` works in it."""
    _kept.append(tempfile.TemporaryDirectory())
    folder = Path(_kept[-1].name)
    made = _CASES[case].make(folder, COUNT)
    files = {
        p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file() and p.name != "lock.mdb"
    }
    return folder, made, files


def _others(case: str) -> dict[str, bytes]:
    return {str(p): data for p, data in _made(case)[2].items()}


# -- the attack ----------------------------------------------------------------------------------


def trial(what: str, seed: int, number: int) -> str:
    """Damage one file of a data set and read all of it."""
    damage = FORMATS[what]
    rng, r = np.random.default_rng([seed, number]), random.Random(f"{seed} {number}")
    folder, made, files = _made(damage.case)
    path = r.choice(sorted(folder.glob(damage.files)))
    data = files[path]
    for _ in range(1 if damage.change is _coco else size_limit(r.choice((1, 1, 1, 2, 3)))):
        data = damage.change(data, r, rng)
    path.write_bytes(data)
    policy = r.choice(("raise", "raise", "skip", "fill"))
    options = made | damage.options(r)
    present = (
        b"\0".join([data, *(d for p, d in files.items() if p != path)])
        if damage.is_verbatim
        else None
    )
    usual = byte_files._MAPPED_BYTES
    try:
        if number % 2:  # these files are too small to be mapped otherwise
            byte_files._MAPPED_BYTES = 0
        reader = _CASES[damage.case].open(ndd, options, on_error=policy)
        for item in reader.next_epoch(batch_size=2):
            _check(item, present)
        return "replaced" if reader.errors else "read"
    except MemoryError as error:
        raise AssertionError(f"an allocation by an unchecked size: {error}") from error
    except (ValueError, TypeError, OSError, RuntimeError) as error:
        assert not isinstance(error, RecursionError), "deep recursion"
        _check_text(
            error,
            [p.name for p in files]
            if damage.is_alone
            else [path.name, path.parent.name, *damage.named],
            damage,
        )
        return "refused"
    finally:
        byte_files._MAPPED_BYTES = usual
        path.write_bytes(files[path])


def _check(item: Any, present: bytes | None) -> None:
    outputs = list(item.values()) if isinstance(item, dict) else list(item)
    for output in outputs:
        for tensor in output.tensors:
            value = np.asarray(tensor)
            assert value.nbytes < 1 << 26
            if present is not None and value.dtype == np.uint8:
                assert value.tobytes() in present, "bytes that are not in the file"


def _check_text(error: BaseException, names: list[str], damage: Damage) -> None:
    text = str(error)
    assert any(n in text for n in names), f"an error that does not name the file: {text}"
    assert not damage.has_place or PLACE.search(text) or isinstance(error, OSError), (
        f"no place in: {text}"
    )


WHATS: dict[str, Damage] = FORMATS


def attack(what: str, seed: int, count: int) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter(tried=0)
    whats = [*FORMATS] if what == "all" else [what]
    for name in whats:
        _made(FORMATS[name].case)
    before = None
    for number in numbers(count):
        begin = time.process_time()
        try:
            counts[trial(whats[number % len(whats)], seed, number)] += 1
        except BaseException:
            print(f"case {number}", flush=True)
            traceback.print_exc()
            raise
        seconds = time.process_time() - begin
        assert seconds < MOST_SECONDS, f"case {number} took {seconds:.1f} s"
        counts["tried"] += 1
        if counts["tried"] == 50:
            before = Resources()
            used = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
            resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, resource.RLIM_INFINITY))
    if before is not None:
        before.check()
    return dict(counts)


if __name__ == "__main__":
    main(attack)
