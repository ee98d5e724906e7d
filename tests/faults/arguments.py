"""Random arguments for calls of any op, drawn from its definition: plausible ones, and hostile ones.

What is baked into a kernel (types, layouts, choices, which arguments are given) comes from a *structure*, of which
each op has a few, so that kernels repeat. Sizes and numbers are drawn for every call.
"""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import isfunction
from typing import Any

import numpy as np

import ndd
from ndd.core.schema import OpDef, Param
from ndd.kernels.ir import dtypes as dt
from tests.faults.recipes import RECIPES, Recipe

# Structures of each op; a call of a new one compiles kernels for a second or two.
STRUCTURES = int(os.environ.get("NDD_FUZZ_STRUCTURES", "5"))
_HOSTILE_FROM = 3  # from here on, choices may be hostile
DTYPES = (
    "uint8",
    "float32",
    "uint8",
    "float32",
    "int16",
    "int32",
    "bool",
    "float16",
    "uint16",
    "int64",
    "float64",
    "int8",
)
LAYOUTS = ("HWC", "HWC", None, "CHW", "HW", "FHWC", None, "DHWC")
INTERPOLATIONS = tuple(ndd.types.DALIInterpType)
COLOURS = tuple(ndd.types.DALIImageType)

NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 2, 255, 256, 2**31 - 1, 2**31, -(2**31), 2**32, 2**62, 2**63, -(2**63), 10**30, -(10**30),
    0.0, -0.0, 0.5, -0.5, 1e-40, 1e30, -1e30, 3.4e38, 1e308, float("nan"), float("inf"), float("-inf"),
)  # fmt: skip
WRONG: tuple[Callable[[], Any], ...] = (
    lambda: "text", lambda: "", lambda: b"bytes", list, dict, object, lambda: 1 + 2j,
    lambda: True, lambda: [[1], [2, 3]], lambda: [None], lambda: np.array(["a"]), lambda: np.zeros(0),
    lambda: np.zeros((2, 2, 2, 2), np.float64), lambda: ndd.tensor([1, 2, 3]), lambda: ndd.batch([1.0] * 7),
    lambda: ndd.tensor(np.zeros((0, 3), np.float32)), lambda: [float("nan")] * 3, lambda: [2**62] * 4,
    lambda: [-1] * 2, lambda: slice(None), lambda: ..., lambda: ndd.float32, lambda: [1] * 1000,
    lambda: ndd.batch([np.zeros(k, np.float32) for k in (1, 2)]), lambda: np.datetime64("2000"),
)  # fmt: skip


@dataclass
class Structure:
    """What is baked into the kernels of a call."""

    op: OpDef
    dtypes: list[str] = field(default_factory=list)  # of each input
    layout: str | None = None
    rank: int = 3
    channels: int = 3
    is_batch: bool = True
    given: list[Param] = field(default_factory=list)  # run-time arguments, in order
    per_sample: dict[str, bool] = field(default_factory=dict)
    choices: dict[str, Any] = field(default_factory=dict)
    recipe: Recipe | None = None  # if there is one, it tells everything


def structure(op: OpDef, k: int) -> Structure:
    """The k-th structure of an op."""
    r = random.Random(zlib.crc32(op.name.encode()) + k)
    made = Structure(op)
    if op.name in RECIPES and k < _HOSTILE_FROM:
        made.recipe = RECIPES[op.name](r)
        made.is_batch = made.recipe.is_batch and r.random() < 0.8
        made.per_sample = {n: made.is_batch and r.random() < 0.5 and n not in made.recipe.same_for_all
                           for n in made.recipe.options}  # fmt: skip
        return made
    layouts = op.layouts or LAYOUTS
    made.layout = layouts[0] if k < 2 else r.choice(layouts)
    made.rank = len(made.layout) if made.layout else r.choice((1, 2, 3, 0, 4))
    made.channels = 3 if k < 3 else r.choice((1, 3, 4, 2, 5))
    made.is_batch = r.random() < 0.75
    count = 1 if not op.variadic else r.randint(1, 3)
    first = "uint8" if k == 0 else "float32" if k == 1 else r.choice(DTYPES)
    same = op.variadic or r.random() < 0.5
    others = [first if same else r.choice(DTYPES) for _ in range(len(op.data) * count - 1)]
    made.dtypes = [first, *others] if op.data else []
    for p in op.others:
        is_needed = type(p.default).__name__ == "Required" or p.name in _USUALLY_GIVEN
        if p.type == "RNG" or not (is_needed or r.random() < 0.25):
            continue
        if p.kind == "static":
            made.choices[p.name] = _choice(p, made, r, k >= _HOSTILE_FROM and r.random() < 0.3)
        else:
            made.given.append(p)
            made.per_sample[p.name] = made.is_batch and r.random() < 0.5
    for name, other in _EXCLUSIVE if k < _HOSTILE_FROM else ():
        if name in made.choices or name in made.per_sample:
            made.choices.pop(other, None)
            made.given = [p for p in made.given if p.name != other]
    return made


