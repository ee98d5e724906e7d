"""Parts of torch's data loading: `nodes` for torchdata.

They are imported on first use, because they need torch and torchdata.

>>> import ndd
>>> ndd.pytorch.nodes.ToTorch.__name__
'ToTorch'
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from ..core.suggestions import missing

if TYPE_CHECKING:
    from . import nodes

__all__ = ["nodes"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise missing(sys.modules[__name__], name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
