"""Damaged files that are no pictures: arrays in .npy files, checkpoints, lists of files, folders.

`python -m tests.faults.records npy 1 1000` tries 1000 of them. Each is read, or refused by an error that users
expect, soon and with little memory; what is read is right.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ndd
from tests.faults.child import Resources, main, numbers, size_limit
from tests.faults.mutations import mutated
from tests.faults.structures import Field

EXPECTED = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    OSError,
    RuntimeError,
    MemoryError,
    OverflowError,
)
MOST_SECONDS = 10.0  # of CPU time
Case = Callable[[int, int], str]


# -- .npy ----------------------------------------------------------------------------------------


def _arrays() -> dict[str, bytes]:
    values = np.arange(24).reshape(2, 3, 4)
    kinds = ("u1", "<i2", ">i4", "<f4", ">f8", "<f2", "?", "<u8", "c8", "S3", "O")
    arrays = {k: values.astype(k) for k in kinds} | {
        "fortran": np.asfortranarray(values.astype("i4"))
    }
    arrays["empty"], arrays["scalar"] = np.zeros((0, 3)), np.array(7.5)
    arrays["named"] = np.zeros(3, [("a", "i4"), ("b", "f4")])
    found = {}
    for name, array in arrays.items():
        for version in ((1, 0), (2, 0), (3, 0)):
            file = io.BytesIO()
            np.lib.format.write_array(file, array, version, allow_pickle=True)
            found[f"{name} {version[0]}"] = file.getvalue()
    return found


ARRAYS = _arrays()
SUPPORTED = [n for n in ARRAYS if n[-1] != "3" and n.split()[0] not in ("c8", "S3", "O", "named")]


def npy(seed: int, number: int) -> str:
    """An array in NumPy's format: what is read is what NumPy reads."""
    rng, r = np.random.default_rng([seed, number]), random.Random(f"{seed} {number}")
    data = r.choice([*ARRAYS.values()])
    for _ in range(size_limit(r.choice((1, 1, 2, 3)))):
        data = (
            _other_header(data, r)
            if r.random() < 0.5
            else mutated(data, _npy_fields(data), ARRAYS, rng)
        )
    x = ndd.decoders.numpy(ndd.tensor(np.frombuffer(data, np.uint8)))
    found = np.asarray(x)
    wanted = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    assert found.shape == wanted.shape and found.dtype == wanted.dtype.newbyteorder("=")
    assert found.tobytes() == wanted.astype(found.dtype).tobytes()
    return "read"


def _npy_fields(data: bytes) -> list[Field]:
    """The length of the header, and single characters of its text."""
    length = Field(8, 2 if data[6:7] == b"\x01" else 4, "<")
    return [length, Field(6, 1, "<"), *(Field(10 + k, 1, "<") for k in range(60))]


def _other_header(data: bytes, r: random.Random) -> bytes:
    """Another number, word or piece of text in the header."""
    end = data.find(b"\n")
    head, body = data[:end], data[end:]
    texts = [b"-1", b"99999999999999999999", b"1e9", b"(2,)", b"9" * r.choice((5, 400)), b"True", b"''",
             b"[" * r.choice((3, 300)), b"__import__('os')", b"None", b"{", b"1" * 50, b"0x7fffffff", b"'|O'",
             b"2**62", b"\xff\xfe", b"\n", b"'<M8[ns]'", b"'<U9999999999'", b"'V9223372036854775807'"]  # fmt: skip
    places = [*re.finditer(rb"\d+|True|False|'[^']*'|\(|\)", head[10:])]
    if not places:
        return data
    place = r.choice(places)
    new = head[10 : 10 + place.start()] + r.choice(texts) + head[10 + place.end() :]
    # Spaces keep the length right, where there are enough of them.
    text = new.rstrip(b" ") + b" " * max(0, len(head) - 10 - len(new.rstrip(b" ")))
    return head[:10] + text + body


# -- LZ4 -----------------------------------------------------------------------------------------


