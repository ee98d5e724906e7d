"""NumPy reference for element-wise arithmetic, math functions, casts and constant tensors.

Each function reproduces the result of DALI dynamic mode (CPU) bit by bit, with one
exception, noted at :func:`rsqrt`.  Arguments and results are NumPy arrays; Python scalars
are accepted wherever an operand is expected.  Rejected inputs raise the exception type
that DALI raises (DALI may wrap it in an "asynchronous execution" error).
"""

import ctypes
import ctypes.util

import numpy as np

BOOL, F16, F32, F64 = (np.dtype(t) for t in ("bool", "float16", "float32", "float64"))

ARITHMETIC = ("+", "-", "*", "/", "//", "%", "**", "min", "max", "fpow", "atan2")
BITWISE = ("&", "|", "^", "<<", ">>")
COMPARISON = ("<", "<=", ">", ">=", "==", "!=")


# ---------------------------------------------------------------------------------------
# operands and result types


def operand(x):
    """An operand as an array. Python ints are int32 and floats are float32.

    A list, unlike a bare int, may also turn out uint32: without negatives, above int32.
    """
    if isinstance(x, (np.ndarray, np.generic)):
        return np.asarray(x)
    a = np.asarray(x)
    if a.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return a.astype(F32)
    if a.dtype.kind not in "iuO":
        return a
    low, high = (int(a.min()), int(a.max())) if a.size else (0, 0)
    unsigned = a.ndim > 0 and low >= 0 and high >= 2**31
    info = np.iinfo(np.uint32 if unsigned else np.int32)
    if low < info.min or high > info.max:
        raise OverflowError(f"Integer is out of range for {info.dtype}.")
    return a.astype(info.dtype)


def promote(a, b):
    """Common type of two types. float16 is rejected."""
    a, b = np.dtype(a), np.dtype(b)
    if F16 in (a, b):
        raise RuntimeError("operand data type not supported: float16")
    if a == BOOL:
        return b
    if b == BOOL:
        return a
    if F64 in (a, b):
        return F64
    if F32 in (a, b):  # even with 64-bit integers
        return F32
    if a.kind == b.kind:
        return max(a, b, key=lambda t: t.itemsize)
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    size = max(signed.itemsize, min(2 * unsigned.itemsize, 8))
    return np.dtype(f"i{size}")


def result_type(op, a, b):
    """Type of ``a op b`` for two types."""
    common = promote(a, b)
    if op in COMPARISON:
        return BOOL
    if op in BITWISE:
        if common.kind == "f":
            raise RuntimeError(f"Inputs to bitwise operator `{op}` must be of integral type.")
        return common
    if common == BOOL and op != "*":
        raise RuntimeError(f"Inputs to arithmetic operator `{op}` cannot be booleans.")
    if op in ("/", "fpow", "atan2") and common.kind != "f":
        return F32
    return common


def result_layout(layout_a, layout_b, result_ndim):
    """Layouts must be equal or one a suffix of the other; the longer one survives if it fits."""
    long, short = sorted((layout_a or "", layout_b or ""), key=len, reverse=True)
    if not long.endswith(short):
        raise RuntimeError("Layouts must be equal or one must be a suffix of the other.")
    return long if long and len(long) == result_ndim else None


# ---------------------------------------------------------------------------------------
# operators


def binary(op, a, b):
    """``a op b`` with NumPy broadcasting; both operands are converted to the result type first."""
    a, b = operand(a), operand(b)
    out = result_type(op, a.dtype, b.dtype)
    if op in COMPARISON:
        return compare(op, a, b)
    if op == "%" and out == F32 and a.dtype != b.dtype:  # an integer with f32: in double
        with np.errstate(all="ignore"):
            return np.fmod(a.astype(F64), b.astype(F64)).astype(F32)
    with np.errstate(all="ignore"):
        return _BINARY[op](a.astype(out), b.astype(out)).astype(out)


def compare(op, a, b):
    """Integers compare by value whatever their sign; a float operand makes both f32 or f64.

    A DALI bug is kept: a negative integer is less than every float, even -inf and NaN.
    """
    a, b = operand(a), operand(b)
    common = promote(a.dtype, b.dtype)
    if common.kind == "f" and "i" in (a.dtype.kind, b.dtype.kind):
        negative = a < 0 if a.dtype.kind == "i" else b < 0
        low, high = (-1, 1) if a.dtype.kind == "i" else (1, -1)
        a, b = a.astype(common), b.astype(common)
        a, b = np.where(negative, low, a), np.where(negative, high, b)
    elif common.kind == "f":
        a, b = a.astype(common), b.astype(common)
    fn = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
          "==": np.equal, "!=": np.not_equal}[op]  # fmt: skip
    return fn(a, b)


