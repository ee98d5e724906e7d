"""`python -m ndd index tfrecord|tar|recordio FILES…`: writes index files beside data files."""

from __future__ import annotations

import sys
from collections.abc import Callable


def writers() -> dict[str, Callable[[str, str], int]]:
    """The kinds of files that have indexes, and what writes one."""
    from ..readers.stores import recordio, tar, tfrecord_file

    return {
        "tfrecord": tfrecord_file.write_index,
        "tar": tar.write_index,
        "recordio": recordio.write_index,
    }


def index(kind: str, files: list[str], output: str | None) -> int:
    """Write `FILE.idx` for each file, or `output` for a single one."""
    if output is not None and len(files) != 1:
        print(f"--output names one index, but there are {len(files)} files", file=sys.stderr)
        return 2
    for file in files:
        target = output or f"{file}.idx"
        try:
            count = writers()[kind](file, target)
        except (OSError, ValueError) as error:
            print(f"{file}: {error}", file=sys.stderr)
            return 1
        print(f"{target}: {count} records")
    return 0
