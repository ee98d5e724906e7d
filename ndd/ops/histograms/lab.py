"""RGB ↔ L*a*b* in bytes, as expressions: the fixed-point arithmetic of OpenCV, bit for bit.

Gamma and cube roots are tables; everything else is computed in int32.
"""

from __future__ import annotations

import numpy as np

from ...core import convert
from ...fusion.graph.node import Node
from ...kernels.common.memo import memoized
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.expr import Expr

# Fixed point: linear light has 3 bits more than a byte, cube roots have 15 bits, matrices 12.
_LIGHT, _ROOT_BITS, _MATRIX_BITS = 255 * 8, 15, 12
_ROOTS = 3 * 256 * 8 // 2  # entries of the table of cube roots: up to 1.5 times white
# Towards RGB, cube roots and X, Y, Z have 14 bits, and the inverse of gamma takes 12.
_XYZ_BITS, _GAMMA_BITS = 14, 12
_WHITE = np.array([0.950456, 1.0, 1.088754])  # D65
_TO_XYZ = np.array([
    [0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227],
])  # fmt: skip
_TO_RGB = np.array([
    [3.240479, -1.53715, -0.498535], [-0.969256, 1.875991, 0.041556],
    [0.055648, -0.204043, 1.057311],
])  # fmt: skip
# Below this level of L*, in bytes, lightness is linear in Y.
_LINEAR_LEVEL = 8 * 255 / 100


def _fixed(matrix: np.ndarray) -> list[list[int]]:
    return [[int(v) for v in np.rint(row * (1 << _MATRIX_BITS))] for row in matrix]


def _tables() -> np.ndarray:
    """All tables behind one another, as int32: see the offsets below."""
    level = np.arange(256) / 255
    linear = np.where(level <= 0.04045, level / 12.92, ((level + 0.055) / 1.055) ** 2.4)
    light = np.arange(_ROOTS) / _LIGHT
    # A root is rounded to float32 before it is rounded to fixed point.
    root = np.where(light < 216 / 24389, light * (841 / 108) + 16 / 116, np.cbrt(light))
    lightness = np.arange(256) * (100 / 255)
    is_dark = np.arange(256) <= _LINEAR_LEVEL
    y = np.where(is_dark, lightness / (24389 / 27), ((lightness + 16) / 116) ** 3)
    fy = np.where(is_dark, y * (841 / 108) + 16 / 116, (lightness + 16) / 116)
    light = np.arange(1 << _GAMMA_BITS) / (1 << _GAMMA_BITS)
    bent = np.where(light <= 0.0031308, light * 12.92, 1.055 * light ** (1 / 2.4) - 0.055)
    parts = (
        linear * _LIGHT, root.astype(np.float32) * (1 << _ROOT_BITS), y * (1 << _XYZ_BITS),
        fy * (1 << _XYZ_BITS), bent * 255,
    )  # fmt: skip
    return np.concatenate([np.rint(p) for p in parts]).astype(np.int32)


@memoized(1)
def table() -> Node:
    """All tables, as one constant in host memory."""
    return convert.const_array(_tables(), dt.int32)


_ROOT_AT = 256
_Y_AT = _ROOT_AT + _ROOTS
_FY_AT = _Y_AT + 256
_BENT_AT = _FY_AT + 256


def _rounded(x: Expr, bits: int) -> Expr:
    return (x + (1 << (bits - 1))) >> bits


def _mixed(weights: list[int], values: list[Expr], bits: int) -> Expr:
    a, b, c = (v * w for v, w in zip(values, weights, strict=True))
    return _rounded(a + b + c, bits)


def _byte(x: Expr) -> Expr:
    return ex.cast(ex.maximum(ex.minimum(x, 255), 0), dt.uint8)


def to_lab(rgb: list[Expr], table: Expr) -> list[Expr]:
    """L*, a* and b* of a pixel, as bytes."""
    light = [ex.lookup(table, ex.cast(c, dt.int32)) for c in rgb]
    weights = _fixed(_TO_XYZ / _WHITE[:, None])
    fx, fy, fz = (ex.lookup(table, _mixed(row, light, _MATRIX_BITS) + _ROOT_AT) for row in weights)
    black = (16 * 255 * (1 << _ROOT_BITS) + 50) // 100
    middle = 128 << _ROOT_BITS
    found = (fy * ((116 * 255 + 50) // 100) - black, (fx - fy) * 500 + middle,
             (fy - fz) * 200 + middle)  # fmt: skip
    return [_byte(_rounded(v, _ROOT_BITS)) for v in found]


def to_rgb(lab: list[Expr], table: Expr) -> list[Expr]:
    """Red, green and blue of a pixel, as bytes."""
    level, a, b = (ex.cast(c, dt.int32) for c in lab)
    y, fy = ex.lookup(table, level + _Y_AT), ex.lookup(table, level + _FY_AT)
    one = 1 << _XYZ_BITS
    # a / 500 and b / 200, of bytes around 128, in fixed point. What OpenCV adds before the shifts
    # is less than half a unit, so these quotients are nearly rounded down.
    fx = fy + (((a * (5 * 53687) + 128) >> 13) - 128 * one // 500)
    fz = fy - (((b * 41943 + 16) >> 9) - (128 * one // 200 - 1))
    weights = _fixed(_TO_RGB * _WHITE)
    shift = _MATRIX_BITS + _XYZ_BITS - _GAMMA_BITS
    found = (_mixed(row, [_cube(fx), y, _cube(fz)], shift) for row in weights)
    last = (1 << _GAMMA_BITS) - 1
    return [
        ex.cast(ex.lookup(table, ex.maximum(ex.minimum(v, last), 0) + _BENT_AT), dt.uint8)
        for v in found
    ]


def _cube(root: Expr) -> Expr:
    """The inverse of a cube root with its linear part near black, in fixed point."""
    one = 1 << _XYZ_BITS
    # The quotient of these small integers, in float32, is on the right side of every integer.
    quotient = ex.cast(root * 108, dt.float32) / 841.0
    linear = ex.cast(quotient, dt.int32) - one * 16 // 116 * 108 // 841
    cubic = (((root * root) >> _XYZ_BITS) * root) >> _XYZ_BITS
    return ex.select(root <= int(one * 6 / 29), linear, cubic)
