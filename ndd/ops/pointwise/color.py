"""Colour ops, all pointwise: intensities, hue and saturation, colour spaces."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...core.schema import REQUIRED, arg, data, op, static
from ...fusion.graph import build
from ...fusion.graph.shapes import Shapes
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir import mathlib as ml
from ...kernels.ir.dtypes import DALIImageType, DType
from ...kernels.ir.expr import Expr

FRAMES = "HWC FHWC DHWC"
_DTYPE = "Element type of the result; the input's if omitted."
_SHIFT = "Brightness offset; 1 is the whole range of the result's type."
_CENTER = "Level that contrast leaves unchanged; the middle of the range if omitted."


def f32(x: Expr) -> Expr:
    return ex.cast(x, dt.float32)


def _full_range(dtype: DType) -> float:
    return 1.0 if dtype.is_float else float(ex.limits(dtype)[1])


def _center(given: Expr | None, dtype: DType) -> Expr:
    """The level that contrast does not change; by default the middle of the positive range."""
    if given is not None:
        return given
    return ex.const(0.5 if dtype.is_float else (ex.limits(dtype)[1] + 1) // 2, dt.float32)


@op.pointwise(
    layouts=FRAMES, rejects="bool",
    sample="""img = ndd.zeros(shape=[2, 2, 3], dtype=ndd.uint8, layout="HWC")
