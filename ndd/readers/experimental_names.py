"""Readers that upstream has under the name `experimental.readers`.

>>> import ndd
>>> ndd.experimental.readers.Fits.__name__
'Fits'
"""

from __future__ import annotations

from .experimental_video import ExperimentalVideo as Video
from .fits import Fits

__all__ = ["Fits", "Video"]
