"""Readers whose samples are files without labels: a folder, a list or names enter, paths leave."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from . import listing
from .names import Names
from .reader import Reader
from .stores.byte_files import is_url


class ListedFiles(Reader):
    """Base class of readers with `file_root`, `files`, `file_list` and `file_filter`."""

    def _take_files(
        self, where: str, file_root: Any, files: Any, file_list: Any, file_filter: str
    ) -> None:
        """Keep the arguments; `_find_files` uses them."""
        given = (files is not None) + (file_list is not None)
        if given > 1:
            raise ValueError(f"{where}: `files` and `file_list` exclude each other")
        if not given and file_root is None:
            raise ValueError(f"{where}: `file_root`, `files` or `file_list` is needed")
        self._root = None if file_root is None else os.fsdecode(file_root)
        self._files = [files] if isinstance(files, (str, bytes, os.PathLike)) else files
        self._file_list = None if file_list is None else os.fsdecode(file_list)
        self._filter = file_filter

    def _find_files(self) -> listing.Listing:
        """The files, at least one."""
        try:
            found = self._listing()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            named = getattr(error, "filename", None)
            where = "" if named is None else f" {os.fsdecode(named)!r}"
            kind = type(error) if isinstance(error, OSError) else ValueError
            raise kind(f"{self._where}: cannot list{where}: {reason}") from error
        if len(found) == 0:
            what = f" that fit {self._filter!r} in {self._root!r}" if self._files is None else ""
            raise ValueError(f"{self._where}: no files found{what}")
        self._files = None  # the user's list may be large
        return found

    def _listing(self) -> listing.Listing:
        root = None if self._root is None else os.fsencode(self._root)
        if self._files is not None:
            names = Names()
            names.add([os.fsencode(f) for f in self._files])
            return listing.unlabelled(root or b"", names)
        if self._file_list is not None:
            return listing.from_name_list(root, self._file_list, self._remote)
        assert self._root is not None and root is not None
        fits = listing.matcher([self._filter], case_sensitive=True)
        if is_url(self._root):
            return listing.from_remote_tree(self._root, self._remote, fits, None, with_root=True)
        if not Path(self._root).is_dir():
            raise NotADirectoryError(20, "Not a folder", self._root)
        return listing.from_flat_tree(root, fits)