ndd.brightness_contrast(img, brightness=1.5, contrast=0.5).shape
=(2, 2, 3)""",
)  # fmt: skip
def brightness_contrast(
    input=data("Images, sequences or volumes."),
    brightness=arg(float, 1.0, "Brightness multiplier.", per_frame=True),
    brightness_shift=arg(float, 0.0, _SHIFT, per_frame=True),
    contrast=arg(float, 1.0, "Contrast multiplier.", per_frame=True),
    contrast_center=arg(float, None, _CENTER, per_frame=True),
    dtype=static(DType, None, _DTYPE),
):  # fmt: skip
    """Scale the contrast around a centre, then scale and shift the brightness."""
    center = _center(contrast_center, input.dtype)
    scale = brightness * contrast
    offset = brightness_shift * _full_range(dtype) + brightness * (center - contrast * center)
    return f32(input) * scale + offset


@op.pointwise(layouts=FRAMES, rejects="bool")
def brightness(
    input=data("Images, sequences or volumes."),
    brightness=arg(float, 1.0, "Brightness multiplier.", per_frame=True),
    brightness_shift=arg(float, 0.0, _SHIFT, per_frame=True),
    dtype=static(DType, None, _DTYPE),
):
    """Scale and shift intensities."""
    return f32(input) * brightness + brightness_shift * _full_range(dtype)


@op.pointwise(layouts=FRAMES, rejects="bool")
def contrast(
    input=data("Images, sequences or volumes."),
    contrast=arg(float, 1.0, "Contrast multiplier.", per_frame=True),
    contrast_center=arg(float, None, _CENTER, per_frame=True),
    dtype=static(DType, None, _DTYPE),
):
    """Scale the distance of intensities from a centre."""
    center = _center(contrast_center, input.dtype)
    return f32(input) * contrast + (center - contrast * center)


# -- hue and saturation --------------------------------------------------------------------------
# RGB → YIQ, and the inverse that upstream computes in float32. We found it by matching upstream's
# results bit for bit; it is one unit in the last place off the exact inverse.
_YIQ = ((0.299, 0.587, 0.114), (0.596, -0.274, -0.321), (0.211, -0.523, 0.311))
_RGB = (
    (0.9996643662452698, 0.9565411806106567, 0.6208617091178894),
    (0.9996248483657837, -0.2722744643688202, -0.6474512815475464),
    (1.0028122663497925, -1.1068480014801025, 1.705405592918396),
)


def _twist(
    hue: Expr | None, saturation: Expr | None, before: Expr | None = None, after: Expr | None = None
) -> list[list[Expr]]:
    """The matrix that rotates chroma by `hue` degrees and scales it, in YIQ.

    `before` and `after` both scale all channels, but they round differently in the last bit.
    """
    angle = None if hue is None else f32(ex.cast(hue, dt.float64) * math.pi / 180.0)
    matrix = []
    for row in _RGB:
        y, i, q = _scaled([ex.const(v, dt.float32) for v in row], before)
        if angle is not None:
            c, s = ml.cos(angle), ml.sin(angle)
            i, q = i * c - q * s, i * s + q * c
        mixed = _scaled([y, *_scaled([i, q], saturation)], after)
        matrix.append([_dot(mixed, column) for column in zip(*_YIQ, strict=True)])
    return matrix


def _scaled(values: Sequence[Expr], by: Expr | None) -> Sequence[Expr]:
    return values if by is None else [v * by for v in values]


def _dot(values: Sequence[Expr], weights: Sequence[Expr] | Sequence[float]) -> Expr:
    return values[0] * weights[0] + values[1] * weights[1] + values[2] * weights[2]


def _mix_channels(x: Expr, matrix: list[list[Expr]]) -> Expr:
    """Each output channel as a weighted sum of the three input channels."""
    channels = [f32(ex.at_axis(x, -1, k)) for k in range(3)]
    return by_channel([_dot(row, channels) for row in matrix])


def by_channel(values: Sequence[Expr]) -> Expr:
    """One of three values, by the position on the channel axis."""
    channel = ex.index(-1)
    rest = ex.select(ex.eq(channel, 1), values[1], values[2])
    return ex.select(ex.eq(channel, 0), values[0], rest)


_HUE = "Hue change, in degrees."
_SATURATION = "Saturation multiplier."
_IMAGE_TYPE = static(DALIImageType, DALIImageType.RGB, "Colour space; without effect.")


@op.pointwise(layouts=FRAMES, needs_channels=3, rejects="bool")
def hue(
    input=data("Images, sequences or volumes with three channels."),
    hue=arg(float, 0.0, _HUE, per_frame=True),
    image_type=_IMAGE_TYPE,
    dtype=static(DType, None, _DTYPE),
):
    """Rotate the hue."""
    return _mix_channels(input, _twist(hue, None))


@op.pointwise(layouts=FRAMES, needs_channels=3, rejects="bool")
def saturation(
    input=data("Images, sequences or volumes with three channels."),
    saturation=arg(float, 1.0, _SATURATION, per_frame=True),
    image_type=_IMAGE_TYPE,
    dtype=static(DType, None, _DTYPE),
):
    """Scale the saturation."""
    return _mix_channels(input, _twist(None, saturation))


@op.pointwise(layouts=FRAMES, needs_channels=3, rejects="bool", out=dt.uint8)
def hsv(
    input=data("Images or sequences with three channels."),
    hue=arg(float, 0.0, _HUE, per_frame=True),
    saturation=arg(float, 1.0, _SATURATION, per_frame=True),
    value=arg(float, 1.0, "Value multiplier.", per_frame=True),
    dtype=static(DType, dt.uint8, "Element type of the result; uint8 if omitted."),
):
    """Change hue, saturation and value."""
    return _mix_channels(input, _twist(hue, saturation, after=value))


@op.pointwise(layouts=FRAMES, needs_channels=3, rejects="bool")
def color_twist(
    input=data("Images, sequences or volumes with three channels."),
    brightness=arg(float, 1.0, "Brightness multiplier.", per_frame=True),
    contrast=arg(float, 1.0, "Contrast multiplier.", per_frame=True),
    hue=arg(float, 0.0, _HUE, per_frame=True),
    saturation=arg(float, 1.0, _SATURATION, per_frame=True),
    image_type=_IMAGE_TYPE,
    dtype=static(DType, None, _DTYPE),
):
    """Change hue, saturation, contrast and brightness with one 3x3 matrix."""
    half = 0.5 if input.dtype.is_float else 128.0
    offset = (half - half * contrast) * brightness
    return _mix_channels(input, _twist(hue, saturation, before=brightness * contrast)) + offset


# -- colour spaces -------------------------------------------------------------------------------
# BT.601 in studio range: luma 16…235, chroma 16…240.
_LUMA = (0.299, 0.587, 0.114)
_TO_STUDIO, _CHROMA = 219 / 255, 224 / 255
_TO_YCBCR = (
    tuple(w * _TO_STUDIO for w in _LUMA),
    tuple(((k == 2) - w) / 1.772 * _CHROMA for k, w in enumerate(_LUMA)),
    tuple(((k == 0) - w) / 1.402 * _CHROMA for k, w in enumerate(_LUMA)),
)
_CHANNELS = {"RGB": 3, "BGR": 3, "YCbCr": 3, "GRAY": 1}


def _rgb_to_gray(r: Expr, g: Expr, b: Expr) -> list[Expr]:
    r, g, b = (ex.cast(c, dt.int32) for c in (r, g, b))
    return [ex.cast((r * 9798 + g * 19235 + b * 3735 + 16384) >> 15, dt.uint8)]


def _rgb_to_ycbcr(r: Expr, g: Expr, b: Expr) -> list[Expr]:
    r, g, b = f32(r), f32(g), f32(b)
    rows = zip(_TO_YCBCR, (16.0, 128.0, 128.0), strict=True)
    return [_u8(m[0] * r + m[1] * g + m[2] * b + offset) for m, offset in rows]


def _ycbcr_to_rgb(y: Expr, cb: Expr, cr: Expr) -> list[Expr]:
    luma = (f32(y) - 16.0) * (1 / _TO_STUDIO)
    blue, red = f32(cb) - 128.0, f32(cr) - 128.0
    to_green = 1.772 * 0.114 / 0.587 / _CHROMA, 1.402 * 0.299 / 0.587 / _CHROMA
    green = luma - to_green[0] * blue - to_green[1] * red
    return [_u8(luma + (1.402 / _CHROMA) * red), _u8(green), _u8(luma + (1.772 / _CHROMA) * blue)]


def _u8(x: Expr) -> Expr:
    return ex.convert(x, dt.uint8)


def _in_colour_space(x: Expr, source: str, target: str) -> Expr:
    """Convert the pixel `x`, read channel by channel, to another colour space."""
    channels = [ex.at_axis(x, -1, k) for k in range(_CHANNELS[source])]
    if source == "BGR":
        channels.reverse()
    if source == "GRAY" and target == "YCbCr":
        half = ex.const(128, dt.uint8)
        result = [_u8(f32(channels[0]) * _TO_STUDIO + 16.0), half, half]
    elif source == "GRAY":
        result = channels * 3
    elif source == "YCbCr" and target == "GRAY":
        result = [_u8((f32(channels[0]) - 16.0) * (1 / _TO_STUDIO))]
    elif source == "YCbCr":
        result = _ycbcr_to_rgb(*channels)
    elif target == "GRAY":
        result = _rgb_to_gray(*channels)
    elif target == "YCbCr":
        result = _rgb_to_ycbcr(*channels)
    else:
        result = channels
    if target == "BGR":
        result.reverse()
    return by_channel(result) if len(result) == 3 else result[0]


@op.graph(
    layouts="FDHWC FHWC DHWC HWC",
    sample="""image = ndd.zeros(shape=[4, 4, 3], dtype=ndd.uint8, layout='HWC')