def unary(op, a):
    """``-a``, ``+a``, ``~a`` and ``abs(a)``. Integers wrap, so abs(-128) is -128 in int8."""
    a = operand(a)
    if op == "+":
        return a
    if op == "~":
        if a.dtype.kind == "f":
            raise RuntimeError("Inputs to bitwise operator `~` must be of integral type.")
        return ~a
    if a.dtype == F16:
        raise RuntimeError("Unsupported type: float16")
    if a.dtype == BOOL:
        raise RuntimeError(f"Input to arithmetic operator `{op}` cannot be a boolean.")
    return -a if op == "-" else np.where(a < 0, -a, a)  # so abs(-0.0) is -0.0, unlike fabs


def minimum(a, b):
    """The right operand unless the left is smaller: a NaN on either side gives the right one."""
    return np.where(a < b, a, b)


def maximum(a, b):
    """The right operand unless the left is greater."""
    return np.where(a > b, a, b)


def clamp(value, lo, hi):
    """NaN values stay, NaN bounds are ignored, ``hi`` wins over ``lo``."""
    value, lo, hi = operand(value), operand(lo), operand(hi)
    out = promote(promote(value.dtype, lo.dtype), hi.dtype)
    if out == BOOL:
        raise RuntimeError("Inputs to arithmetic operator `clamp` cannot be booleans.")
    value, lo, hi = value.astype(out), lo.astype(out), hi.astype(out)
    value = np.where(value < lo, lo, value)
    return np.where(value > hi, hi, value)


def floor_divide(a, b):
    """Integers truncate toward zero; on floats this is plain division."""
    if a.dtype.kind == "f":
        return a / b
    remainder = modulo(a, b)
    return (a - remainder) // b


def modulo(a, b):
    """C remainder: the sign of the dividend. Integer MIN % -1 kills the process in DALI."""
    if a.dtype.kind != "f" and a.size and np.any(b == 0):
        raise ValueError("Integer division by zero.")
    return np.fmod(a, b)


def power(a, b):
    """Floats as libm pow; integers wrap, and a negative exponent gives 0 whatever the base."""
    if a.dtype.kind == "f":
        return libm("pow", a, b)
    base, exponent = (x.copy() for x in np.broadcast_arrays(a, b))
    negative = exponent < 0
    exponent[negative] = 0
    result = np.ones_like(base)
    while exponent.any():
        result = np.where(exponent & 1, result * base, result)
        base = base * base
        exponent = exponent >> 1
    return np.where(negative, 0, result)


def shift(a, b, left):
    """At least 32 bits wide, the amount taken modulo 32 or 64, then wrapped to the type."""
    width = 64 if a.dtype.itemsize == 8 else 32
    wide = np.dtype(f"{'u' if a.dtype.kind == 'u' else 'i'}{width // 8}")
    amount = b.astype(wide) & wide.type(width - 1)
    shifted = a.astype(wide) << amount if left else a.astype(wide) >> amount
    return shifted.astype(a.dtype)


# ---------------------------------------------------------------------------------------
# math functions

_LIBM = ctypes.CDLL(ctypes.util.find_library("m"))

MATH_UNARY = (
    "sqrt rsqrt cbrt exp log log2 log10 fabs abs floor ceil sin cos tan asin acos atan "
    "sinh cosh tanh asinh acosh atanh"
).split()


def libm(name, *args):
    """Element-wise C math function in the type of its arguments (sinf for f32, sin for f64)."""
    single = args[0].dtype == F32
    fn = getattr(_LIBM, name + "f" if single else name)
    c_type = ctypes.c_float if single else ctypes.c_double
    fn.argtypes, fn.restype = [c_type] * len(args), c_type
    args = np.broadcast_arrays(*args)
    values = [fn(*map(float, items)) for items in zip(*(x.ravel() for x in args))]
    return np.array(values, args[0].dtype).reshape(args[0].shape)


def rsqrt(x):
    """f32 uses the CPU's estimate and one Newton step: equal to this up to 3 ulp, not exactly."""
    if x.dtype == F32:
        estimate = np.float32(1) / np.sqrt(x)
        estimate[(x == 0) | (x == np.inf)] = np.nan
        estimate[(x > 0) & (x < np.finfo(F32).tiny)] = -np.inf
        return estimate
    return 1 / np.sqrt(x)


def math_fn(name, *args):
    """``ndd.math.<name>``. Integers are computed in f32, except for abs, min, max, clamp, pow."""
    if name == "clamp":
        return clamp(*args)
    if name in ("min", "max", "pow", "fpow", "atan2"):
        return binary("**" if name == "pow" else name, *args)
    (x,) = map(operand, args)
    if name == "abs":
        return unary("abs", x)
    if x.dtype == F16:
        raise RuntimeError("Unsupported type: float16")
    if x.dtype == BOOL:
        raise RuntimeError(f"Input to arithmetic operator `{name}` cannot be a boolean.")
    x = x if x.dtype.kind == "f" else x.astype(F32)
    with np.errstate(all="ignore"):
        return rsqrt(x) if name == "rsqrt" else libm(name, x)


