"""Lists files: a folder of folders, a text file or a list of names enters, a `Listing` leaves.

A million files take a second or two and about 50 bytes each: names are never kept as strings.
"""

from __future__ import annotations

import errno
import fnmatch
import io
import itertools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..fusion.graph.shapes import Array
from .names import Names

if TYPE_CHECKING:
    from .stores.remote import RemoteOptions

# Names that exist as Python objects at a time. Each takes about 400 bytes as a line of a list.
_CHUNK = 1 << 12
_INT32 = np.iinfo(np.int32)


class Listing:
    """Names relative to a folder, and their labels."""

    def __init__(self, root: bytes, names: Names, labels: Array) -> None:
        names.finish()
        self.names, self.labels = names, labels
        self._prefix = _folder(root)

    def __len__(self) -> int:
        return len(self.labels)

    def name(self, index: int) -> str:
        """The name as it was found or given."""
        return os.fsdecode(self.names[index])

    def path(self, index: int) -> bytes:
        """The path of the file."""
        name = self.names[index]
        return name if name.startswith(b"/") or b"://" in name else self._prefix + name

    def fingerprint(self) -> str:
        """A checksum of all names, as text."""
        return f"{self.names.checksum:08x}"


def _folder(path: bytes) -> bytes:
    """The prefix of all paths in a folder."""
    return path if not path or path.endswith(b"/") else path + b"/"


def matcher(patterns: Sequence[str], case_sensitive: bool) -> Callable[[bytes], bool]:
    """A function that tests whether a name fits one of these shell patterns (``*.jpg``)."""
    patterns = list(patterns) if case_sensitive else [p.lower() for p in patterns]
    is_ending = re.compile(r"\*[^*?\[]*", re.ASCII).fullmatch
    endings = tuple(p[1:].encode() for p in patterns if p.isascii() and is_ending(p))
    others = [fnmatch.translate(p) for p in patterns if not (p.isascii() and is_ending(p))]
    other = re.compile("|".join(others) or r"(?!)").match

    def fits(name: bytes) -> bool:
        # Nearly all filters are endings, and `endswith` is ten times as fast as a regex.
        if (name if case_sensitive else name.lower()).endswith(endings):
            return True
        if not others:
            return False
        text = os.fsdecode(name)  # `?` stands for a character, not for a byte
        return other(text if case_sensitive else text.lower()) is not None

    return fits


def from_tree(
    root: bytes, fits_file: Callable[[bytes], bool], fits_folder: Callable[[bytes], bool] | None
) -> Listing:
    """Files in the folders of `root`, sorted; the label is the index of the folder."""
    with os.scandir(root) as entries:
        folders = sorted(e.name for e in entries if _is_folder(e))
    if fits_folder is not None:
        folders = [f for f in folders if fits_folder(f)]
    names, counts = Names(), []
    for folder in folders:
        with os.scandir(_folder(root) + folder) as entries:
            # List links that lead nowhere, too, so that they cause an error when they are read
            # and do not just go missing. `is_file` would follow a link in a loop and raise.
            found = [
                e.name for e in entries if fits_file(e.name) and (e.is_symlink() or e.is_file())
            ]
        found.sort()
        counts.append(len(found))
        for start in range(0, len(found), _CHUNK):
            names.add([folder + b"/" + name for name in found[start : start + _CHUNK]])
    labels = np.repeat(np.arange(len(folders), dtype=np.int32), counts)
    return Listing(root, names, labels)


def from_flat_tree(root: bytes, fits_file: Callable[[bytes], bool]) -> Listing:
    """Files in a folder, then those in its folders, all sorted."""
    with os.scandir(root) as entries:
        folders = [b".", *sorted(e.name for e in entries if _is_folder(e))]
    names = Names()
    for folder in folders:
        with os.scandir(_folder(root) + folder) as entries:
            found = sorted(
                e.name for e in entries if fits_file(e.name) and (e.is_symlink() or e.is_file())
            )
        names.add([folder + b"/" + name for name in found])
    return unlabelled(root, names)


def unlabelled(root: bytes, names: Names) -> Listing:
    """Names without labels."""
    return Listing(root, names, np.broadcast_to(np.int32(0), len(names)))


