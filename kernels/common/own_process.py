"""A function of this package → the command of a Python process that runs it.

NOTE [where code comes from] Python puts the current directory first on its path for `-m` and `-c`,
and a file `ndd.py` or `numba.py` there would run. So every process of ours starts with `-P`, loads
this very package from its place, and gets no relative entries of PYTHONPATH: this process may have
changed its directory since it read them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

_START = """
import importlib, importlib.util, sys
place, module, function, *arguments = sys.argv[1:]
spec = importlib.util.spec_from_file_location(
    "ndd", place + "/__init__.py", submodule_search_locations=[place]
)
package = sys.modules["ndd"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
getattr(importlib.import_module(module), function)(*arguments)
"""


def can_start() -> bool:
    """Whether this is a Python interpreter; if Python is embedded, it is some other program."""
    return Path(sys.executable or "").name.startswith("python")


def command(module: str, function: str, *arguments: Any) -> list[str]:
    """The command that calls `function(*arguments)`; arguments arrive as strings."""
    place = str(Path(__file__).absolute().parents[2])
    return [sys.executable, "-P", "-c", _START, place, module, function, *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    """The variables of such a process: ours, without relative entries of PYTHONPATH."""
    found = {**os.environ, **more}
    entries = [p for p in found.pop("PYTHONPATH", "").split(os.pathsep) if Path(p).is_absolute()]
    return found | ({"PYTHONPATH": os.pathsep.join(entries)} if entries else {})
