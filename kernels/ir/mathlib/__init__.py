"""Mathematical functions as expressions of only arithmetic, comparisons and bit operations.

NOTE [one formula, two back-ends] The IR is exactly typed and never contracted, so these formulas
give the same bits from Numba and from Triton, and both stay close to the C library's values. The
float32 functions compute in float64 and round once: they are within 0.51 ulp of the true value
(sin, cos and pow 0.56, rsqrt 1.5) for every argument, however large. Of the float64 functions, exp,
log, sin and cos are primitives of the IR (the C library on the CPU), and tan is made of two of
them; all others are formulas, within 0.5 to 2.5 ulp.

NOTE [what vectorises] AVX2 has no conversion between 64-bit integers and floats, no 64-bit
arithmetic shift and no 64-bit multiplication. It has 64-bit add, and, or, and logical shifts, and
adding 1.5 * 2**52 leaves an integer in the low bits of a float. The float32 functions use nothing
else, and no branches: special values are selected at the end.
"""

from __future__ import annotations

from ..expr import ceil, fabs, floor, sqrt
from .hyperbolic import acosh, asinh, atanh, cosh, sinh, tanh
from .integers import idiv, ipow, irem, shift_left, shift_right
from .powers import cbrt, exp, exp2, log, log2, log10, pow, rsqrt
from .trigonometry import acos, asin, atan, atan2, cos, sin, tan

__all__ = [
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "cos", "cosh",
    "exp", "exp2", "fabs", "floor", "idiv", "ipow", "irem", "log", "log10", "log2", "pow", "rsqrt",
    "shift_left", "shift_right", "sin", "sinh", "sqrt", "tan", "tanh",
]  # fmt: skip
