"""Tar archives as data sets: an archive or its index enters, samples with their components leave.

Members with the same name up to the first dot after the last slash are the components of a sample;
they follow each other in the archive. Nothing is ever extracted: member names are only compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...fusion.graph.shapes import Array
from ...fusion.graph.storage import address_of
from ...kernels.cpu.helpers import function
from ...tools.outputs import write_output
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
# Headers of small members are found in windows of this size: 10⁶ of them need few reads. Looking
# for one member needs a small one.
_WINDOW_BYTES, _SMALL_WINDOW_BYTES = 1 << 20, 1 << 14
_MAX_LINE_BYTES = 1 << 16  # of an index that are searched for a name
_EXT_BYTES = 16  # of an extension, in rows of `tar_headers`
_LINES = 1 << 14  # of an index that are parsed at a time
# Long names are members of their own. No file system has names of more than a few thousand bytes.
_MAX_NAME_BYTES = 1 << 20


class Member(NamedTuple):
    """A regular file of an archive."""

    name: str
    offset: int
    size: int


class Components(NamedTuple):
    """Parts of samples, in columns: a piece of an archive, or of its index."""

    is_new: Array  # whether another sample begins
    ext: Array  # the number of the extension among those that are wanted, or -1
    offsets: Array
    sizes: Array
    lines: Array | None  # where in an index its line begins, in bytes


class Wanted:
    """The extensions that a reader wants, by number."""

    def __init__(self, exts: Sequence[str], fold: bool = False) -> None:
        self._fold = fold
        self._numbers = {self._cased(ext): k for k, ext in enumerate(exts)}

    def _cased(self, ext: str) -> str:
        return ext.lower() if self._fold else ext

    def number(self, ext: str) -> int:
        """The number of an extension, or -1."""
        return self._numbers.get(self._cased(ext), -1)

    def numbers(self, rows: Array, window: memoryview) -> Array:
        """The numbers of the extensions in rows of `tar_headers`."""
        found = np.full(len(rows), -1, np.int64)
        words = np.ascontiguousarray(rows[:, 1:3])
        odd = rows[:, 3] > _EXT_BYTES
        if self._fold:
            letters = words.view(np.uint8)
            odd |= (letters.reshape(-1, _EXT_BYTES) > 127).any(1)
            letters[(letters >= ord("A")) & (letters <= ord("Z"))] += ord("a") - ord("A")
        for ext, number in self._numbers.items():
            raw = ext.encode("utf-8", "surrogateescape")
            if len(raw) <= _EXT_BYTES:
                low, high = np.frombuffer(raw.ljust(_EXT_BYTES, b"\0"), "<i8").tolist()
                same = (words[:, 0] == low) & (words[:, 1] == high) & (rows[:, 3] == len(raw))
                found[same] = number
        for k in np.flatnonzero(odd).tolist():
            name = _name(bytes(window[rows[k, 4] - BLOCK_BYTES : rows[k, 4]]), 0)
            found[k] = self.number(split(name)[1])
        return found


def members(path: str, remote: RemoteOptions | None = None, start: int = 0) -> Iterator[Member]:
    """All regular files of an archive, in order, from a header at `start` on."""
    walk = _Walk(path, remote, start)
    while not walk.is_over:
        walk.read_window(_SMALL_WINDOW_BYTES)
        while walk.has_header():
            member = walk.take()
            if member is not None:
                yield member


def scan(path: str, wanted: Wanted, remote: RemoteOptions | None = None) -> Iterator[Components]:
    """The components of all samples of an archive."""
    walk = _Walk(path, remote)
    last = ""
    while not walk.is_over:
        walk.read_window(_WINDOW_BYTES)
        while walk.has_header():
            found, last = walk.take_many(wanted, last)
            if found is not None:
                yield found
            elif walk.has_header() and (member := walk.take()) is not None:
                base, ext = split(member.name)
                if not _is_hidden(base):
                    yield _one(base != last, wanted.number(ext), member)
                    last = base


def _one(is_new: bool, ext: int, member: Member) -> Components:
    ext_, offset, size = (np.array([n], np.int64) for n in (ext, member.offset, member.size))
    return Components(np.array([is_new]), ext_, offset, size, None)


class _Walk:
    """Goes from header to header of an archive; reads many of them at once if members are small."""

    def __init__(self, path: str, remote: RemoteOptions | None, start: int = 0) -> None:
        self._path, self._at, self.is_over = path, start, False
        self._file = open_bytes(path, remote)
        if self._file.size == 0:
            raise ValueError(f"{path!r} is empty, not a tar archive")
        self._step = 0  # bytes from the last header to the next one
        self._begin, self._window = start, memoryview(b"")
        self._buffer = np.empty(0, np.uint8)
        self._rows = np.empty((0, 6), np.int64)
        self._long_name: str | None = None
        self._long_size: int | None = None

    def read_window(self, size: int) -> None:
        """Read the next header, and more behind it if that reaches many others."""
        if self._step >= size // 16:
            size = BLOCK_BYTES
        if len(self._buffer) < size:
            self._buffer = np.empty(size, np.uint8)
        view = memoryview(self._buffer.data)[:size]
        self._begin, self._window = self._at, view[: self._file.read_into(view, self._at)]
        if len(self._window) < BLOCK_BYTES:
            raise _damaged(self._path, self._at, "the file ends inside of a header")

    def has_header(self) -> bool:
        """Whether the next header is in the window."""
        return not self.is_over and self._at - self._begin <= len(self._window) - BLOCK_BYTES

    def take_many(self, wanted: Wanted, last: str) -> tuple[Components | None, str]:
        """The members with plain headers from here on, if there are any, and the last base name."""
        if len(self._window) == BLOCK_BYTES or (self._long_name, self._long_size) != (None, None):
            return None, last
        if len(self._rows) < len(self._window) // BLOCK_BYTES:
            self._rows = np.empty((len(self._window) // BLOCK_BYTES, 6), np.int64)
        left = self._file.size - self._begin
        job = np.array([address_of(self._buffer), len(self._window), self._at - self._begin, left,
                        -1, 0, 0], np.int64)  # fmt: skip
        function("tar_headers")(address_of(job), len(self._rows), address_of(self._rows))
        end, base, base_size, count = job[[2, 4, 5, 6]].tolist()
        if self._begin + end > self._at:
            self._at = self._begin + end
            self._step = 2 * BLOCK_BYTES
            self.is_over = self._at >= self._file.size
        rows = self._rows[:count]
        rows = rows[rows[:, 3] >= 0]  # no hidden files
        if not len(rows):
            return None, last
        is_new = rows[:, 0] == 0
        head = self._window[rows[0, 4] - BLOCK_BYTES : rows[0, 4]]
        is_new[0] = split(_name(bytes(head), 0))[0] != last
        last = _text(bytes(self._window[base : base + base_size]))
        return Components(is_new, wanted.numbers(rows, self._window), rows[:, 4] + self._begin,
                          rows[:, 5].copy(), None), last  # fmt: skip

    def take(self) -> Member | None:
        """Take in one header; returns the file that it belongs to, if it does."""
        at = self._at - self._begin
        block = bytes(self._window[at : at + BLOCK_BYTES])
        if not any(block):
            self.is_over = True  # the end of the archive
            return None
        if _number(block[148:156]) != sum(block) - sum(block[148:156]) + 8 * 32:
            raise _damaged(self._path, self._at, "the checksum of the header is wrong")
        found = self._take(block)
        self.is_over = self._at >= self._file.size
        return found

    def _take(self, block: bytes) -> Member | None:
        at, kind = self._at, block[156:157]
        begin, is_file = at + BLOCK_BYTES, kind in _REGULAR
        size = _number(block[124:136])
        if size is None or size < 0:
            raise _damaged(self._path, at, f"an invalid size: {block[124:136]!r}")
        if is_file and self._long_size is not None:
            size = self._long_size
        if size > self._file.size - begin:
            left = self._file.size - begin
            raise _damaged(self._path, at, f"a member of {size} bytes, but {left} are left")
        found = None
        if is_file:
            found = Member(self._long_name or _name(block, 0), begin, size)
        else:
            self._take_special(kind, begin, size)
        if is_file or kind not in _ABOUT_NEXT:
            self._long_name = self._long_size = None
        if kind not in _WITHOUT_DATA:
            begin += -(-size // BLOCK_BYTES) * BLOCK_BYTES
        self._step, self._at = begin - at, begin
        return found

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


def _is_hidden(base: str) -> bool:
    """Whether a sample's name is that of a hidden file, such as those of macOS."""
    return not base or base[-1] == "/"