def blocks(seed: int, number: int) -> str:
    """Compressed blocks with other sizes, offsets and bytes: exactly what was wanted, or an error."""
    import lz4.block

    rng, r = np.random.default_rng([seed, number]), random.Random(f"{seed} {number}")
    plain = [
        np.repeat(rng.integers(0, 9, 40), r.randint(1, 9)).astype(np.uint8)
        for _ in range(r.randint(1, 3))
    ]
    packed = [lz4.block.compress(p.tobytes(), store_size=False) for p in plain]
    data, shape = b"".join(packed), [len(plain[0])]
    options: dict[str, Any] = {"chunk_sizes": [len(p) for p in packed]}
    for _ in range(size_limit(r.choice((1, 1, 2)))):
        choice = r.random()
        if choice < 0.4:
            data = mutated(data, [], {"other": b"\xff" * 300}, rng)
        elif choice < 0.7:
            shape = [r.choice((0, 1, shape[0] - 1, 2 * shape[0], 2**20, 2**31, 2**40, 2**62, -1))]
        else:
            kind = r.choice(("chunk_sizes", "chunk_offsets"))
            numbers_ = list(options.get(kind, np.cumsum([0, *map(len, packed)])[:-1].tolist()))
            numbers_[r.randrange(len(numbers_))] = r.choice((0, -1, 1, len(data), 2**31, 2**62, 7))
            options[kind] = numbers_
    if len(plain) == 1 and r.random() < 0.5:
        options = {}  # all bytes are one block
    x = ndd.decoders.inflate(ndd.tensor(np.frombuffer(data, np.uint8)), shape=shape, **options)
    assert np.asarray(x).size == np.prod(shape) * (len(plain) if options else 1)
    return "read"


# -- checkpoints ---------------------------------------------------------------------------------

STRANGE: tuple[Any, ...] = (
    None, True, -1, 0, 1, 10**9, 2**31, 2**62, 2**63, 10**30, -(10**30), 1.5, float("nan"), float("inf"), "", "text",
    "0" * 5000, [], {}, [[]], {"a": 1}, "Philox_0_0:0_0", "\0", "\ud800", "é" * 100,
)  # fmt: skip


def checkpoint(seed: int, number: int) -> str:
    """The state of a reader and of a generator: what is accepted can be continued."""
    r = random.Random(f"{seed} {number}")
    saved = ndd.checkpoint.Checkpoint()
    reader, rng = _reader(), ndd.random.RNG(seed=r.randrange(9))
    for _ in range(r.randrange(4)):
        reader(batch_size=2)
        rng()
    saved.register(reader, "reader")
    saved.register(rng, "rng")
    saved.collect()
    text = _damaged_json(saved.serialize(), r)
    path = _folder() / "state.json"
    path.write_bytes(text)
    found = ndd.checkpoint.Checkpoint()
    found.load(str(path))
    fresh, other = _reader(), ndd.random.RNG(seed=0)
    found.register(fresh, "reader")
    found.register(other, "rng")
    for _ in range(3):
        data, labels = fresh(batch_size=2)
        for sample, label in zip(data.tensors, labels.tensors, strict=True):
            assert np.asarray(sample).tolist() == [int(np.asarray(label).item())]
        other()
    found.collect()
    found.deserialize(found.serialize())
    return "read"


def _reader() -> Any:
    files = [_folder() / f"{k}.bin" for k in range(7)]
    if not files[0].exists():
        for k, file in enumerate(files):
            file.write_bytes(bytes([k]))
    return ndd.readers.File(files=[str(f) for f in files], random_shuffle=True, seed=3)


def _damaged_json(text: str, r: random.Random) -> bytes:
    """Other values anywhere in the tree, or other bytes."""
    content = json.loads(text)
    for _ in range(size_limit(r.choice((1, 1, 2, 3)))):
        if r.random() < 0.6:
            content = _with_value(content, r)
    data = json.dumps(content).encode("utf-8", "replace")
    choice = r.random()
    if choice < 0.7:
        return data
    at = r.randrange(len(data))
    if choice < 0.8:
        return data[:at]
    if choice < 0.9:
        return data[:at] + r.choice((b"\xff", b"}", b'"', b"[", b"1e999", b"\0")) + data[at + 1 :]
    deep = r.choice((b"[", b'{"a":')) * r.choice((50, 2000, 100_000))
    return data[:at] + deep + data[at:]


def _with_value(content: Any, r: random.Random) -> Any:
    """The tree with one value exchanged, removed or added."""
    if isinstance(content, (dict, list)) and content and r.random() < 0.85:
        keys = [*content] if isinstance(content, dict) else [*range(len(content))]
        key = r.choice(keys)
        changed = dict(content) if isinstance(content, dict) else list(content)
        choice = r.random()
        if choice < 0.08:
            del changed[key]  # type: ignore[arg-type]
        elif choice < 0.14 and isinstance(changed, dict):
            changed[str(r.choice(STRANGE))] = changed.pop(key)
        else:
            changed[key] = _with_value(content[key], r)  # type: ignore[index]
        return changed
    if isinstance(content, int) and r.random() < 0.5:
        return content + r.choice((-1, 1, 2**31, -(2**31), 2**62))
    return r.choice(STRANGE)


