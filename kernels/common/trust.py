"""Paths → whether only this user and root can have written there, so that code may be loaded.

A folder is safe if it and every folder above it belong to this user or to root, and nobody else may
write to them. Others may write to a folder with the sticky bit, such as /tmp: there they cannot
rename or remove what is ours. Symbolic links are followed one by one, and are held to the same
rules: whoever may exchange a link decides where it points.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40  # as many as Linux follows


def make_folder(path: Path) -> str | None:
    """Make a folder and those above it, for this user alone; return why it is not safe, or None.

    Raises an OSError if the folder does not exist and cannot be made.
    """
    absolute = path.absolute()
    at, links = Path(absolute.root), 0
    left = [*reversed(absolute.parts[1:])]
    reason = _danger(at, at.lstat())
    while left and reason is None:
        name = left.pop()
        if name == "..":
            at = at.parent
            continue
        entry = at / name
        found = _lstat_or_make(entry)
        reason = _danger(entry, found)
        if not stat.S_ISLNK(found.st_mode):
            at = entry
            continue
        links += 1
        if links > _MOST_LINKS:
            return f"{path} leads through too many symbolic links"
        target = entry.readlink()
        left += reversed(target.parts[1:] if target.is_absolute() else target.parts)
        at = Path(target.root) if target.is_absolute() else at
    # The last one must not be like /tmp: others could put files into it.
    return reason or _danger(at, at.lstat(), may_be_sticky=False)


def _lstat_or_make(entry: Path) -> os.stat_result:
    try:
        return entry.lstat()
    except FileNotFoundError:
        # Not by the user's umask, which may let a group write.
        entry.mkdir(mode=0o700, exist_ok=True)
        return entry.lstat()


def danger_of_file(path: Path, found: os.stat_result) -> str | None:
    """Why a file is not safe to load code from, or None; `found` describes the opened file."""
    if not stat.S_ISREG(found.st_mode):
        return f"{path} is not a regular file"
    return _danger(path, found)


def danger_within(folder: Path) -> str | None:
    """Why something in a folder, at any depth, is not safe to load code from, or None."""
    for above, folders, files in os.walk(folder):
        for name in (*folders, *files):
            entry = Path(above, name)
            try:
                reason = _danger(entry, entry.lstat())
            except FileNotFoundError:
                continue  # a temporary file of another process
            if reason is not None:
                return reason
    return None


def _danger(entry: Path, found: os.stat_result, may_be_sticky: bool = True) -> str | None:
    """Why an entry of a folder is not safe, or None."""
    if found.st_uid not in (os.geteuid(), 0):
        return f"{entry} belongs to another user (uid {found.st_uid})"
    if stat.S_ISLNK(found.st_mode):  # its mode means nothing
        return None
    is_sticky = may_be_sticky and stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    if found.st_mode & _OTHERS_WRITE and not is_sticky:
        return f"{entry} can be written by others (mode {stat.S_IMODE(found.st_mode):o})"
    return None