_BINARY = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": floor_divide,
    "%": modulo,
    "**": power,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "<<": lambda a, b: shift(a, b, left=True),
    ">>": lambda a, b: shift(a, b, left=False),
    "min": minimum,
    "max": maximum,
    "fpow": power,
    "atan2": lambda a, b: libm("atan2", a, b),
}


# ---------------------------------------------------------------------------------------
# conversions


def round_half_away(x):
    """Nearest integer as a float, halves away from zero (C ``round``)."""
    whole = np.trunc(x)
    with np.errstate(invalid="ignore"):
        return whole + np.where(np.abs(x - whole) >= 0.5, np.sign(x), 0)


def cast(x, dtype):
    """Conversion with rounding and saturation, as in ``cast``, ``cast_like`` and ``full_like``."""
    x, dtype = operand(x), np.dtype(dtype)
    if x.dtype == dtype:
        return x.copy()
    if dtype == BOOL:
        return x != 0 if x.dtype.kind != "f" else ~(np.abs(x) < 0.5)
    if dtype == F16:
        return to_half(x)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return x.astype(dtype)
    return float_to_int(x, dtype) if x.dtype.kind == "f" else int_to_int(x, dtype)


def int_to_int(x, dtype):
    """Saturating."""
    if x.dtype == BOOL:
        return x.astype(dtype)
    src, dst = np.iinfo(x.dtype), np.iinfo(dtype)
    return np.clip(x, max(src.min, dst.min), min(src.max, dst.max)).astype(dtype)


def float_to_int(x, dtype):
    """Halves away from zero, saturating; NaN is whatever the CPU instruction gives."""
    info = np.iinfo(dtype)
    rounded = round_half_away(x.astype(F64))
    nan = {"i4": info.min, "i8": info.min, "u8": 2**63}.get(dtype.str[1:], 0)
    out = np.full(x.shape, nan, dtype)
    below, above = rounded < float(info.min), rounded >= float(info.max + 1)
    inside = ~(below | above | np.isnan(rounded))
    out[inside] = rounded[inside].astype(dtype)
    out[below], out[above] = info.min, info.max
    return out


def to_half(x):
    """Through f32 (f64 rounds twice), then ties away from zero rather than to even."""
    with np.errstate(over="ignore", invalid="ignore"):
        value = x.astype(F32).astype(F64)
        exponent = np.maximum(np.frexp(value)[1] - 1, -14)
        quantum = np.ldexp(1.0, exponent - 10)
        rounded = np.copysign(round_half_away(value / quantum) * quantum, value)
        return np.where(np.isfinite(value), rounded, value).astype(F16)


def c_cast(x, dtype):
    """Plain C conversion of a float on x86-64: truncates, then narrow integers wrap.

    What int32 (or, for the wider types, int64) cannot hold becomes its minimum.
    """
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return np.asarray(x).astype(dtype)
    half = 2 ** (63 if dtype in (np.uint32, np.int64, np.uint64) else 31)
    limit = 2 * half if dtype == np.uint64 else half
    whole = int(x) if np.isfinite(x) and -half <= x < limit else -half
    return np.array(whole % 2**64, np.uint64).astype(dtype)


# ---------------------------------------------------------------------------------------
# constant tensors


def full(fill_value, shape=()):
    """``fill_value`` broadcast to ``shape``; surplus leading extents of it use only index 0."""
    fill_value = operand(fill_value)
    while fill_value.ndim > len(shape):
        fill_value = fill_value[0]
    return np.broadcast_to(fill_value, shape)


def full_like(data_like, fill_value):
    data_like = operand(data_like)
    return cast(full(fill_value, data_like.shape), data_like.dtype)


def one_hot(x, num_classes=0, axis=None, on_value=1.0, off_value=0.0, dtype="float32"):
    """Adds an axis of classes, by default last; without ``axis`` one element counts as a scalar.

    Class ids are converted to int32 the C way: floats truncate, 64-bit integers wrap.
    """
    x, dtype = operand(x), np.dtype(dtype)
    if F16 in (x.dtype, dtype) or BOOL in (x.dtype, dtype):
        raise RuntimeError("Unsupported type")
    if axis is None:
        axis, x = -1, x.reshape(()) if x.size == 1 else x
    if not -1 <= axis <= x.ndim:
        raise RuntimeError(f"Provided axis is outside of allowed range, got: {axis}")
    ids = np.array([c_cast(v, np.int32) if x.dtype.kind == "f" else v for v in x.ravel()])
    ids = ids.astype(np.int32).reshape(x.shape)
    hit = np.expand_dims(ids, -1) == np.arange(num_classes, dtype=np.int32)
    on, off = (c_cast(np.float32(v), dtype) for v in (on_value, off_value))
    return np.moveaxis(np.where(hit, on, off), -1, axis)