def is_first_version(path: str, remote: RemoteOptions | None = None) -> bool:
    """Whether an index is of version v1.0, which upstream refuses and does not describe."""
    file = open_bytes(path, remote)
    head = bytearray(min(file.size, len(b"v1.0 ")))
    file.read_into(memoryview(head), 0)
    return bytes(head).split() == [b"v1.0"]


def read_index(
    path: str, wanted: Wanted, remote: RemoteOptions | None = None
) -> Iterator[Components]:
    """The components of all samples of an index file."""
    raw = read_whole(path, remote)
    # All lines as texts would take ten times as much memory as the places of their begins.
    starts = np.append(0, np.flatnonzero(np.frombuffer(raw, np.uint8) == ord("\n")) + 1)
    starts = starts if starts[-1] == len(raw) else np.append(starts, len(raw))
    first, *_ = _lines(raw, starts, 0, 1)
    width, count = _head(path, first, len(starts) - 2)
    for begin in range(1, count + 1, _LINES):
        end = min(begin + _LINES, count + 1)
        found = _columns(path, begin + 1, _lines(raw, starts, begin, end), width, wanted)
        if width == 4:
            found = found._replace(lines=starts[begin:end][np.cumsum(found.is_new) - 1])
        yield found


def _lines(raw: bytes, starts: Array, begin: int, end: int) -> list[str]:
    """The lines `begin` … `end` - 1 of an index."""
    end = min(end, len(starts) - 1)
    text = raw[starts[begin] : starts[end]].decode("utf-8", "surrogateescape")
    return text.removesuffix("\n").split("\n")


