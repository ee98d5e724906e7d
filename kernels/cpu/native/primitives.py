"""Intrinsics that generated CPU kernels need and Numba lacks: loads and stores at an address, stack
memory, 16-bit floats, bit casts. Only imported to compile something.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from ...ir import dtypes as dt
from ...ir.dtypes import NUMERIC, DType
from .block_sizes import STAGING_BYTES

# The Numba type that holds a value of each dtype in a register; 16-bit floats are held as bits.
REGISTER = {
    dt.bool_: types.boolean, dt.float16: types.uint16, dt.bfloat16: types.uint16,
    dt.float32: types.float32, dt.float64: types.float64,
    dt.uint8: types.uint8, dt.uint16: types.uint16, dt.uint32: types.uint32,
    dt.uint64: types.uint64, dt.int8: types.int8, dt.int16: types.int16, dt.int32: types.int32,
    dt.int64: types.int64,
}  # fmt: skip


def _address(builder: Any, base: Any, offset: Any, element: ir.Type) -> Any:
    return builder.gep(builder.inttoptr(base, element.as_pointer()), [offset])


SCOPES = ("in", *(f"out{n}" for n in range(8)))


def _scoped(builder: Any, instruction: Any, own: str) -> Any:
    # A kernel never reads memory that it writes, and writes no element twice. Alias scopes say so
    # to LLVM; with a run-time overlap test for each pair of arrays instead, the vectoriser gives up
    # beyond a few arrays.
    module = builder.module
    domain = module.add_metadata(["ndd"])
    scope = {name: module.add_metadata([name, domain]) for name in SCOPES}
    instruction.set_metadata("alias.scope", module.add_metadata([scope[own]]))
    others = [scope[name] for name in SCOPES if name != own]
    instruction.set_metadata("noalias", module.add_metadata(others))
    return instruction


def _make_load(dtype: DType, scope: str | None) -> Any:
    register = REGISTER[dtype]

    @intrinsic
    def load(typingctx: Any, base: Any, offset: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            is_bool = dtype is dt.bool_
            element = ir.IntType(8) if is_bool else context.get_value_type(register)
            value = builder.load(_address(builder, args[0], args[1], element))
            if scope is not None:
                _scoped(builder, value, scope)
            return builder.icmp_unsigned("!=", value, value.type(0)) if is_bool else value

        return register(types.int64, types.int64), codegen

    return load


def _make_store(dtype: DType, scope: str | None) -> Any:
    register = REGISTER[dtype]

    @intrinsic
    def store(typingctx: Any, base: Any, offset: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            base, offset, value = args
            if dtype is dt.bool_:
                value = builder.zext(value, ir.IntType(8))
            done = builder.store(value, _address(builder, base, offset, value.type))
            if scope is not None:
                _scoped(builder, done, scope)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, register), codegen

    return store


def _make_bits(source: DType, target: DType) -> Any:
    @intrinsic
    def reinterpret(typingctx: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return builder.bitcast(args[0], context.get_value_type(REGISTER[target]))

        return REGISTER[target](REGISTER[source]), codegen

    return reinterpret


for _t in NUMERIC:
    globals()[f"load_{_t}"] = _make_load(_t, "in")
    for _n in range(8):
        globals()[f"store_{_t}_{_n}" if _n else f"store_{_t}"] = _make_store(_t, f"out{_n}")
    globals()[f"get_{_t}"] = _make_load(_t, None)  # for tables on the stack
    globals()[f"put_{_t}"] = _make_store(_t, None)
    globals()[f"row_{_t}"] = _make_load(_t, "out7")  # rows that kernels write and read themselves
for _a, _b in (("f32", "i32"), ("f32", "u32"), ("f64", "i64"), ("f64", "u64")):
    globals()[f"bits_{_a}_{_b}"] = _make_bits(DType.parse(_a), DType.parse(_b))
    globals()[f"bits_{_b}_{_a}"] = _make_bits(DType.parse(_b), DType.parse(_a))
for _b in ("u8", "u16", "u32", "u64"):
    _a = "i" + _b[1:]
    globals()[f"bits_{_a}_{_b}"] = _make_bits(DType.parse(_a), DType.parse(_b))
    globals()[f"bits_{_b}_{_a}"] = _make_bits(DType.parse(_b), DType.parse(_a))


def _make_stack(nbytes: int, is_zeroed: bool = True) -> Any:
    @intrinsic
    def stack(typingctx: Any) -> Any:
        """Address of a block on the kernel's stack."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            # Not `cgutils.alloca_once`: it stores an array of zeros, which LLVM splits into bytes
            # and then looks at one by one. Compiling a rotation took 1.0 s that way instead of 0.3.
            with builder.goto_entry_block():
                block = builder.alloca(ir.ArrayType(ir.IntType(8), nbytes))
                block.align = 64
                if is_zeroed:
                    cgutils.memset(builder, block, ir.Constant(ir.IntType(64), nbytes), 0)
            return builder.ptrtoint(block, ir.IntType(64))

        return types.int64(), codegen

    return stack