def from_remote_tree(
    root: str,
    remote: RemoteOptions,
    fits_file: Callable[[bytes], bool],
    fits_folder: Callable[[bytes], bool] | None,
    with_root: bool,
) -> Listing:
    """The same for the folder of a URL; `with_root` lists files that are in no folder, too."""
    from .stores.remote import list_folders

    tree = list_folders(root, remote)
    folders = sorted(os.fsencode(f) for f in tree if f != ".")
    if fits_folder is not None:
        folders = [f for f in folders if fits_folder(f)]
    names, counts = Names(), []
    for folder in [b".", *folders] if with_root else folders:
        found = sorted(filter(fits_file, map(os.fsencode, tree[os.fsdecode(folder)])))
        counts.append(len(found))
        prefix = b"" if folder == b"." else folder + b"/"  # URLs have no `./`
        names.add([prefix + name for name in found])
    labels = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    return Listing(os.fsencode(root), names, labels)


def from_name_list(root: bytes | None, file_list: str, remote: RemoteOptions) -> Listing:
    """Lines with a name; names are relative to `root` or the list's folder."""
    from .stores.byte_files import read_whole

    if root is None:
        root = os.fsencode(file_list.rpartition("/")[0] or ".")
    names = Names()
    names.add([line for line in read_whole(file_list, remote).splitlines() if line.strip()])
    return unlabelled(root, names)


def _is_folder(entry: os.DirEntry[bytes]) -> bool:
    """Whether it is a folder; a link in a loop is none, like any link that leads nowhere."""
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False


def from_files(root: bytes, files: Iterable[Any], labels: Sequence[int] | None) -> Listing:
    """The given files, with the given labels or 0, 1, 2, …"""
    names = Names()
    given = iter(files)
    while chunk := [os.fsencode(f) for f in itertools.islice(given, _CHUNK)]:
        names.add(chunk)
    if labels is None:
        return Listing(root, names, np.arange(len(names), dtype=np.int32))
    if len(labels) != len(names):
        raise ValueError(f"{len(labels)} labels were given for {len(names)} files")
    return Listing(root, names, _int32(labels))


def _int32(labels: Sequence[int]) -> Array:
    values = np.asarray(labels)
    if values.ndim != 1 or values.dtype.kind not in "iub":
        raise TypeError(
            f"`labels` must be a list of integers, got {values.ndim}-D data of {values.dtype}"
        )
    if values.size and not (_INT32.min <= values.min() and values.max() <= _INT32.max):
        raise ValueError("`labels` must fit into 32 bits")
    return values.astype(np.int32)


def from_file_list(root: bytes | None, file_list: str, remote: RemoteOptions) -> Listing:
    """Lines with a name, spaces and a label; names are relative to `root` or the list's folder."""
    from .stores.byte_files import is_url, read_whole

    if root is None:
        root = os.fsencode(file_list.rpartition("/")[0] or ".")
    names, labels = Names(), []
    opened: Any = (
        io.BytesIO(read_whole(file_list, remote))
        if is_url(file_list)
        else Path(file_list).open("rb")
    )
    with opened as lines:
        numbered = enumerate(lines, 1)
        while chunk := list(itertools.islice(numbered, _CHUNK)):
            pairs = [_name_and_label(line, n, file_list) for n, line in chunk if line.strip()]
            names.add([name for name, _ in pairs])
            labels.append(np.array([label for _, label in pairs], np.int32))
    return Listing(root, names, np.concatenate(labels) if labels else np.zeros(0, np.int32))


def _name_and_label(line: bytes, number: int, file_list: str) -> tuple[bytes, int]:
    parts = line.rstrip().rsplit(maxsplit=1)  # a name may begin with spaces
    try:
        name, label = parts[0], int(parts[1])
        if _INT32.min <= label <= _INT32.max:
            return name, label
    except (IndexError, ValueError):
        pass
    raise ValueError(
        f"line {number} of {file_list!r} must be a file name and a label (a 32-bit integer), "
        f"got {os.fsdecode(line.strip())!r}"
    )
