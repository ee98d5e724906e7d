"""Static choices of an op call: checked, completed by defaults, and remembered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..kernels.ir import dtypes as dt
from ..kernels.ir.dtypes import DType
from .batch import Batch
from .handle import Handle
from .schema import NOTHING, REQUIRED, OpDef, Param

# Types whose equal values are interchangeable in a cache key. Not float: 0.0 equals -0.0.
PLAIN = {int, bool, str, type(None), DType, dt.DALIImageType, dt.DALIInterpType}


def choices_of(op: OpDef, others: Sequence[Any]) -> dict[str, Any]:
    """All static arguments of a call; combinations that were checked before come from a cache."""
    if not op.static_slots:
        return {}
    given = tuple([None if (v := others[k]) is p.default else v for k, p in op.static_slots])
    key: Any = given
    types = tuple(map(type, given))
    if types.count(type(None)) < len(types):  # some are not left at their defaults
        # With the types, because True == 1.
        key = (given, types) if PLAIN.issuperset(types) else _key_of_lists(given, types)
    known = None if key is None else op.known_choices.get(key)
    if known is not None:
        return known.copy()
    usual = op.usual_choices
    if not usual:
        usual.update((p.name, _static(p, None)) for p in op.statics if p.default is not REQUIRED)
    found = {
        p.name: usual[p.name] if value is None and p.name in usual else _static(p, value)
        for p, value in zip(op.statics, given, strict=True)
    }
    for name, value in found.items():
        if isinstance(value, DType) and value.is_enum and op.enums != "kept":
            raise TypeError(f"`{name}` cannot be {value}: use ndd.cast to make enum values")
    if key is not None:
        op.known_choices[key] = found.copy()
    return found


def _key_of_lists(given: tuple[Any, ...], types: tuple[type, ...]) -> Any:
    """The cache key of choices some of which are lists of plain values; None for other choices."""
    key: list[Any] = [types]
    for value, kind in zip(given, types, strict=True):
        if kind is list or kind is tuple:
            items = tuple(map(type, value))
            if not PLAIN.issuperset(items):
                return None
            key += [items, tuple(value)]
        elif kind in PLAIN:
            key.append(value)
        else:
            return None
    return tuple(key)


def _static(p: Param, value: Any) -> Any:
    value = or_default(p, value)
    if value is None or value is NOTHING:
        return None
    kind = p.type
    if kind is DType:
        is_id = isinstance(value, int) and dt.enum_type(value) is None
        return DType.from_type_id(value) if is_id else dt.dtype(value)
    if isinstance(value, Batch):
        raise TypeError(f"argument `{p.name}` must be the same for all samples, got a Batch")
    if kind in (dt.DALIImageType, dt.DALIInterpType):
        return enum_of(p, value)
    if isinstance(value, Handle) or (isinstance(value, np.ndarray) and kind is not None):
        value = np.asarray(value).tolist()
    if kind is str or isinstance(kind, tuple):
        if not isinstance(value, str):
            raise TypeError(f"argument `{p.name}` must be a string, got {type(value).__name__}")
        if isinstance(kind, tuple) and value not in kind:
            if value.lower() in kind:
                return value.lower()
            raise ValueError(f"`{p.name}` must be one of {', '.join(kind)}, got {value!r}")
        return value
    if kind in ("ints", "floats"):
        convert_to = int if kind == "ints" else float
        items = value if isinstance(value, (list, tuple, range)) else [value]
        if convert_to is float:
            return tuple(map(float, items))
        return tuple(_static_number(p, convert_to, v) for v in items)
    if kind in (int, float, bool):
        if isinstance(value, (list, tuple, str)):
            raise TypeError(f"argument `{p.name}` must be a number, got {type(value).__name__}")
        return _static_number(p, kind, value)
    return value


def _static_number(p: Param, kind: Any, value: Any) -> Any:
    if kind is int and isinstance(value, (float, int)) and not abs(value) < 2**63:
        raise ValueError(f"argument `{p.name}` must be a 64-bit integer, got {value:g}")
    return kind(value)


def names_a_member(p: Param, value: Any) -> bool:
    """Whether a value is a name, or a member of our enum or of upstream's enum of that name."""
    return isinstance(value, str) or type(value).__name__ == p.type.__name__


def enum_of(p: Param, value: Any) -> Any:
    try:
        if isinstance(value, str):
            return p.type[value]
        name = getattr(value, "name", None)
        return p.type[name] if name is not None else p.type(int(value))
    except (KeyError, ValueError, TypeError):
        known = ", ".join(m.name for m in p.type)
        raise ValueError(f"argument `{p.name}` must be one of {known}, got {value!r}") from None


def or_default(p: Param, value: Any) -> Any:
    if value is None:
        if p.default is REQUIRED:
            raise TypeError(f"argument `{p.name}` is required")
        return p.default
    return value
