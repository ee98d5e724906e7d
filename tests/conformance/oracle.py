"""Call an op here and upstream with the same arguments, compare, and record the differences.

    check("brightness", images, layout="HWC", brightness=1.5, dtype="float32")
    check("hue", images, layout="HWC", hue=per_sample([0.0, 30.0, 90.0]))
    check("flip", image, layout="HWC", batch=False)
    check("cat", left, right, axis=1)
    check_program("add", lambda lib, x, y: x + y, xs, ys)

An input is a list of NumPy arrays (a ragged batch; its first array alone if `batch=False`), or a
single array (a tensor). Arguments are plain numbers, strings and lists, which upstream treats as
constants; NumPy arrays (a tensor); or `per_sample` (a batch). Types and colour spaces are given by
name. `layout` is that of the inputs; an op's own argument of that name goes into `arguments`.
"""

from __future__ import annotations

import json
import linecache
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import nvidia.dali.experimental.dynamic as upstream
import nvidia.dali.types as upstream_types

import ndd

MAX_OFF = 1e-4  # the share of integers that may be off by one
RTOL = 1e-6

Arrays = np.ndarray | Sequence[np.ndarray]


@dataclass(frozen=True)
class PerSample:
    """An argument with one value for each sample."""

    values: tuple[Any, ...]
    layout: str | None


def per_sample(values: Sequence[Any], dtype: Any = None, layout: str | None = None) -> PerSample:
    """One value per sample; Python numbers become float32 and int32."""
    if dtype is None:
        dtype = {"f": np.float32, "i": np.int32}.get(np.asarray(values[0]).dtype.kind)
    return PerSample(tuple(np.asarray(v, dtype) for v in values), layout)


@dataclass(frozen=True)
class Result:
    """The visible properties of one output."""

    arrays: list[np.ndarray]
    dtype: str
    layout: str | None
    batch: bool

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [a.shape for a in self.arrays]


# -- calls ---------------------------------------------------------------------------------------


def oracle_call(
    op: str, *inputs: Arrays, layout: Any = None, batch: bool = True, **kwargs: Any
) -> list[Result]:
    """All outputs of the op upstream."""
    with upstream.EvalMode.sync_cpu:
        return _results(_call(upstream, op, _inputs(upstream, inputs, layout, batch), kwargs))


def ndd_call(
    op: str, *inputs: Arrays, layout: Any = None, batch: bool = True, **kwargs: Any
) -> list[Result]:
    """All outputs of our op, in the current mode."""
    return _results(_call(ndd, op, _inputs(ndd, inputs, layout, batch), kwargs))


def _inputs(lib: Any, inputs: Sequence[Arrays], layout: Any, batch: bool) -> list[Any]:
    layouts = layout if isinstance(layout, (tuple, list)) else [layout] * len(inputs)
    return [_input(lib, x, name, batch) for x, name in zip(inputs, layouts, strict=True)]


def _input(lib: Any, x: Arrays, layout: str | None, batch: bool) -> Any:
    # upstream requires C order
    if isinstance(x, (np.ndarray, np.generic)):
        return lib.tensor(np.array(x, order="C"), layout=layout)
    arrays = [np.array(a, order="C") for a in x]
    return lib.batch(arrays, layout=layout) if batch else lib.tensor(arrays[0], layout=layout)


_TYPES = ("dtype", "output_dtype")
_COLOURS = ("image_type", "output_type")


def _argument(lib: Any, name: str, value: Any) -> Any:
    """The library's own object for an argument that is not a plain Python value."""
    if name in _TYPES and isinstance(value, str):
        return getattr(lib, value)
    if name in _COLOURS and isinstance(value, str):
        return upstream_types.DALIImageType.__members__[value]
    if isinstance(value, PerSample):
        return lib.batch(list(value.values), layout=value.layout)
    if isinstance(value, (np.ndarray, np.generic)):
        return lib.tensor(value)
    return value


def _call(lib: Any, op: str, inputs: list[Any], kwargs: dict[str, Any]) -> Any:
    kwargs = {**kwargs, **kwargs.get("arguments", {})}
    kwargs.pop("arguments", None)
    function = lib
    for part in op.split("."):
        function = getattr(function, part)
    arguments = {k: _argument(lib, k, v) for k, v in kwargs.items()}
    if lib is ndd:
        return function(*inputs, **arguments)
    return _call_with_literals(function, inputs, arguments)


