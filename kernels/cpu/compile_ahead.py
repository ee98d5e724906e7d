"""Names of helpers → object files in the cache, compiled by a second process, once per machine.

Numba compiles one function at a time, even if many threads ask. A program that decodes JPEG files
will most likely resize them. So if it decodes the first ones and the cache is empty, a second
process compiles the helpers of a resize, in the order of `USUAL`, while this process compiles other
things. The first batch of ResNet-50's training loop comes 1 to 2 s earlier (of 5.5 to 6.5, on two
cores of a busy machine). NDD_COMPILE_AHEAD=0 disables it.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..common import own_process
from ..common.disk_cache import LOCK_SECONDS, is_usable

# This process takes them from the end, so the two meet wherever they have got to.
USUAL = (
    "sum_band_u8_3", "sum_rows_f32_ring", "fill_taps", "sum_rows_u8", "pad_row", "sum_columns_3"
)  # fmt: skip
_process: subprocess.Popen[bytes] | None = None


def begin(missing: list[str], folder: Path) -> None:
    """Start the second process if helpers are missing and `folder` is writable."""
    global _process
    is_wanted = os.environ.get("NDD_COMPILE_AHEAD") != "0" and (os.cpu_count() or 1) > 1
    is_possible = own_process.can_start() and is_usable(folder) and os.access(folder, os.W_OK)
    if _process is not None or not missing or not is_wanted or not is_possible:
        return
    with suppress(OSError):  # on failure this process compiles everything itself
        _process = subprocess.Popen(
            own_process.command("ndd.kernels.cpu.compile_ahead", "main", *missing),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True, env=own_process.environment(NDD_COMPILE_AHEAD="0"),
        )  # fmt: skip
        atexit.register(_leave)


def turn(name: str) -> int:
    """Sort key for this process: first other helpers, then those of `USUAL` from the end."""
    return -USUAL.index(name) if name in USUAL else -len(USUAL)


def wait_for(name: str, file: Callable[[str], Path]) -> None:
    """Wait while the second process compiles this helper; return at once if it does not."""
    end = time.monotonic() + LOCK_SECONDS
    while _process is not None and name in USUAL and _process.poll() is None:
        if time.monotonic() > end:
            return
        if name != next((n for n in USUAL if not file(n).exists()), None):
            return
        time.sleep(0.005)


def _leave() -> None:
    """Leave the second process to finish, and keep `Popen` from warning that it still runs."""
    if _process is not None and _process.poll() is None:
        _process.returncode = 0


def main(*names: str) -> None:
    """Compile helpers; what the second process does."""
    from . import helpers as cpu_helpers
    from .runtime import link, machine

    for name in names:
        cpu_helpers.ensure([name], machine(), link)