ndd.color_space_conversion(image, image_type='RGB', output_type='GRAY').shape
=(4, 4, 1)""",
)  # fmt: skip
def color_space_conversion(
    input=data("Images, sequences or volumes of uint8."),
    image_type=static(DALIImageType, REQUIRED, "Colour space: RGB, BGR, GRAY or YCbCr."),
    output_type=static(DALIImageType, REQUIRED, "Colour space of the result."),
):
    """Convert between RGB, BGR, grey and YCbCr (BT.601, studio range)."""
    source, target = image_type.name, output_type.name
    if source == target or not {source, target} <= set(_CHANNELS):
        raise ValueError(f"conversion from {source} to {target} is not supported")
    if input.dtype is not dt.uint8:
        raise TypeError(f"only uint8 images can be converted, got {input.dtype}")
    rows = input.shapes.rows
    wrong = np.flatnonzero(rows[:, -1] != _CHANNELS[source])
    if len(wrong):
        s = int(wrong[0])
        raise ValueError(
            f"{source} images have {_CHANNELS[source]} channels, sample {s} of shape "
            f"{input.shapes.tuples[s]} has {int(rows[s, -1])}"
        )
    shapes = input.shapes
    if _CHANNELS[target] != _CHANNELS[source]:
        rows = rows.copy()
        rows[:, -1] = _CHANNELS[target]
        shapes = Shapes(rows)
    whole = tuple(range(input.rank))
    return build.pointwise(
        "color_space_conversion", _in_colour_space, [input], [whole], shapes, input.layout,
        (source, target),
    )  # fmt: skip
