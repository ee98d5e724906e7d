"""Input from files.

>>> import ndd, pathlib, tempfile
>>> path = pathlib.Path(tempfile.mkdtemp()) / "greeting.txt"
>>> _ = path.write_bytes(b"hello")
>>> ndd.io.file.read(path).shape
(5,)
"""

from __future__ import annotations

from . import file

__all__ = ["file"]
