"""Errors that name the op, the cause and the user's line."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType

from ..fusion.graph.sites import Site, at_site
from ..kernels.common.memo import Memo

_HERE = Path(__file__).parents[1]
# fusion and kernels are symlinks, so their files have two paths.
_FOLDERS = tuple(
    f"{folder}{os.sep}"
    for folder in (_HERE, _HERE.resolve(), *((_HERE / n).resolve() for n in ("fusion", "kernels")))
)
_DEMO = str(_HERE / "tools" / "demo.py")  # counts as user code
_ours: Memo[str, bool] = Memo("files of this package", 4096)


def _is_ours(file: str) -> bool:
    ours = _ours[file] = file != _DEMO and file.startswith((*_FOLDERS, "<ndd"))
    return ours


def user_site() -> Site:
    """File and line of the innermost frame outside of this package."""
    frame: FrameType | None = sys._getframe(1)
    known = _ours.get
    while frame is not None:
        file = frame.f_code.co_filename
        ours = known(file)
        if ours is None:
            ours = _is_ours(file)
        if not ours:
            return Site(file, frame.f_lineno)
        frame = frame.f_back
    return Site("<unknown>", 0)


__all__ = ["at_site", "user_site"]
