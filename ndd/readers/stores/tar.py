"""Tar archives as data sets: an archive or its index enters, samples with their components leave.

Members with the same name up to the first dot after the last slash are the components of a sample;
they follow each other in the archive. Nothing is ever extracted: member names are only compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import starmap
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .byte_files import ByteFile, open_bytes, read_whole

if TYPE_CHECKING:
    from .remote import RemoteOptions

BLOCK_BYTES = 512
VERSIONS = ("v1.1", "v1.2")
_REGULAR = (b"0", b"\0", b"7")
_WITHOUT_DATA = (b"1", b"2", b"3", b"4", b"5", b"6")  # links, devices, folders, pipes
# Long names, further settings, settings for all members, long targets of links, the volume's name:
# they do not end what was said about the next file.
_ABOUT_NEXT = (b"L", b"x", b"g", b"K", b"V")
# Headers of small members are found in windows of this size: 10⁶ of them need few reads.
_WINDOW_BYTES = 1 << 16
# Long names are members of their own. No file system has names of more than a few thousand bytes.
_MAX_NAME_BYTES = 1 << 20


class Member(NamedTuple):
    """A regular file of an archive."""

    name: str
    offset: int
    size: int


#: A part of a sample: what tells its sample from the neighbours, its extension, place and name
#: (which old indexes lack). A plain tuple, because an archive may have millions of them.
Component = tuple[str | int, str, int, int, str]


def members(path: str, remote: RemoteOptions | None = None, start: int = 0) -> Iterator[Member]:
    """All regular files of an archive, in order, from a header at `start` on."""
    walk = _Walk(path, remote, start)
    while not walk.is_over:
        yield from starmap(Member, walk.next_window())


class _Walk:
    """Goes from header to header of an archive; reads many of them at once if members are small."""

    def __init__(self, path: str, remote: RemoteOptions | None, start: int = 0) -> None:
        self._path, self._at, self.is_over = path, start, False
        self._file = open_bytes(path, remote)
        if self._file.size == 0:
            raise ValueError(f"{path!r} is empty, not a tar archive")
        self._buffer = bytearray(_WINDOW_BYTES)
        self._step = 0  # bytes from the last header to the next one
        self._long_name: str | None = None
        self._long_size: int | None = None

    def next_window(self) -> list[tuple[str, int, int]]:
        """Name, offset and size of the members whose headers lie in the next window."""
        # Reading on behind a header pays only if that reaches many others.
        wanted = _WINDOW_BYTES if self._step < _WINDOW_BYTES // 16 else BLOCK_BYTES
        view = memoryview(self._buffer)[:wanted]
        begin, window = self._at, bytes(view[: self._file.read_into(view, self._at)])
        if len(window) < BLOCK_BYTES:
            raise _damaged(self._path, begin, "the file ends inside of a header")
        found: list[tuple[str, int, int]] = []
        headers: list[int] = []
        try:
            while not self.is_over and (at := self._at - begin) <= len(window) - BLOCK_BYTES:
                if not window[at] and not any(window[at : at + BLOCK_BYTES]):
                    self.is_over = True  # the end of the archive
                    break
                headers.append(at)
                self._take(window, at, found)
        except ValueError:
            self._check_headers(window, begin, headers)  # the first mistake counts
            raise
        self._check_headers(window, begin, headers)
        return found

    def _check_headers(self, window: bytes, begin: int, headers: list[int]) -> None:
        """Compare the checksums of all headers in a window."""
        blocks = np.frombuffer(window[: len(window) // BLOCK_BYTES * BLOCK_BYTES], np.uint8)
        chosen = blocks.reshape(-1, BLOCK_BYTES)[np.array(headers, np.int64) // BLOCK_BYTES]
        sums = chosen.sum(1, np.int64) - chosen[:, 148:156].sum(1, np.int64) + 8 * 32
        for at, wanted in zip(headers, sums.tolist(), strict=True):
            if _number(window[at + 148 : at + 156]) != wanted:
                text = "the checksum of the header is wrong"
                raise _damaged(self._path, begin + at, text)

    def _take(self, window: bytes, place: int, found: list[tuple[str, int, int]]) -> None:
        """Take in a header, and go on to the next one."""
        at, kind = self._at, window[place + 156 : place + 157]
        begin, is_file = at + BLOCK_BYTES, kind in _REGULAR
        size = _number(window[place + 124 : place + 136])
        if size is None or size < 0:
            text = window[place + 124 : place + 136]
            raise _damaged(self._path, at, f"an invalid size: {text!r}")
        if is_file and self._long_size is not None:
            size = self._long_size
        if size > self._file.size - begin:
            left = self._file.size - begin
            raise _damaged(self._path, at, f"a member of {size} bytes, but {left} are left")
        if is_file:
            found.append((self._long_name or _name(window, place), begin, size))
        else:
            self._take_special(kind, begin, size)
        if is_file or kind not in _ABOUT_NEXT:
            self._long_name = self._long_size = None
        if kind not in _WITHOUT_DATA:
            begin += -(-size // BLOCK_BYTES) * BLOCK_BYTES
        self._step, self._at = begin - at, begin
        self.is_over = begin >= self._file.size

    def _take_special(self, kind: bytes, begin: int, size: int) -> None:
        """Take in what is no file: names of files that follow, folders, links, devices."""
        at = begin - BLOCK_BYTES
        if kind == b"L":
            name = _text(_extra(self._file, self._path, at, begin, size))
            self._long_name = name.partition("\0")[0]
        elif kind == b"x":
            raw = _extra(self._file, self._path, at, begin, size)
            self._long_name, self._long_size = _pax(self._path, at, raw)
        elif kind == b"S":
            raise _damaged(self._path, at, "a sparse file, which is not supported")


def _number(field: bytes) -> int | None:
    """A number in octal digits, or in binary if the first bit is set."""
    if field[0] & 0x80:
        return int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
    try:
        return int(field.partition(b"\0")[0].strip() or b"0", 8)
    except ValueError:
        return None


def _name(window: bytes, at: int) -> str:
    """The name in a header."""
    name = _text(window[at : at + 100].partition(b"\0")[0])
    if not window[at + 345] or window[at + 257 : at + 265] != b"ustar\x0000":
        return name
    prefix = _text(window[at + 345 : at + 500].partition(b"\0")[0])
    return f"{prefix}/{name}"


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _extra(file: ByteFile, path: str, at: int, begin: int, size: int) -> bytes:
    if size > _MAX_NAME_BYTES:
        raise _damaged(path, at, f"a name of {size} bytes")
    found = bytearray(size)
    file.read_into(memoryview(found), begin)
    return bytes(found)


def _pax(path: str, at: int, raw: bytes) -> tuple[str | None, int | None]:
    """Name and size in an extended header: lines of a length, a key and a value."""
    name: str | None = None
    size: int | None = None
    place = 0
    while place < len(raw):
        digits, space, _ = raw[place : place + 20].partition(b" ")
        length = int(digits) if space and digits.isdigit() else 0
        line = raw[place : place + length]
        if length <= len(digits) + 1 or len(line) < length or line[-1:] != b"\n":
            raise _damaged(path, at, "an invalid extended header")
        key, equals, value = line[len(digits) + 1 : -1].partition(b"=")
        if key == b"path" and equals:
            name = _text(value)
        elif key == b"size" and equals:
            if not value.isdigit() or len(value) > 18:
                raise _damaged(path, at, f"an invalid size: {value[:40]!r}")
            size = int(value)
        place += length
    return name, size


def _damaged(path: str, offset: int, what: str) -> ValueError:
    return ValueError(f"{path!r} is no tar archive, or damaged: at offset {offset}: {what}")


def split(name: str) -> tuple[str, str]:
    """The name of a sample, and the extension of its component."""
    dot = name.find(".", name.rfind("/") + 1)
    return (name, "") if dot < 0 else (name[:dot], name[dot + 1 :])


def scan(path: str, remote: RemoteOptions | None = None) -> Iterator[Component]:
    """The components of the samples of an archive."""
    walk = _Walk(path, remote)
    while not walk.is_over:
        for name, offset, size in walk.next_window():
            base, ext = split(name)
            if base and base[-1] != "/":  # not a hidden file, such as those of macOS
                yield base, ext, offset, size, name


def read_index(path: str, remote: RemoteOptions | None = None) -> Iterator[Component]:
    """The components of the samples of an index file."""
    lines = read_whole(path, remote).decode("utf-8", "surrogateescape").splitlines()
    head = lines[0].split() if lines else []
    if not head:
        raise ValueError(f"index {path!r} is empty; its first line must be a version and a count")
    if head[0] not in VERSIONS:
        raise ValueError(
            f"line 1 of index {path!r} has version {head[0]!r}, known are {' and '.join(VERSIONS)}: make "
            f"it anew with `python -m ndd index tar FILES…`"
        )
    if len(head) != 2 or not (head[1].isascii() and head[1].isdigit()) or set(head[1]) == {"0"}:
        raise ValueError(
            f"line 1 of index {path!r} must be a version and a positive number of samples, got "
            f"{lines[0]!r:.80}"
        )
    # Python refuses to parse very long numbers; this one is larger than any index.
    count = int(head[1]) if len(head[1]) < 19 else len(lines)
    width = 4 if head[0] == "v1.2" else 3
    if count > len(lines) - 1:
        raise ValueError(
            f"index {path!r} has {len(lines) - 1} samples, not {head[1]:.20} as line 1 says"
        )
    for number in range(1, count + 1):
        yield from _components(path, number + 1, lines[number], width)


def _components(path: str, number: int, line: str, width: int) -> list[Component]:
    words = line.split(" ")
    words = words if all(words) else line.split()
    wanted = "<ext> <offset> <size>" + (" <name>" if width == 4 else "")
    if not words or len(words) % width:
        raise _malformed(path, number, wanted, line)
    found = []
    for k in range(0, len(words), width):
        ext, offset, size, *name = words[k : k + width]
        digits = offset + size
        if not (digits.isascii() and offset.isdigit() and size.isdigit()) or len(digits) > 36:
            raise _malformed(path, number, wanted, line)
        if int(offset) % BLOCK_BYTES:
            raise ValueError(
                f"line {number} of index {path!r}: offset {offset} is not a multiple of "
                f"{BLOCK_BYTES}"
            )
        found.append((number, ext, int(offset), int(size), name[0] if name else ""))
    return found


def _malformed(path: str, number: int, wanted: str, line: str) -> ValueError:
    return ValueError(
        f"line {number} of index {path!r} must be `{wanted}` for each component, got {line[:80]!r}"
    )


def write_index(path: str, index_path: str) -> int:
    """Write the index of an archive; returns the number of samples."""
    from pathlib import Path

    lines: list[str] = []
    last: str | int | None = None
    for key, ext, offset, size, name in scan(path):
        if not ext or any(map(str.isspace, ext + name)):
            raise ValueError(f"{path!r}: an index cannot hold the name {name!r}")
        text = f"{ext} {offset} {size} {name}"
        if key == last:
            lines[-1] += f" {text}"
        else:
            lines.append(text)
        last = key
    text = f"v1.2 {len(lines)}\n" + "".join(f"{line}\n" for line in lines)
    Path(index_path).write_bytes(text.encode("utf-8", "surrogateescape"))
    return len(lines)
