"""Where Triton keeps compiled kernels and its own shared libraries, which it loads and runs.

The rules of the CPU's cache hold here, too: only folders in which nobody but this user and root can
have put something (common/trust.py). Else Triton gets a folder of this process alone.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ..common import background, forks, trust
from ..common.disk_cache import cache_dir, is_usable, one_process, report
from ..common.memo import memoized

V = TypeVar("V")

interpreting = forks.foreign_lock()  # held while Triton compiles or interprets: both patch it
_is_imported = False  # completely; `sys.modules` also has modules that are being imported
_own: Path | None = None  # a folder of this process alone, removed at exit


def call(function: Callable[..., V], *arguments: Any, name: str = "") -> V:
    """Call a function of Triton with a safe cache; one process at a time for each name."""
    knobs = import_triton().knobs
    with interpreting:
        folder = _folder(Path(os.environ.get("TRITON_CACHE_DIR") or cache_dir() / "gpu" / "triton"))
        with one_process(folder / name), knobs.cache.scope():
            knobs.cache.dir = str(folder)
            return function(*arguments)


def _folder(wanted: Path) -> Path:
    """The wanted folder, or one of this process alone if others may have written to it."""
    global _own
    if is_usable(wanted) and _is_sound(wanted.absolute()):
        return wanted
    if _own is None:
        _own = Path(tempfile.mkdtemp(prefix="ndd-triton-"))
    return _own


@memoized(64)
def _is_sound(folder: Path) -> bool:
    """Whether all files in a folder are safe. Triton opens them itself, so we check all, once."""
    reason = trust.danger_within(folder)
    if reason is not None:
        report(f"Triton's cache {folder} is not used: {reason}")
    return reason is None


@background.before_exit
def _remove() -> None:
    if _own is not None:
        shutil.rmtree(_own, ignore_errors=True)


@forks.in_child
def _forget() -> None:
    """The folder is the parent's, who removes it."""
    global _own
    _own = None


def import_triton() -> Any:
    """Import Triton, or raise an error that says how to install it."""
    found = sys.modules.get("triton")
    if found is not None and _is_imported:
        return found
    try:
        return background.uninterrupted(_import)
    except ImportError:
        raise RuntimeError(
            'device="gpu" needs Triton, also if simulated: pip install "ndd-fusion[gpu]"'
        ) from None


def _import() -> Any:
    global _is_imported
    import triton
    import triton.runtime.interpreter

    _is_imported = True
    return triton
