"""Regions of arrays: `roi_start`, `rel_roi_end` … and a shape enter, ranges of indices leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..fusion.graph.shapes import Array

POLICIES = ("error", "pad", "trim_to_shape")
STARTS, ENDS = (
    ("roi_start", "rel_roi_start"),
    ("roi_end", "rel_roi_end", "roi_shape", "rel_roi_shape"),
)


class Window(NamedTuple):
    """A region of an array, for each axis: first index and index after the last."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]


class ArrayRegion:
    """A region for arrays of any shape."""

    def __init__(
        self, where: str, given: Mapping[str, Any], axes: Any, policy: str | None, fill: float
    ) -> None:
        self._where, self.fill = where, fill
        self.policy = policy or "error"
        if self.policy not in POLICIES:
            raise ValueError(
                f"{where}: `out_of_bounds_policy` must be one of {', '.join(POLICIES)}, "
                f"got {policy!r}"
            )
        chosen = {k: _numbers(where, k, v) for k, v in given.items() if v is not None}
        for names in (STARTS, ENDS):
            both = [n for n in names if n in chosen]
            if len(both) > 1:
                raise ValueError(f"{where}: `{both[0]}` and `{both[1]}` exclude each other")
        self._start = next(((n, chosen[n]) for n in STARTS if n in chosen), None)
        self._end = next(((n, chosen[n]) for n in ENDS if n in chosen), None)
        self._axes = [] if axes is None else np.atleast_1d(np.asarray(axes, np.int64)).tolist()

    def __bool__(self) -> bool:
        return self._start is not None or self._end is not None

    def window(self, shape: tuple[int, ...]) -> Window:
        """The region of an array of this shape, by the policy for places outside of it."""
        axes = self._checked_axes(len(shape))
        starts, ends = [0] * len(shape), list(shape)
        begin = self._values(self._start, len(axes))
        end = self._values(self._end, len(axes))
        for k, axis in enumerate(axes):
            extent = shape[axis]
            first = 0.0
            if self._start is not None:
                first = _scaled(self._start[0], begin[k], extent)
            last = float(extent)
            if self._end is not None:
                last = self._last(begin[k], end[k], first, extent)
            starts[axis], ends[axis] = _rounded(first), _rounded(last)
            if ends[axis] < starts[axis]:
                raise ValueError(
                    f"the region ends before it begins: {starts[axis]} … {ends[axis]} "
                    f"of axis {axis}"
                )
        return self._bounded(shape, starts, ends)

    def _last(self, begin: float, end: float, first: float, extent: int) -> float:
        """The end on an axis, from the arguments and the start in elements."""
        assert self._end is not None
        name = self._end[0]
        if not name.endswith("shape"):
            return _scaled(name, end, extent)
        both_relative = name == "rel_roi_shape" and (
            self._start is None or self._start[0] == "rel_roi_start"
        )
        if both_relative:
            exact = (begin + end) * extent  # added first, so that start + shape = 1 is the end
            return max(exact, first) if end == 0 else exact
        return first + _scaled(name, end, extent)

    def _checked_axes(self, rank: int) -> list[int]:
        if not self._axes:
            return list(range(rank))
        for axis in self._axes:
            if not -rank <= axis < rank:
                raise ValueError(f"`roi_axes` has {axis}, but the array has {rank} dimensions")
        axes = [axis % rank for axis in self._axes]
        if len(set(axes)) < len(axes):
            raise ValueError(f"`roi_axes` has an axis twice: {self._axes}")
        return axes

    def _values(self, given: tuple[str, Array] | None, count: int) -> list[float]:
        if given is None:
            return [0.0] * count
        name, values = given
        if len(values) not in (1, count):
            raise ValueError(f"`{name}` must have {count} numbers, got {len(values)}")
        return (values if len(values) == count else np.repeat(values, count)).tolist()

    def _bounded(self, shape: tuple[int, ...], starts: list[int], ends: list[int]) -> Window:
        outside = any(a < 0 or b > n for a, b, n in zip(starts, ends, shape, strict=True))
        if outside and self.policy == "error":
            raise ValueError(
                f"the region {list(zip(starts, ends, strict=True))} lies outside of the array of "
                f'shape {shape}; out_of_bounds_policy="pad" or "trim_to_shape" allows that'
            )
        if outside and self.policy == "trim_to_shape":
            starts = [min(max(a, 0), n) for a, n in zip(starts, shape, strict=True)]
            ends = [min(max(b, 0), n) for b, n in zip(ends, shape, strict=True)]
        return Window(tuple(starts), tuple(ends))

    def cut(self, array: Array, window: Window, first: int = 0) -> Array:
        """The region of an array, whose outermost axis begins with index `first`."""
        shape = tuple(b - a for a, b in zip(*window, strict=True))
        inner = []
        for k, (a, b, n) in enumerate(zip(*window, array.shape, strict=True)):
            a, b = (a - first, b - first) if k == 0 else (a, b)
            inner.append((min(max(a, 0), n), min(max(b, 0), n), a))
        part = array[tuple(slice(a, b) for a, b, _ in inner)]
        if part.shape == shape:
            return part
        found = np.full(shape, self.fill, array.dtype)
        if part.size:
            found[tuple(slice(a - s, b - s) for a, b, s in inner)] = part
        return found


def _numbers(where: str, name: str, value: Any) -> Array:
    try:
        # Relative regions are float32 numbers upstream.
        kind = np.float32 if name.startswith("rel") else np.float64
        found = np.atleast_1d(np.asarray(value, kind)).astype(np.float64)
    except (TypeError, ValueError):
        found = np.empty(0)
    if (
        found.ndim != 1
        or not len(found)
        or not np.isfinite(found).all()
        or abs(found).max() > 2**48
    ):
        raise ValueError(f"{where}: `{name}` must be a number or a list of numbers, got {value!r}")
    return found


def _scaled(name: str, value: float, extent: int) -> float:
    """A coordinate in elements. Upstream multiplies as float32, which decides about halves."""
    return float(np.float32(value) * np.float32(extent)) if name.startswith("rel") else value


def _rounded(value: float) -> int:
    """The nearest integer; halves are rounded away from zero."""
    return int(np.copysign(np.floor(abs(value) + 0.5), value))


def per_sample(where: str, given: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """Arguments of a call, which may be batches, as arguments of each sample."""
    rows: list[dict[str, Any]] = [{} for _ in range(count)]
    for name, value in given.items():
        if value is None:
            continue
        tensors: Sequence[Any] | None = getattr(value, "tensors", None)
        if tensors is not None and len(tensors) != count:
            raise ValueError(f"{where}: `{name}` has {len(tensors)} samples, the batch {count}")
        for k in range(count):
            rows[k][name] = value if tensors is None else np.asarray(tensors[k])
    return rows