_EXCLUSIVE = (("shape", "shape_like"), ("axes", "axis_names"))


_USUALLY_GIVEN = {"size", "sizes", "crop", "shape", "matrix", "T", "axes", "perm"}


def _choice(p: Param, made: Structure, r: random.Random, is_hostile: bool) -> Any:
    """A static choice, of few values because each is compiled."""
    if is_hostile:
        return r.choice(NUMBERS[:22]) if r.random() < 0.6 else r.choice(WRONG)()
    rank = max(made.rank, 1)
    if isinstance(p.type, tuple):
        return r.choice(p.type)
    if p.type is bool:
        return r.random() < 0.5
    if p.type is dt.DType:
        return ndd.__dict__[r.choice(("uint8", "float32", "int16", "float16"))]
    if p.type is ndd.types.DALIInterpType:
        return r.choice(INTERPOLATIONS)
    if p.type is ndd.types.DALIImageType:
        return r.choice(COLOURS)
    if p.type == "ints":
        drawn = sorted(r.sample(range(rank), r.randint(1, rank)))
        if p.name == "perm":
            drawn = r.sample(range(made.rank), made.rank)
        return [4, 5] if p.name == "size" else drawn
    if p.type == "floats":
        return [r.choice((0.0, 1.0, 7.5))] * r.choice((1, 2, made.channels))
    if p.type is str:
        return r.choice(_WORDS.get(p.name, ("HW", "W", "C", "HWC")))
    return r.choice((0, 1, 2, 3)) if p.type is int else r.choice((0.0, 1.0, 0.25))


_WORDS = {
    "border": ("reflect_101", "clamp", "wrap", "constant"),
    "border_mode": ("constant", "reflect", "replicate", "wrap"),
    "algorithm": ("bilinear_ocv", "edgeaware_ocv", "vng_ocv", "gray_ocv", "default_npp"),
    "key": ("source_info", "layout"),
    "output_layout": ("CHW", "HWC"),
    "layout": ("xy", "HWC", "x"),
}


# -- recipes -------------------------------------------------------------------------------------


def recipe_inputs(
    made: Structure, count: int, r: random.Random, noise: np.random.Generator
) -> list[list[Any]]:
    """Samples of each input of a recipe."""
    assert made.recipe is not None
    samples: list[list[Any]] = [[] for _ in made.recipe.inputs]
    for _ in range(count):
        shapes: list[tuple[int, ...]] = []
        for given, own in zip(made.recipe.inputs, samples, strict=True):
            shapes.append(given.shape(r, shapes))
            values = given.values(shapes[-1], noise) if given.values else None
            own.append(
                values_of(shapes[-1], given.dtype, noise)
                if values is None
                else values.astype(given.dtype)
            )
    return samples


def recipe_options(made: Structure, count: int, r: random.Random) -> dict[str, Any]:
    """Arguments of a recipe; those that are functions are drawn."""
    assert made.recipe is not None
    types = {p.name: p.type for p in made.op.others}
    found: dict[str, Any] = {}
    for name, value in made.recipe.options.items():
        if not isfunction(value):
            found[name] = value
        elif made.per_sample[name]:
            kind = np.int32 if types[name] is int else np.float32
            found[name] = ndd.batch([np.asarray(value(r), kind) for _ in range(count)])
        else:
            found[name] = value(r)
    return found


# -- values --------------------------------------------------------------------------------------


def shapes_of(made: Structure, count: int, r: random.Random) -> list[tuple[int, ...]]:
    """Shapes of the samples: small, odd, sometimes empty; channels are those of the structure."""
    usual = (1, 2, 3, 5, 8, 13) if made.rank < 4 else (1, 2, 3, 5)
    extents = usual if r.random() < 0.9 else (0, 1, 4)
    found = []
    for _ in range(count):
        shape = [r.choice(extents) for _ in range(made.rank)]
        if made.layout and "C" in made.layout:
            shape[made.layout.index("C")] = made.channels
        found.append(tuple(shape))
    return found


