"""Tar archives as data sets: an archive or its index enters, samples with their components leave.

Members with the same name up to the first dot after the last slash are the components of a sample;
they follow each other in the archive. Nothing is ever extracted: member names are only compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ...tools.outputs import write_output
from .byte_files import ByteFile, open_bytes, read_whole

if TYPE_CHECKING:
    from .remote import RemoteOptions

BLOCK_BYTES = 512
VERSIONS = ("v1.1", "v1.2")
_REGULAR = (b"0", b"\0", b"7")
# Long names are members of their own. No file system has names of more than a few thousand bytes.
_MAX_NAME_BYTES = 1 << 20


class Member(NamedTuple):
    """A regular file of an archive."""

    name: str
    offset: int
    size: int


class Component(NamedTuple):
    """A part of a sample: its extension, place and name (which old indexes lack)."""

    ext: str
    offset: int
    size: int
    name: str


def members(path: str, remote: RemoteOptions | None = None) -> Iterator[Member]:
    """All regular files of an archive, in order."""
    file = open_bytes(path, remote)
    if file.size == 0:
        raise ValueError(f"{path!r} is empty, not a tar archive")
    long_name: str | None = None
    long_size: int | None = None
    at, block = 0, bytearray(BLOCK_BYTES)
    while at < file.size:
        if file.read_into(memoryview(block), at) < BLOCK_BYTES:
            raise _damaged(path, at, "the file ends inside of a header")
        if not any(block):
            return  # the end of the archive
        size = _header_size(path, at, block)
        kind, begin = bytes(block[156:157]), at + BLOCK_BYTES
        is_file = kind in _REGULAR
        if is_file and long_size is not None:
            size = long_size
        if size > file.size - begin:
            raise _damaged(path, at, f"a member of {size} bytes, but {file.size - begin} are left")
        if kind == b"L":
            long_name = _text(_extra(file, path, at, begin, size)).partition("\0")[0]
        elif kind == b"x":
            long_name, long_size = _pax(path, at, _extra(file, path, at, begin, size))
        elif kind in b"gKV":
            pass  # settings for all members, long targets of links, a name of the archive
        elif kind == b"S":
            raise _damaged(path, at, "a sparse file, which is not supported")
        else:
            if is_file:
                yield Member(_name(block) if long_name is None else long_name, begin, size)
            long_name = long_size = None
        if is_file or kind in b"LxgKV":
            at = begin + -(-size // BLOCK_BYTES) * BLOCK_BYTES
        else:
            at = begin + (0 if kind in b"123456" else -(-size // BLOCK_BYTES) * BLOCK_BYTES)


def _header_size(path: str, at: int, block: bytearray) -> int:
    """The size of a member, after a check of the header's checksum."""
    stored = _number(bytes(block[148:156]))
    found = sum(block) - sum(block[148:156]) + 8 * 32
    if stored != found:
        raise _damaged(path, at, "the checksum of the header is wrong")
    size = _number(bytes(block[124:136]))
    if size is None or size < 0:
        raise _damaged(path, at, f"an invalid size: {bytes(block[124:136])!r}")
    return size


def _number(field: bytes) -> int | None:
    """A number in octal digits, or in binary if the first bit is set."""
    if field[0] & 0x80:
        return int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
    try:
        return int(field.partition(b"\0")[0].strip() or b"0", 8)
    except ValueError:
        return None


def _name(block: bytearray) -> str:
    name = _text(bytes(block[:100]).partition(b"\0")[0])
    prefix = _text(bytes(block[345:500]).partition(b"\0")[0])
    is_posix = bytes(block[257:265]) == b"ustar\x0000"
    return f"{prefix}/{name}" if is_posix and prefix else name


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
    folder, slash, file = name.rpartition("/")
    base, _, ext = file.partition(".")
    return folder + slash + base, ext


def scan(path: str, remote: RemoteOptions | None = None) -> Iterator[list[Component]]:
    """The samples of an archive."""
    sample: list[Component] = []
    last: str | None = None
    for member in members(path, remote):
        base, ext = split(member.name)
        if base.rpartition("/")[2] == "":
            continue  # hidden files, such as those of macOS
        if base != last and sample:
            yield sample
            sample = []
        last = base
        sample.append(Component(ext, member.offset, member.size, member.name))
    if sample:
        yield sample


def read_index(path: str, remote: RemoteOptions | None = None) -> Iterator[list[Component]]:
    """The samples of an index file."""
    lines = read_whole(path, remote).decode("utf-8", "surrogateescape").splitlines()
    head = lines[0].split() if lines else []
    if not head:
        raise ValueError(f"index {path!r} is empty; its first line must be a version and a count")
    if head[0] not in VERSIONS:
        raise ValueError(
            f"index {path!r} has version {head[0]!r}, known are {' and '.join(VERSIONS)}: make it "
            f"anew with `python -m ndd index tar FILES…`"
        )
    if len(head) != 2 or not head[1].isdigit() or int(head[1]) == 0:
        raise ValueError(
            f"line 1 of index {path!r} must be a version and a positive number of samples, got "
            f"{lines[0]!r}"
        )
    count, width = int(head[1]), 4 if head[0] == "v1.2" else 3
    if count > len(lines) - 1:
        raise ValueError(
            f"index {path!r} has {len(lines) - 1} samples, not {count} as its head says"
        )
    for number in range(1, count + 1):
        yield _components(path, number + 1, lines[number], width)


def _components(path: str, number: int, line: str, width: int) -> list[Component]:
    words = line.split(" ")
    words = words if all(words) else line.split()
    wanted = "<ext> <offset> <size>" + (" <name>" if width == 4 else "")
    if not words or len(words) % width:
        raise _malformed(path, number, wanted, line)
    found = []
    for k in range(0, len(words), width):
        ext, offset, size, *name = words[k : k + width]
        if not (offset.isdigit() and size.isdigit()) or len(offset + size) > 36:
            raise _malformed(path, number, wanted, line)
        if int(offset) % BLOCK_BYTES:
            raise ValueError(
                f"line {number} of index {path!r}: offset {offset} is not a multiple of "
                f"{BLOCK_BYTES}"
            )
        found.append(Component(ext, int(offset), int(size), name[0] if name else ""))
    return found


def _malformed(path: str, number: int, wanted: str, line: str) -> ValueError:
    return ValueError(
        f"line {number} of index {path!r} must be `{wanted}` for each component, got {line[:80]!r}"
    )


def write_index(path: str, index_path: str) -> int:
    """Write the index of an archive; returns the number of samples."""
    lines = []
    for sample in scan(path):
        for c in sample:
            if not c.ext or any(ch.isspace() for ch in c.ext + c.name):
                raise ValueError(f"{path!r}: an index cannot hold the name {c.name!r}")
        lines.append(" ".join(f"{c.ext} {c.offset} {c.size} {c.name}" for c in sample) + "\n")
    write_output(index_path, f"v1.2 {len(lines)}\n" + "".join(lines))
    return len(lines)