def _call_with_literals(function: Any, inputs: list[Any], arguments: dict[str, Any]) -> Any:
    """Call through generated source: upstream reads the caller's source to tell constants from tensors."""
    names: dict[str, Any] = {"function": function}
    parts = []
    for i, value in enumerate(inputs):
        names[f"input{i}"] = value
        parts.append(f"input{i}")
    for name, value in arguments.items():
        names[f"given_{name}"] = value
        parts.append(f"{name}={value!r}" if _is_literal(value) else f"{name}=given_{name}")
    source = f"def call():\n    return function({', '.join(parts)})\n"
    file = f"<oracle call {source}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), names)
    return names["call"]()


def _is_literal(value: Any) -> bool:
    if isinstance(value, float):
        return bool(np.isfinite(value))
    if isinstance(value, (list, tuple)):
        return all(map(_is_literal, value))
    return value is None or isinstance(value, (bool, int, str))


def _results(outputs: Any) -> list[Result]:
    return (
        [_result(o) for o in outputs] if isinstance(outputs, (tuple, list)) else [_result(outputs)]
    )


def _result(output: Any) -> Result:
    batch = isinstance(output, (ndd.Batch, upstream.Batch))
    known = output.shape if batch else [output.shape]
    arrays = [np.array(t) for t in output.tensors] if batch else [np.array(output)]
    assert [tuple(s) for s in known] == [a.shape for a in arrays], "the announced shape is wrong"
    return Result(arrays, str(output.dtype), output.layout or None, batch)


# -- comparison ----------------------------------------------------------------------------------


def check(
    op: str,
    *inputs: Arrays,
    layout: Any = None,
    batch: bool = True,
    exact: bool = True,
    max_off: float = MAX_OFF,
    rtol: float = RTOL,
    **kwargs: Any,
) -> list[Result]:
    """Both libraries give the same result; returns ours. See `compare` for the tolerances."""
    want = oracle_call(op, *inputs, layout=layout, batch=batch, **kwargs)
    got = ndd_call(op, *inputs, layout=layout, batch=batch, **kwargs)
    compare(op, got, want, exact, max_off, rtol)
    return got


def check_program(
    op: str,
    program: Callable[..., Any],
    *inputs: Arrays,
    layout: Any = None,
    batch: bool = True,
    exact: bool = True,
    max_off: float = MAX_OFF,
    rtol: float = RTOL,
) -> list[Result]:
    """`program(library, *inputs)` gives the same with both: operators, indexing, methods."""
    with upstream.EvalMode.sync_cpu:
        want = _results(program(upstream, *_inputs(upstream, inputs, layout, batch)))
    got = _results(program(ndd, *_inputs(ndd, inputs, layout, batch)))
    compare(op, got, want, exact, max_off, rtol)
    return got


def compare(
    op: str,
    got: list[Result],
    want: list[Result],
    exact: bool = True,
    max_off: float = MAX_OFF,
    rtol: float = RTOL,
) -> None:
    """Equal kind, shapes, type and layout, and equal values:

    integers exactly, or (`exact=False`) off by one in at most `max_off` of them; floats within
    `rtol` of the oracle's value; float16 within one unit, since upstream rounds ties away from 0.
    """
    assert len(got) == len(want), f"{op}: {len(got)} outputs, the oracle has {len(want)}"
    for ours, theirs in zip(got, want, strict=True):
        for field in ("batch", "shapes", "dtype", "layout"):
            mine, other = getattr(ours, field), getattr(theirs, field)
            assert mine == other, f"{op}: {field} {mine}, the oracle's is {other}"
        _compare_values(op, ours, theirs, exact, max_off, rtol)