for _nbytes in (256, 512, 1024, 1280, 2048):  # tables of 256 entries, lines of 64 pixels
    globals()[f"stack_{_nbytes}"] = _make_stack(_nbytes)
staging = _make_stack(STAGING_BYTES, is_zeroed=False)  # of rows that are stored past the caches


def _make_rounding(name: str, register: Any) -> Any:
    @intrinsic
    def rounding(typingctx: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            fn = builder.module.declare_intrinsic(f"llvm.{name}", [args[0].type])
            return builder.call(fn, args)

        return register(register), codegen

    return rounding


for _name in ("floor", "ceil", "trunc", "rint", "fabs", "sqrt"):
    globals()[f"{_name}_f32"] = _make_rounding(_name, types.float32)
    globals()[f"{_name}_f64"] = _make_rounding(_name, types.float64)


def _make_fmod(register: Any) -> Any:
    @intrinsic
    def fmod(typingctx: Any, x: Any, y: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return builder.frem(*args)  # LLVM turns it into a call of libm's fmod

        return register(register, register), codegen

    return fmod


fmod_f32, fmod_f64 = _make_fmod(types.float32), _make_fmod(types.float64)


@intrinsic
def fma_f32(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.FunctionType(args[0].type, [args[0].type] * 3)
        return builder.call(
            builder.module.declare_intrinsic("llvm.fma", [args[0].type], kind), args
        )

    return types.float32(types.float32, types.float32, types.float32), codegen


@intrinsic
def choose(typingctx: Any, condition: Any, a: Any, b: Any) -> Any:
    """`a` if `condition` else `b`, without branches.

    A Python conditional becomes branches, and LLVM threads constants through them. A clamp to two
    constants would then take a comparison and a blend more than the two instructions min and max.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.select(*args)

    kind = getattr(a, "literal_type", a)  # Numba gives True and False literal types
    return kind(types.boolean, kind, kind), codegen


HAS_F16C = bool(llvm.get_host_cpu_features().get("f16c", False))


@intrinsic
def _native_f16_to_f32(typingctx: Any, word: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), codegen


@intrinsic
def _native_f32_to_f16(typingctx: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(builder.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), codegen


def _portable_halves() -> tuple[Any, Any]:
    """Exact conversions in integer arithmetic, for CPUs on which LLVM would call a library."""
    import numpy as np
    from numba import njit

    i32_of, f32_of = globals()["bits_f32_u32"], globals()["bits_u32_f32"]
    u32, u16, f32 = np.uint32, np.uint16, np.float32

    @njit(inline="always")
    def widen(h):  # type: ignore[no-untyped-def]
        sign = u32(u32(h) & u32(0x8000)) << u32(16)
        body = u32(h) & u32(0x7FFF)
        if body >= u32(0x7C00):
            word = u32(0x7F800000) | u32(u32(body & u32(0x3FF)) << u32(13))
            if body > u32(0x7C00):
                word = word | u32(0x400000)
        elif body >= u32(0x400):
            word = u32(u32(body << u32(13)) + u32(0x38000000))
        else:
            word = u32(i32_of(f32(body) * f32(2.0**-24)))
        return f32_of(u32(u32(sign) | u32(word)))

    @njit(inline="always")
    def narrow(x):  # type: ignore[no-untyped-def]
        word = u32(i32_of(x))
        sign = u32(word >> u32(16)) & u32(0x8000)
        body = u32(word & u32(0x7FFFFFFF))
        if body > u32(0x7F800000):
            half = u32(0x7E00) | u32(u32(body >> u32(13)) & u32(0x3FF))
        elif body >= u32(0x477FF000):
            half = u32(0x7C00)
        elif body < u32(0x38800000):
            # Adding 0.5 rounds to even and leaves the half's subnormal bits in the lowest places.
            half = u32(i32_of(f32(f32_of(u32(body)) + f32(0.5))) - u32(0x3F000000))
        else:
            odd = u32(u32(body >> u32(13)) & u32(1))
            half = u32(u32(u32(body - u32(0x38000000)) + u32(0xFFF) + odd) >> u32(13))
        return u16(u32(sign) | u32(half))

    return widen, narrow


if HAS_F16C:
    f16_to_f32, f32_to_f16 = _native_f16_to_f32, _native_f32_to_f16
else:
    f16_to_f32, f32_to_f16 = _portable_halves()
