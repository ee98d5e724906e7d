"""The error for arguments given by position that an op takes only by name: it says which one."""

from __future__ import annotations

from typing import Any

from ..kernels.ir.dtypes import DType
from .errors import user_site
from .schema import REQUIRED, OpDef, Param

# Arguments that people give by position, the likeliest first.
_MAIN = ("size", "crop", "angle", "matrix", "shape", "dtype", "axes", "axis", "range", "sigma")
MAX_NAMES = 3  # in a message
MAX_SHOWN = 40  # characters of a value


def too_many(op: OpDef, extra: tuple[Any, ...]) -> TypeError:
    """The error for a call with more positional arguments than an op takes."""
    taken = [f"`{p.name}`" for p in op.params if p.positional]
    by_name = [p for p in op.others if not p.positional and _may_mean(p, extra[0])]
    names = " or ".join(f"`{p.name}=`" for p in sorted(by_name, key=_rank)[:MAX_NAMES])
    advice = f"give {_shown(extra[0])} by name" + (f", as {names}" if names else "")
    listed = f" ({', '.join(taken)})" if taken else ""
    return TypeError(
        f"{op.name.rpartition('.')[2]}() takes {len(taken)} positional "
        f"argument{'s' * (len(taken) != 1)}{listed}, got {len(taken) + len(extra)}; {advice} "
        f"(called at {user_site()})"
    )


def _shown(value: Any) -> str:
    if isinstance(value, (bool, int, float, str, list, tuple)):
        text = repr(value)
        if len(text) < MAX_SHOWN:
            return text
    return f"the {type(value).__name__}"


def _rank(p: Param) -> tuple[bool, int]:
    """Required arguments come first, then the usual ones."""
    return p.default is not REQUIRED, _MAIN.index(p.name) if p.name in _MAIN else len(_MAIN)


def _may_mean(p: Param, value: Any) -> bool:
    """Whether a value may be meant for a parameter, judged by its kind."""
    if isinstance(value, str):
        return p.type is str or isinstance(p.type, tuple)
    if isinstance(value, DType):
        return p.type is DType
    if isinstance(value, bool):
        return p.type in (bool, int) and not p.vector
    if p.type in ("ints", "floats"):
        return True
    is_list = isinstance(value, (list, tuple)) or bool(getattr(value, "ndim", 0))
    return p.type in (int, float, None) and (p.vector or not is_list)
