"""Packages that only some programs need."""

from __future__ import annotations

import importlib
from typing import Any


def need(module: str, for_what: str, extra: str) -> Any:
    """Import a module of an optional package; if it is missing, the error says what to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != package:
            raise
        raise ImportError(
            f'{for_what} needs {package}, which is not installed: pip install "ndd-fusion[{extra}]"'
        ) from None