def record(op: str, got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> None:
    """Record the differences of one result, for docs/numerics.md; for tests that compare values in
    their own way."""
    ours, theirs = (np.concatenate([a.reshape(-1) for a in arrays]) for arrays in (got, want))
    kind = "bool" if ours.dtype == np.bool_ else f"{ours.dtype.kind}{8 * ours.dtype.itemsize}"
    _record(op, kind, *_differences(ours, theirs), theirs)


def record_draws(op: str, got: Any, want: Any) -> None:
    """Record how far apart our draws and upstream's are, for docs/numerics.md: the largest distance
    of their distribution functions. Draws are a `Counter` of outcomes, or arrays of numbers; the
    last axis of arrays with more than one axis counts dimensions, each of which is compared."""
    if isinstance(got, Counter):
        places = {name: k for k, name in enumerate(sorted(got.keys() | want.keys()))}
        got, want = (np.array([places[k] for k in c.elements()]) for c in (got, want))
    columns = [np.asarray(x, np.float64).reshape(len(x), -1) for x in (got, want)]
    pairs = zip(*(c.T for c in columns), strict=True)
    distance = max((_ks_distance(*pair) for pair in pairs), default=0.0)
    _write({"op": op, "draws": len(columns[0]), "distance": distance})


def _ks_distance(a: np.ndarray, b: np.ndarray) -> float:
    """The Kolmogorov-Smirnov distance of two samples."""
    both = np.concatenate([a, b])
    shares = [np.searchsorted(np.sort(x), both, "right") / len(x) for x in (a, b)]
    return float(np.abs(shares[0] - shares[1]).max(initial=0.0))


def _compare_values(
    op: str, ours: Result, theirs: Result, exact: bool, max_off: float, rtol: float
) -> None:
    got, want = _flat(ours), _flat(theirs)
    difference, differs = _differences(got, want)
    _record(op, ours.dtype, difference, differs, want)
    if got.dtype == np.float16:
        bad = differs & (np.abs(_rank16(got) - _rank16(want)) > 1)
    elif got.dtype.kind == "f":
        scale = np.abs(np.where(np.isfinite(want), want, 0.0).astype(np.float64))
        bad = differs & ~(difference <= rtol * scale)
    elif exact:
        bad = differs
    else:
        bad = difference > 1
        share = differs.mean() if differs.size else 0.0
        assert share <= max_off, (
            f"{op}: {share:.2g} of the values are off by one, {max_off:g} may be"
        )
    if bad.any():
        k = int(np.flatnonzero(bad)[0])
        raise AssertionError(
            f"{op}: {int(bad.sum())} of {bad.size} values of type {ours.dtype} differ, the first "
            f"at flat position {k}: {got[k]!r}, the oracle has {want[k]!r}"
        )


def _flat(result: Result) -> np.ndarray:
    return np.concatenate([a.reshape(-1) for a in result.arrays])


def _differences(got: np.ndarray, want: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The size of each difference, and where values differ (nan equals nan, infinity only itself)."""
    if got.dtype.kind == "f":
        differs = ~((got == want) | (np.isnan(got) & np.isnan(want)))
        with np.errstate(invalid="ignore"):
            difference = np.abs(got.astype(np.float64) - want.astype(np.float64))
    else:
        differs = got != want
        high, low = np.maximum(got, want), np.minimum(got, want)
        difference = (high.astype(np.uint64) - low.astype(np.uint64)).astype(np.float64)
    difference = np.where(np.isnan(difference), np.inf, difference)
    return np.where(differs, difference, 0.0), differs


def _rank16(x: np.ndarray) -> np.ndarray:
    """Neighbouring float16 values have neighbouring numbers."""
    bits = x.view(np.int16).astype(np.int32)
    return np.where(bits < 0, -(bits & 0x7FFF), bits)


def _record(
    op: str, dtype: str, difference: np.ndarray, differs: np.ndarray, want: np.ndarray
) -> None:
    scale = np.abs(want[differs].astype(np.float64))
    relative = difference[differs] / np.where(scale > 0, scale, 1.0)
    line = {
        "op": op,
        "dtype": dtype,
        "max_abs": float(difference.max(initial=0.0)),
        "max_rel": float(relative.max(initial=0.0)),
        "differing": int(differs.sum()),
        "total": int(differs.size),
    }
    _write(line)


def _write(line: dict[str, Any]) -> None:
    """Append a line for `tests.conformance.report`, if it asked for that."""
    path = os.environ.get("NDD_RECORD_DIFFERENCES")
    if path:
        with Path(path).open("a") as file:
            file.write(json.dumps(line) + "\n")