def _head(path: str, line: str, count: int) -> tuple[int, int]:
    """Words per component, and the number of samples, by the first line of an index."""
    head = line.split()
    if not head:
        raise ValueError(f"index {path!r} is empty; its first line must be a version and a count")
    if head[0] not in VERSIONS:
        raise ValueError(
            f"line 1 of index {path!r} has version {head[0]!r:.40}, known are "
            f"{' and '.join(VERSIONS)}: make it anew with `python -m ndd index tar FILES…`"
        )
    if len(head) != 2 or not (head[1].isascii() and head[1].isdigit()) or set(head[1]) == {"0"}:
        raise ValueError(
            f"line 1 of index {path!r} must be a version and a positive number of samples, got "
            f"{line!r:.80}"
        )
    # Python refuses to parse very long numbers, which are larger than any index.
    if len(head[1]) > 18 or int(head[1]) > count:
        raise ValueError(f"index {path!r} has {count} samples, not {head[1]:.20} as line 1 says")
    return 4 if head[0] == "v1.2" else 3, int(head[1])


def name_in_index(path: str, line: int, offset: int, remote: RemoteOptions | None = None) -> str:
    """The name of a component, in the line of an index that begins at a byte; else nothing."""
    file = open_bytes(path, remote)
    text = bytearray(min(max(0, file.size - line), _MAX_LINE_BYTES))
    file.read_into(memoryview(text), line)
    words = text.partition(b"\n")[0].decode("utf-8", "surrogateescape").split()
    places = zip(words[1::4], words[3::4], strict=False)
    return next((name for place, name in places if place == str(offset)), "")


def _columns(path: str, first: int, lines: Sequence[str], width: int, wanted: Wanted) -> Components:
    """The components in some lines of an index; `first` is the number of the first one."""
    words: list[str] = []
    starts: list[int] = []
    for k, line in enumerate(lines):
        own = line.split()
        if not own or len(own) % width:
            raise _malformed(path, first + k, width, line)
        starts.append(len(words) // width)
        words += own
    texts = words[1::width] + words[2::width]
    if not all(map(_is_number, texts)):
        for k, line in enumerate(lines):
            own = line.split()
            if not all(map(_is_number, own[1::width] + own[2::width])):
                raise _malformed(path, first + k, width, line)
    offsets, sizes = np.array([*map(int, texts)], np.int64).reshape(2, -1)
    uneven = np.flatnonzero(offsets % BLOCK_BYTES)
    if len(uneven):
        at = first + int(np.searchsorted(starts, uneven[0], "right")) - 1
        raise ValueError(
            f"line {at} of index {path!r}: offset {offsets[uneven[0]]} is not a multiple of "
            f"{BLOCK_BYTES}"
        )
    is_new = np.zeros(len(offsets), bool)
    is_new[starts] = True
    exts = np.array([*map(wanted.number, words[0::width])], np.int64)
    return Components(is_new, exts, offsets, sizes, None)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


def _malformed(path: str, number: int, width: int, line: str) -> ValueError:
    wanted = "<ext> <offset> <size>" + (" <name>" if width == 4 else "")
    return ValueError(
        f"line {number} of index {path!r} must be `{wanted}` for each component, got {line[:80]!r}"
    )


def write_index(path: str, index_path: str) -> int:
    """Write the index of an archive; returns the number of samples."""
    lines: list[str] = []
    last: str | None = None
    for name, offset, size in members(path):
        base, ext = split(name)
        if _is_hidden(base):
            continue
        if not ext or any(map(str.isspace, ext + name)):
            raise ValueError(f"{path!r}: an index cannot hold the name {name!r}")
        text = f"{ext} {offset} {size} {name}"
        if base == last:
            lines[-1] += f" {text}"
        else:
            lines.append(text)
        last = base
    text = f"v1.2 {len(lines)}\n" + "".join(f"{line}\n" for line in lines)
    write_output(index_path, text.encode("utf-8", "surrogateescape"))
    return len(lines)