def values_of(shape: tuple[int, ...], dtype: str, noise: np.random.Generator) -> Any:
    """Random values of a type; floats now and then with infinities and nan."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        values = (noise.standard_normal(shape) * 100).astype(kind)
        if values.size and noise.random() < 0.15:
            values.reshape(-1)[int(noise.integers(values.size))] = noise.choice(
                [np.nan, np.inf, -np.inf]
            )
        return values
    if kind.kind == "b":
        return noise.random(shape) < 0.5
    low, high = max(np.iinfo(kind).min, -300), min(np.iinfo(kind).max, 300)
    return noise.integers(low, high + 1, shape).astype(kind)


def argument(p: Param, made: Structure, count: int, r: random.Random) -> Any:
    """A plausible value of a run-time argument, for all samples or one for each."""
    length = r.choice((1, 2, 2, 3)) if p.vector else 0

    def one() -> Any:
        draw = _DRAWS.get(p.name) or _DRAWS["of ints" if p.type is int else "of floats"]
        if p.type is ndd.types.DALIInterpType:
            return r.choice(INTERPOLATIONS)
        drawn = draw(made, r) if callable(draw) else r.choice(draw)
        if isinstance(drawn, list) or not p.vector:
            return drawn
        return [drawn] + [
            draw(made, r) if callable(draw) else r.choice(draw) for _ in range(length - 1)
        ]

    if not made.per_sample[p.name]:
        return one()
    kind = np.int32 if p.type is int else np.float32
    first = np.asarray(one(), kind)
    rest = [np.asarray(one(), kind) for _ in range(count - 1)]
    same = [x if x.shape == first.shape else first for x in rest]
    return ndd.batch([first, *same])


def _floats(low: float, high: float) -> Callable[[Structure, random.Random], Any]:
    return lambda made, r: r.uniform(low, high)


def _ints(low: int, high: int, count: int = 0) -> Callable[[Structure, random.Random], Any]:
    if not count:
        return lambda made, r: r.randint(low, high)
    return lambda made, r: [r.randint(low, high) for _ in range(count)]


def _shape(made: Structure, r: random.Random) -> Any:
    return [r.randint(1, 5) for _ in range(max(made.rank, 1))]


def _matrix(made: Structure, r: random.Random) -> Any:
    return [[r.uniform(-2, 2) for _ in range(3)] for _ in range(2)]


_DRAWS: dict[str, Any] = {
    "of ints": _ints(0, 4), "of floats": _floats(-2, 3),
    "size": _ints(1, 12, 2), "sizes": _shape, "crop": _ints(1, 6, 2), "crop_h": _ints(1, 6), "crop_w": _ints(1, 6),
    "shape": _shape, "angle": _floats(-400, 400), "matrix": _matrix, "mtx": _matrix, "T": _matrix, "MT": _matrix,
    "sigma": _floats(0.2, 3), "window_size": (1, 3, 5, 7), "mask_size": _ints(1, 6, 2), "ratio": _floats(1, 3),
    "tiles_x": _ints(1, 4), "tiles_y": _ints(1, 4), "clip_limit": _floats(0, 4), "probability": _floats(0, 1),
    "filter": lambda made, r: np.array([[r.uniform(-1, 1) for _ in range(3)] for _ in range(2)], np.float32),
    "range": lambda made, r: sorted([r.uniform(-9, 9), r.uniform(-9, 9)]), "resize_x": _floats(1, 12),
    "blue_position": _ints(0, 1, 2), "iterations": _ints(0, 3), "scale": _floats(0.1, 2), "std": _floats(0.5, 9),
    "stddev": _floats(0.5, 9), "input_shape": _ints(2, 9, 2), "axis": _ints(0, 2), "offset": _ints(-3, 3, 2),
    "indices": _ints(0, 0, 2), "resize_y": _floats(1, 12), "resize_shorter": _floats(1, 9), "tile": _ints(2, 9),
    "resize_longer": _floats(1, 9), "prob": _floats(0, 1), "paste_x": _floats(0, 1), "paste_y": _floats(0, 1),
    "crop_pos_x": _floats(0, 1), "crop_pos_y": _floats(0, 1), "fill_value": _floats(0, 255), "mean": _floats(0, 200),
    "anchor": _ints(0, 3, 2), "roi_start": _floats(0, 3), "roi_end": _floats(3, 6), "crop_shape": _ints(1, 3, 2),
}  # fmt: skip


def hostile(r: random.Random) -> Any:
    """A value that hardly any argument expects."""
    choice = r.random()
    if choice < 0.5:
        return r.choice(NUMBERS)
    if choice < 0.7:
        return [r.choice(NUMBERS) for _ in range(r.randint(1, 4))]
    return r.choice(WRONG)()
