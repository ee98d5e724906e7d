"""Bytes that a user wants in a file → that file, complete or as it was before."""

from __future__ import annotations

import os
from pathlib import Path

from ..kernels.common.replacing import (
    NotRegularFileError,
    followed,
    mode_of_new_files,
    replace_file,
)


def write_output(path: str | os.PathLike[str], data: bytes | str) -> None:
    """Write a file so that a process that dies leaves the old one, or none.

    Pipes and devices cannot be replaced, so they are written to.
    """
    content = data.encode() if isinstance(data, str) else data
    target = Path(path)
    try:
        replace_file(followed(target), content, mode_of_new_files())
    except NotRegularFileError:
        target.write_bytes(content)