# -- lists of files, and folders -----------------------------------------------------------------


def listing(seed: int, number: int) -> str:
    """A text file with names and labels."""
    rng, r = np.random.default_rng([seed, number]), random.Random(f"{seed} {number}")
    _reader()
    lines = [b"%d.bin %d" % (k, k) for k in range(7)]
    data = b"\n".join(lines) + b"\n"
    odd = [b"\0", b"\xff\xfe", b" " * 1000, b"99999999999999999999", b"-1", b"1e5", b"../" * 50, b"/dev/zero",
           b"\r\n", b"x" * 100_000, b"\x0b", b"\xe2\x80\xa8", b"/proc/self/mem", b"\t", b"0x10", b"\n" * 100]  # fmt: skip
    for _ in range(size_limit(r.choice((1, 2, 3)))):
        if r.random() < 0.5:
            at = r.randrange(len(data) + 1)
            data = data[:at] + r.choice(odd) + data[at + r.randrange(4) :]
        else:
            data = mutated(data, [], {"other": b"0.bin 5\n"}, rng)
    path = _folder() / "list.txt"
    path.write_bytes(data)
    reader = ndd.readers.File(file_list=str(path), on_error=r.choice(("raise", "skip", "fill")))
    for files, labels in reader.next_epoch(batch_size=3):
        for sample, label in zip(files.tensors, labels.tensors, strict=True):
            assert np.asarray(sample).size <= 100_000 and np.asarray(label).dtype == np.int32
    return "read"


def _write(entry: Path) -> None:
    entry.write_bytes(b"content")


def _write_secret(entry: Path) -> None:
    entry.write_bytes(b"content")
    entry.chmod(0)


_ENTRIES: dict[str, Callable[[Path], object]] = {
    "file": _write, "secret": _write_secret, "loop": lambda e: e.symlink_to(e.name),
    "dangling": lambda e: e.symlink_to("/nowhere"), "device": lambda e: e.symlink_to("/dev/zero"),
    "pipe": os.mkfifo, "folder": Path.mkdir,
}  # fmt: skip


def tree(seed: int, number: int) -> str:
    """A folder of folders with links in loops, pipes, odd names, and files that cannot be read."""
    r = random.Random(f"{seed} {number}")
    with tempfile.TemporaryDirectory(dir=_folder()) as made:
        root, sound = Path(made), 0
        for k in range(3):
            (root / f"class{k}").mkdir()
        for k in range(size_limit(8)):
            folder = r.choice(("class0", "class1", "class2", ""))
            start = r.choice((b"a", b"\xff\xfe", b"b c", b"\n", b"x" * 200, b"*", b"-", b"[a]"))
            kind = r.choice((*_ENTRIES, "file"))
            entry = root / folder / os.fsdecode(start + b"%d.jpg" % k)
            _ENTRIES[kind](entry)
            can_be_read = kind == "file" or (kind == "secret" and os.geteuid() == 0)
            sound += bool(folder) and can_be_read
        reader = ndd.readers.File(file_root=str(root), on_error="fill")
        found = [
            np.asarray(t).size
            for files, _ in reader.next_epoch(batch_size=1)
            for t in files.tensors
        ]
        assert found.count(7) == sound and set(found) <= {0, 7}, (found, sound)
    return "read"


_made: list[tempfile.TemporaryDirectory[str]] = []


def _folder() -> Path:
    if not _made:
        _made.append(tempfile.TemporaryDirectory())
    return Path(_made[0].name)


WHATS: dict[str, Case] = {f.__name__: f for f in (npy, checkpoint, listing, tree, blocks)}


def attack(what: str, seed: int, count: int) -> dict[str, Any]:
    counts: Counter[str] = Counter(tried=0)
    before = None
    for number in numbers(count):
        begin = time.process_time()
        try:
            counts[WHATS[what](seed, number)] += 1
        except AssertionError:
            raise
        except EXPECTED as error:
            assert not isinstance(error, RecursionError), error
            counts["refused"] += 1
        seconds = time.process_time() - begin
        assert seconds < MOST_SECONDS, f"case {number} took {seconds:.1f} s"
        counts["tried"] += 1
        if counts["tried"] == 50:
            before = Resources()
    if before is not None:
        before.check()
    return dict(counts)


if __name__ == "__main__":
    main(attack)
