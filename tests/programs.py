"""Random programs over ragged batches: built once, then run in any mode.

A program is a list of calls whose arguments were drawn to fit the shapes and types of earlier
values, which are known without running anything. `draw(n)` gives a number from 0 to n - 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import ndd
from tests.helpers import arrays, samples

Draw = Callable[[int], int]
Value = Any  # a Batch
Call = Callable[[list[Value]], Value]

CASTS = (ndd.uint8, ndd.int32, ndd.float32, ndd.float16)
NUMBERS = (0.5, 2.0, -1.5, 3, 1, -2)
MAX_ELEMENTS = 5000


class Program(NamedTuple):
    """Inputs, calls, and the values that are read in the end."""

    inputs: list[list[Any]]
    calls: list[Call]
    text: list[str]
    kept: list[bool]  # whether each value keeps its name while the others are computed
    read: list[int]

    def __repr__(self) -> str:
        shapes = [[(a.shape, str(a.dtype)) for a in batch] for batch in self.inputs]
        return f"inputs {shapes}\n" + "\n".join(self.text) + f"\nkept {self.kept} read {self.read}"


def run(program: Program, device: str = "cpu") -> list[list[Any]]:
    """The values that a program reads."""
    values: list[Value] = [ndd.batch(b, layout="HWC", device=device) for b in program.inputs]
    last_use = program.read
    for k, call in enumerate(program.calls):
        values.append(call(values))
        for i, keep in enumerate(program.kept[: k + len(program.inputs)]):
            needed = i in last_use or any(f"v{i}" in t.split() for t in program.text[k + 1 :])
            if not keep and not needed:
                values[i] = None
    return [arrays(values[i]) for i in reversed(program.read)]


def make(draw: Draw, length: int, steps: Any = None) -> Program:
    """A random program of this many calls, of all kinds unless some are given."""
    steps = steps or STEPS
    count = 1 + draw(4)
    shapes = [(1 + draw(8), 1 + draw(8), 3) for _ in range(count)]
    dtypes = [(np.uint8, np.float32, np.int32)[draw(3)] for _ in range(1 + draw(2))]
    inputs = [samples(shapes, t, seed=draw(1000)) for t in dtypes]
    calls: list[Call] = []
    text: list[str] = []
    with ndd.EvalMode.deferred:
        values = [ndd.batch(batch, layout="HWC") for batch in inputs]
        while len(calls) < length:
            i = len(values) - 1 if draw(3) else draw(len(values))
            name, call = steps[draw(len(steps))](draw, values, i)
            if call is None:
                name, call = add_number(draw, values, i)
            values.append(call(values))
            calls.append(call)
            text.append(f"v{len(values) - 1} = {name}")
    kept = [bool(draw(2)) for _ in values]
    read = [i for i in range(len(inputs), len(values) - 1) if draw(4) == 0]
    return Program(inputs, calls, text, kept, [*read, len(values) - 1])


# -- calls: (text, function of all values), or no function if the value at hand does not fit --------


def number(draw: Draw, x: Value) -> float | int:
    return NUMBERS[draw(len(NUMBERS))]


def add_number(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    n = number(draw, v[i])
    return f"v{i} + {n}", lambda v: v[i] + n


def multiply(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    n = number(draw, v[i])
    return f"v{i} * {n}", lambda v: v[i] * n


def subtract_from(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    n = number(draw, v[i])
    return f"{n} - v{i}", lambda v: n - v[i]


def combine(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    fits = [
        j for j, other in enumerate(v) if other.shape == v[i].shape and other.layout == v[i].layout
    ]
    j = fits[draw(len(fits))]
    name = ("add", "sub", "mul", "min", "max")[draw(5)]
    functions: dict[str, Any] = {
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
        "min": ndd.math.min, "max": ndd.math.max,
    }  # fmt: skip
    return f"{name} of v{i} v{j}", lambda v: functions[name](v[i], v[j])


def compare(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    n = number(draw, v[i])
    return f"( v{i} > {n} ) * v{i}", lambda v: (v[i] > n) * v[i]


def limit(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    return f"clamp v{i}", lambda v: ndd.math.clamp(v[i], -100, 100)


def transcend(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    function = (ndd.math.sin, ndd.math.sqrt, ndd.math.exp)[draw(3)]
    return f"{function.__name__} v{i}", lambda v: function(v[i])


def cast(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    kind = CASTS[draw(len(CASTS))]
    return f"cast v{i} to {kind}", lambda v: ndd.cast(v[i], dtype=kind)


def scale_samples(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    gains = [np.float32(draw(9) / 4) for _ in range(v[i].batch_size)]
    return f"v{i} times {gains}", lambda v: v[i] * ndd.batch(gains)


def shift_last_axis(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    extents = {s[-1] for s in v[i].shape}
    if len(extents) != 1:
        return "", None
    row = np.arange(extents.pop(), dtype=np.float32)
    return f"v{i} + row", lambda v: v[i] + ndd.tensor(row)


def flip(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    if v[i].layout not in ("HWC", "CHW"):
        return "", None
    flags = [draw(2) for _ in range(v[i].batch_size)]
    vertical = draw(2)
    return f"flip v{i} {flags} {vertical}", lambda v: ndd.flip(
        v[i], horizontal=ndd.batch(flags), vertical=vertical
    )


def crop(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    if v[i].layout not in ("HWC", "CHW") or v[i].dtype == ndd.bool:
        return "", None
    size = (1 + draw(9), 1 + draw(9))
    place = draw(5) / 4
    policy = ("pad", "trim_to_shape")[draw(2)]
    return f"crop v{i} {size} {place} {policy}", lambda v: ndd.crop(
        v[i], crop=size, crop_pos_x=place, out_of_bounds_policy=policy, fill_values=[7.0]
    )


def cut(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    key = []
    for _ in range(v[i].ndim):
        by = (None, 1, 2, -1, -2)[draw(5)]
        key.append(slice(None) if by is None else slice(None, None, by))
    if draw(3) == 0:
        key[0] = slice(draw(3), None)
    if draw(4) == 0 and v[i].ndim > 1 and all(s[1] for s in v[i].shape):
        key[1] = -1  # type: ignore[call-overload]
    return f"v{i} at {key}", lambda v: v[i].slice[tuple(key)]


def pad(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    axis, multiple = draw(v[i].ndim), 1 + draw(6)
    return f"pad v{i} axis {axis} to {multiple}", lambda v: ndd.pad(
        v[i], axes=(axis,), align=(multiple,), fill_value=3.0
    )


def transpose(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    perm = list(range(v[i].ndim))
    k = draw(len(perm))
    perm = perm[k:] + perm[:k] if draw(2) else perm[::-1]
    return f"transpose v{i} {perm}", lambda v: ndd.transpose(v[i], perm=perm)


def join(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    fits = [j for j, o in enumerate(v) if o.shape == v[i].shape and o.dtype == v[i].dtype]
    j = fits[draw(len(fits))]
    if sum(np.prod(s) for s in v[i].shape) > MAX_ELEMENTS:
        return "", None
    axis = draw(v[i].ndim)
    if draw(3) == 0 and v[i].ndim < 4:
        return f"stack v{i} v{j} axis {axis}", lambda v: ndd.stack(v[i], v[j], axis=axis)
    return f"cat v{i} v{j} v{i} axis {axis}", lambda v: ndd.cat(v[i], v[j], v[i], axis=axis)


def colour(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    if v[i].layout != "HWC" or {s[-1] for s in v[i].shape} != {3} or v[i].dtype == ndd.bool:
        return "", None
    amount = draw(8) / 4
    which = draw(3)
    if which == 0:
        return f"hue v{i} {amount}", lambda v: ndd.hue(v[i], hue=amount * 40)
    if which == 1:
        return f"brightness_contrast v{i} {amount}", lambda v: ndd.brightness_contrast(
            v[i], brightness=amount, contrast=0.75
        )
    return f"saturation v{i} {amount}", lambda v: ndd.saturation(
        v[i], saturation=ndd.batch([amount] * v[i].batch_size), dtype=ndd.uint8
    )


def normalise(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    if v[i].layout != "HWC" or {s[-1] for s in v[i].shape} != {3} or v[i].dtype == ndd.bool:
        return "", None
    mirror = [draw(2) for _ in range(v[i].batch_size)]
    return f"crop_mirror_normalize v{i} {mirror}", lambda v: ndd.crop_mirror_normalize(
        v[i], mirror=ndd.batch(mirror), mean=[1.0, 2.0, 3.0], std=[2.0, 3.0, 4.0]
    )


def erase(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    if v[i].layout not in ("HWC", "CHW") or v[i].dtype == ndd.bool:
        return "", None
    start, size = (draw(5), draw(5)), (draw(5), draw(5))
    return f"erase v{i} {start} {size}", lambda v: ndd.erase(
        v[i],
        anchor=[float(s) for s in start],
        shape=[float(s) for s in size],
        axes=[0, 1],
        fill_value=9.0,
    )


def _is_image(x: Value) -> bool:
    kinds = (ndd.uint8, ndd.int16, ndd.uint16, ndd.float16, ndd.float32)
    return x.layout in ("HWC", "CHW") and x.dtype in kinds and all(min(s) > 0 for s in x.shape)


def resize(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    if not _is_image(v[i]):
        return "", None
    size = (1 + draw(9), 1 + draw(9))
    how = (ndd.types.INTERP_LINEAR, ndd.types.INTERP_NN, ndd.types.INTERP_CUBIC)[draw(3)]
    return f"resize v{i} {size} {how}", lambda v: ndd.resize(v[i], size=size, interp_type=how)


def warp(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    if not _is_image(v[i]):
        return "", None
    angle = draw(12) * 30.0 + draw(2)
    fill = (None, 4.0)[draw(2)]
    how = (ndd.types.INTERP_LINEAR, ndd.types.INTERP_NN)[draw(2)]
    return f"rotate v{i} {angle} {fill} {how}", lambda v: ndd.rotate(
        v[i], angle=angle, fill_value=fill, interp_type=how, keep_size=True
    )


def blur(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    if v[i].layout not in ("HWC", "CHW") or v[i].dtype == ndd.bool:
        return "", None
    sigmas = [np.float32((1 + draw(9)) / 4) for _ in range(v[i].batch_size)]
    if draw(3):
        return f"gaussian_blur v{i} {sigmas}", lambda v: ndd.gaussian_blur(
            v[i], sigma=ndd.batch(sigmas)
        )
    kernel = np.array([[1, -2, 0.5], [0.25, 3, -1]], np.float32)
    border = ("reflect_101", "reflect_1001", "clamp", "wrap", "constant")[draw(5)]
    if not _is_image(v[i]):
        return "", None
    return f"filter v{i} {border}", lambda v: ndd.filter(v[i], kernel, border=border)


def derive(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    """Second derivatives, or a filter whose window differs between samples."""
    if v[i].layout not in ("HWC", "CHW") or v[i].dtype in (ndd.bool, ndd.float64):
        return "", None
    if draw(2):
        sizes = [np.int32([3 + 2 * draw(3), 3 + 2 * draw(3)]) for _ in range(v[i].batch_size)]
        smooth = 1 + 2 * draw(3)
        return f"laplacian v{i} {sizes} {smooth}", lambda v: ndd.laplacian(
            v[i], window_size=ndd.batch(sizes), smoothing_size=smooth, scale=0.5
        )
    if not _is_image(v[i]):
        return "", None
    row = v[i].layout.index("H")
    shapes = [(1 + draw(3), 1 + draw(4)) for _ in range(v[i].batch_size)]
    images = [s[row : row + 2] for s in v[i].shape]
    if any(k[0] > s[0] or k[1] > s[1] for k, s in zip(shapes, images, strict=True)):
        return "", None
    kernels = [np.arange(h * w, dtype=np.float32).reshape(h, w) / 4 - 1 for h, w in shapes]
    return f"filter v{i} {shapes} valid", lambda v: ndd.filter(
        v[i], ndd.batch(kernels), mode="valid"
    )


def rank(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    if v[i].layout not in ("HWC", "CHW"):
        return "", None
    sizes = [np.int32([1 + 2 * draw(4), 1 + 2 * draw(4)]) for _ in range(v[i].batch_size)]
    name = ("dilate", "erode", "median_blur")[draw(3)]
    if name == "median_blur":
        return f"median_blur v{i} {sizes}", lambda v: ndd.experimental.median_blur(
            v[i], window_size=ndd.batch(sizes)
        )
    border = ("constant", "reflect", "reflect_101", "wrap")[draw(4)]
    op, times = getattr(ndd.experimental, name), draw(3)
    return f"{name} v{i} {sizes} {border} {times}", lambda v: op(
        v[i], mask_size=ndd.batch(sizes), border_mode=border, iterations=times
    )


def mosaic(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    """One channel as a raw image of even size."""
    if v[i].layout != "HWC" or v[i].dtype == ndd.bool:
        return "", None
    rows, columns = (max(2, min(s[a] for s in v[i].shape) // 2 * 2) for a in (0, 1))
    position = [draw(2), draw(2)]
    name = ("bilinear_ocv", "edgeaware_ocv", "gray_ocv", "vng_ocv", "default_npp")[draw(5)]

    def call(v: list[Value]) -> Value:
        x = ndd.crop(v[i], crop=[rows, columns], out_of_bounds_policy="pad", fill_values=[7.0])
        raw = ndd.cast(x.slice[:, :, 0], dtype=ndd.uint8)
        return ndd.debayer(raw, blue_position=position, algorithm=name)

    return f"debayer v{i} {position} {name}", call


def through_memory(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    which = draw(3)
    if which == 0:
        return f"reshape v{i}", lambda v: ndd.reshape(v[i], shape=[-1])
    if which == 1:
        order = [draw(v[i].batch_size) for _ in range(v[i].batch_size)]
        return f"permute_batch v{i} {order}", lambda v: ndd.permute_batch(v[i], indices=order)
    return f"expand_dims v{i}", (lambda v: ndd.expand_dims(v[i], axes=[0])) if v[
        i
    ].ndim < 4 else None


def _reduction(draw: Draw, v: list[Value], i: int) -> tuple[str, Callable[[Value], Value]]:
    """A reduction along some axes that stay."""
    axes = [a for a in range(v[i].ndim) if draw(2)] or [0]
    name = ("sum", "mean", "rms", "min", "max")[draw(5)]
    function = getattr(ndd.reductions, name)
    return f"{name} of v{i} {axes}", lambda x: function(x, axes=axes, keep_dims=True)


def reduce(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    name, function = _reduction(draw, v, i)
    return name, lambda v: function(v[i])


def center(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    if v[i].dtype in (ndd.bool, ndd.float16):
        return "", None
    name, function = _reduction(draw, v, i)
    return f"v{i} minus {name}", lambda v: v[i] - function(v[i])


def deviate(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    axes = [draw(v[i].ndim)]
    return f"std_dev of v{i} {axes}", lambda v: ndd.reductions.std_dev(
        v[i], ndd.reductions.mean(v[i], axes=axes), axes=axes, keep_dims=True
    )


def standardise(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    extents = {s[-1] for s in v[i].shape}
    axes, is_batch = [*range(v[i].ndim - 1)], draw(3) == 0 and len(extents) == 1
    if not axes:
        return "", None
    return f"normalize v{i} {is_batch}", lambda v: ndd.normalize(
        v[i], axes=axes, batch=is_batch, epsilon=0.5, scale=10.0
    )


def equalize(draw: Draw, v: list[Value], i: int) -> tuple[str, Call | None]:
    if v[i].layout not in ("HWC", "CHW") or v[i].dtype != ndd.uint8:
        return "", None
    if v[i].layout == "CHW" or {s[-1] for s in v[i].shape} not in ({1}, {3}) or draw(2):
        return f"equalize v{i}", lambda v: ndd.equalize(v[i])
    tiles, across = [1 + draw(4) for _ in range(v[i].batch_size)], 1 + draw(4)
    limit, luma_only = draw(8) / 2, bool(draw(2))
    return f"clahe v{i} {tiles} {across} {limit} {luma_only}", lambda v: ndd.clahe(
        v[i], tiles_y=ndd.batch(tiles), tiles_x=across, clip_limit=limit, luma_only=luma_only
    )


STEPS = (
    add_number, multiply, subtract_from, combine, combine, compare, limit, transcend, cast, cast,
    scale_samples, shift_last_axis, flip, flip, crop, cut, cut, pad, transpose, join, colour, colour,
    normalise, erase, through_memory, resize, resize, warp, reduce, reduce, center, deviate,
    standardise, blur, blur, derive, rank, rank, mosaic, equalize,
)  # fmt: skip
