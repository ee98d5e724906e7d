"""Native helpers of `SpectrumLines`: Fourier transforms of eight frames at once.

See NOTE [transforms of eight frames] in ir/fourier.py. A row of the work area is the real or the
imaginary part of one number, for all eight frames. This module is imported only when a kernel is
compiled.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic

from ...ir.fourier import HEADER
from . import primitives as prims
from .block_sizes import GROUP
from .vectors import F32, FLOATS, I64, load_vector, splat, transposed, vector_function

_get_f32, _put_f32 = prims.get_f32, prims.put_f32  # type: ignore[attr-defined]
_get_i64 = prims.get_i64  # type: ignore[attr-defined]

Vector = Any  # an LLVM value: a number of each frame
Complex = tuple[Vector, Vector]

_ZERO = np.float32(0.0)
ROW_BYTES = GROUP * 4
PAIR_BYTES = 2 * ROW_BYTES  # of a complex number


def _spread_pair(builder: Any, place: Any) -> Complex:
    """A complex number in memory, the same for all frames."""
    re, im = (builder.load(builder.gep(place, [I64(c)])) for c in (0, 1))
    return splat(builder, re, GROUP), splat(builder, im, GROUP)


class _Arithmetic:
    """Complex numbers as pairs of vectors."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def add(self, a: Complex, b: Complex) -> Complex:
        return self.builder.fadd(a[0], b[0]), self.builder.fadd(a[1], b[1])

    def sub(self, a: Complex, b: Complex) -> Complex:
        return self.builder.fsub(a[0], b[0]), self.builder.fsub(a[1], b[1])

    def mul(self, a: Complex, root: Complex) -> Complex:
        b = self.builder
        re = b.fsub(b.fmul(a[0], root[0]), b.fmul(a[1], root[1]))
        return re, b.fadd(b.fmul(a[0], root[1]), b.fmul(a[1], root[0]))

    def scale(self, a: Complex, by: float) -> Complex:
        factor = ir.Constant(FLOATS, [by] * GROUP)
        return self.builder.fmul(a[0], factor), self.builder.fmul(a[1], factor)

    def turned(self, a: Complex) -> Complex:
        """-i * a"""
        return a[1], self.builder.fneg(a[0])

    def load(self, pointer: Any, offset: Any) -> Complex:
        at = self.builder.gep(pointer, [offset])
        imaginary = self.builder.gep(at, [I64(GROUP)])
        return load_vector(self.builder, at, FLOATS), load_vector(self.builder, imaginary, FLOATS)

    def store(self, pointer: Any, offset: Any, a: Complex) -> None:
        for k, part in enumerate(a):
            at = self.builder.gep(pointer, [self.builder.add(offset, I64(k * GROUP))])
            place = self.builder.bitcast(at, FLOATS.as_pointer())
            self.builder.store(part, place).align = 4

    # -- short transforms ----------------------------------------------------------------------

    def transform(self, x: list[Complex]) -> list[Complex]:
        return getattr(self, f"_of_{len(x)}")(*x)

    def _of_2(self, a: Complex, b: Complex) -> list[Complex]:
        return [self.add(a, b), self.sub(a, b)]

    def _of_3(self, a: Complex, b: Complex, c: Complex) -> list[Complex]:
        total, apart = self.add(b, c), self.sub(b, c)
        middle = self.add(a, self.scale(total, -0.5))
        side = self.turned(self.scale(apart, math.sqrt(0.75)))
        return [self.add(a, total), self.add(middle, side), self.sub(middle, side)]

    def _of_4(self, a: Complex, b: Complex, c: Complex, d: Complex) -> list[Complex]:
        even, odd = self._of_2(a, c), self._of_2(b, d)
        turned = self.turned(odd[1])
        return [
            self.add(even[0], odd[0]), self.add(even[1], turned),
            self.sub(even[0], odd[0]), self.sub(even[1], turned),
        ]  # fmt: skip

    def _of_5(self, a: Complex, b: Complex, c: Complex, d: Complex, e: Complex) -> list[Complex]:
        (p, q), (r, s) = (self._of_2(b, e), self._of_2(c, d))
        cos = [math.cos(2 * math.pi * k / 5) for k in (1, 2)]
        sin = [math.sin(2 * math.pi * k / 5) for k in (1, 2)]
        near = self.add(a, self.add(self.scale(p, cos[0]), self.scale(r, cos[1])))
        far = self.add(a, self.add(self.scale(p, cos[1]), self.scale(r, cos[0])))
        side = self.turned(self.add(self.scale(q, sin[0]), self.scale(s, sin[1])))
        other = self.turned(self.sub(self.scale(q, sin[1]), self.scale(s, sin[0])))
        return [
            self.add(a, self.add(p, r)), self.add(near, side), self.add(far, other),
            self.sub(far, other), self.sub(near, side),
        ]  # fmt: skip


def _make_butterflies(radix: int) -> Any:
    @intrinsic
    def butterflies(typingctx: Any, data: Any, at: Any, apart: Any, blocks: Any, roots: Any) -> Any:
        """Transform number `at` of each part of `blocks` blocks, which have parts of `apart`."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            data, at, apart, blocks, roots = args
            data, roots = (builder.inttoptr(x, F32.as_pointer()) for x in (data, roots))
            do = _Arithmetic(builder)
            width = I64(2 * GROUP)
            by = builder.mul(apart, width)
            first = builder.mul(at, width)
            length = builder.mul(by, I64(radix))
            places = [builder.gep(roots, [I64(2 * k)]) for k in range(radix - 1)]
            own = [_spread_pair(builder, place) for place in places]
            with cgutils.for_range(builder, blocks) as loop:
                start = builder.add(builder.mul(loop.index, length), first)
                places = [builder.add(start, builder.mul(by, I64(k))) for k in range(radix)]
                results = do.transform([do.load(data, p) for p in places])
                do.store(data, places[0], results[0])
                for place, result, root in zip(places[1:], results[1:], own, strict=True):
                    do.store(data, place, do.mul(result, root))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), codegen

    return butterflies


_butterflies_2, _butterflies_3 = _make_butterflies(2), _make_butterflies(3)
_butterflies_4, _butterflies_5 = _make_butterflies(4), _make_butterflies(5)


@intrinsic
def _turn_eight(typingctx: Any, signal: Any, step: Any, window: Any, to: Any) -> Any:
    """Multiply eight samples of each of eight frames by the window; store them sample by sample.

    Frames begin `step` samples apart.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        signal, step, window, to = args
        signal, window, to = (builder.inttoptr(x, F32.as_pointer()) for x in (signal, window, to))
        frames = [
            load_vector(builder, builder.gep(signal, [builder.mul(step, I64(k))]), FLOATS)
            for k in range(GROUP)
        ]
        for k, row in enumerate(transposed(builder, frames)):
            factor = splat(builder, builder.load(builder.gep(window, [I64(k)])), GROUP)
            at = builder.bitcast(builder.gep(to, [I64(k * GROUP)]), FLOATS.as_pointer())
            builder.store(builder.fmul(row, factor), at).align = 4
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen


@intrinsic
def _separate(typingctx: Any, data: Any, here: Any, there: Any, root: Any, to: Any) -> Any:
    """The power of a frequency of frames whose even and odd samples were transformed together.

    `here` and `there` are the numbers k and -k of that transform.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data, here, there, root, to = args
        data, root, to = (builder.inttoptr(x, F32.as_pointer()) for x in (data, root, to))
        do = _Arithmetic(builder)
        a, b = (do.load(data, builder.mul(p, I64(2 * GROUP))) for p in (here, there))
        conjugate = b[0], builder.fneg(b[1])
        even = do.scale(do.add(a, conjugate), 0.5)
        odd = do.scale(do.turned(do.sub(a, conjugate)), 0.5)
        whole = do.add(even, do.mul(odd, _spread_pair(builder, root)))
        at = builder.bitcast(to, FLOATS.as_pointer())
        builder.store(_power(builder, whole), at).align = 4
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), codegen


@intrinsic
def _power_of(typingctx: Any, data: Any, place: Any, to: Any) -> Any:
    """The power of number `place`."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data, place, to = args
        data, to = (builder.inttoptr(x, F32.as_pointer()) for x in (data, to))
        number = _Arithmetic(builder).load(data, builder.mul(place, I64(2 * GROUP)))
        at = builder.bitcast(to, FLOATS.as_pointer())
        builder.store(_power(builder, number), at).align = 4
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), codegen


def _power(builder: Any, a: Complex) -> Vector:
    return builder.fadd(builder.fmul(a[0], a[0]), builder.fmul(a[1], a[1]))


@intrinsic
def _root_of(typingctx: Any, row: Any) -> Any:
    """Replace the powers in a row by magnitudes."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        at = builder.inttoptr(args[0], FLOATS.as_pointer())
        value = builder.load(at)
        value.align = 4
        builder.store(builder.call(vector_function(builder, "sqrt"), [value]), at).align = 4
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@intrinsic
def _sum_circle(typingctx: Any, data: Any, by: Any, circle: Any, radix: Any, to: Any) -> Any:
    """The sum of `radix` numbers, `by` numbers apart, each times a root of unity."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data, by, circle, radix, to = args
        data, circle, to = (builder.inttoptr(x, F32.as_pointer()) for x in (data, circle, to))
        do = _Arithmetic(builder)
        held = [cgutils.alloca_once(builder, FLOATS) for _ in range(2)]
        for place in held:
            builder.store(ir.Constant(FLOATS, [0.0] * GROUP), place)
        by = builder.mul(by, I64(2 * GROUP))
        with cgutils.for_range(builder, radix) as loop:
            root = builder.gep(circle, [builder.mul(loop.index, I64(2))])
            factor = _spread_pair(builder, root)
            term = do.mul(do.load(data, builder.mul(loop.index, by)), factor)
            total = do.add((builder.load(held[0]), builder.load(held[1])), term)
            for place, part in zip(held, total, strict=True):
                builder.store(part, place)
        do.store(to, I64(0), (builder.load(held[0]), builder.load(held[1])))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), codegen


@intrinsic
def _turn_number(typingctx: Any, source: Any, root: Any, to: Any) -> Any:
    """Copy a number, multiplied by a root of unity."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        source, root, to = (builder.inttoptr(x, F32.as_pointer()) for x in args)
        do = _Arithmetic(builder)
        do.store(to, I64(0), do.mul(do.load(source, I64(0)), _spread_pair(builder, root)))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), codegen


@njit
def _prime_stage(data, spare, at, apart, blocks, radix, roots, circle):  # type: ignore[no-untyped-def]
    """Like `_butterflies`, of any radix, with all its roots in `circle`."""
    by = apart * PAIR_BYTES
    for block in range(blocks):
        start = data + (block * radix * apart + at) * PAIR_BYTES
        for r in range(radix):
            _sum_circle(start, apart, circle + r * radix * 8, radix, spare + r * PAIR_BYTES)
        _turn_number(spare, circle, start)  # the first root of `circle` is 1
        for r in range(1, radix):
            _turn_number(spare + r * PAIR_BYTES, roots + (r - 1) * 8, start + r * by)


@njit
def _load_frames(signal, step, window, count, numbers, data):  # type: ignore[no-untyped-def]
    """Copy `count` samples of each frame, a multiple of eight, into the work area."""
    n, m, is_halved = _get_i64(numbers, 0), _get_i64(numbers, 1), _get_i64(numbers, 2)
    for first in range(0, count, GROUP):
        _turn_eight(signal + first * 4, step, window + first * 4, data + first * ROW_BYTES)
    rows = 2 * m if is_halved else m
    for k in range(min(count, n) * GROUP, rows * GROUP):
        _put_f32(data, k, _ZERO)
    if not is_halved:
        # The samples are numbers of their own: move them apart, the last one first.
        for k in range(m - 1, -1, -1):
            for lane in range(GROUP):
                _put_f32(data, 2 * k * GROUP + lane, _get_f32(data, k * GROUP + lane))
                _put_f32(data, (2 * k + 1) * GROUP + lane, _ZERO)


@njit
def _run_stages(numbers, roots, data, spare):  # type: ignore[no-untyped-def]
    m = _get_i64(numbers, 1)
    for stage in range(_get_i64(numbers, 3)):
        radix = _get_i64(numbers, HEADER + 3 * stage)
        apart = _get_i64(numbers, HEADER + 3 * stage + 1)
        own = roots + _get_i64(numbers, HEADER + 3 * stage + 2) * 4
        blocks = m // (radix * apart)
        circle = own + apart * (radix - 1) * 8
        for at in range(apart):
            turned = own + at * (radix - 1) * 8
            if radix == 4:
                _butterflies_4(data, at, apart, blocks, turned)
            elif radix == 2:
                _butterflies_2(data, at, apart, blocks, turned)
            elif radix == 3:
                _butterflies_3(data, at, apart, blocks, turned)
            elif radix == 5:
                _butterflies_5(data, at, apart, blocks, turned)
            else:
                _prime_stage(data, spare, at, apart, blocks, radix, turned, circle)


def transform_frames(signal, step, window, count, numbers, roots, data, spare, root, to):  # type: ignore[no-untyped-def]
    """The spectra of eight frames that begin `step` samples apart: a row for each frequency.

    `count` samples of each frame, a multiple of eight, are multiplied by the window. `data` is the
    work area, `spare` has room for a stage of the largest prime. `root`: magnitudes, not powers.
    """
    _load_frames(signal, step, window, count, numbers, data)
    _run_stages(numbers, roots, data, spare)
    n, m, is_halved = _get_i64(numbers, 0), _get_i64(numbers, 1), _get_i64(numbers, 2)
    places, factors = numbers + _get_i64(numbers, 4) * 8, roots + _get_i64(numbers, 5) * 4
    for k in range(n // 2 + 1):
        row = to + k * ROW_BYTES
        if is_halved:
            here, there = _get_i64(places, k % m), _get_i64(places, (m - k) % m)
            _separate(data, here, there, factors + k * 8, row)
        else:
            _power_of(data, _get_i64(places, k), row)
        if root:
            _root_of(row)


@intrinsic
def _add_rows(typingctx: Any, rows: Any, weights: Any, count: Any, to: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        rows, weights, count, to = args
        rows, weights = (builder.inttoptr(x, F32.as_pointer()) for x in (rows, weights))
        total = cgutils.alloca_once(builder, FLOATS)
        builder.store(ir.Constant(FLOATS, [0.0] * GROUP), total)
        with cgutils.for_range(builder, count) as loop:
            place = builder.gep(rows, [builder.mul(loop.index, I64(GROUP))])
            weight = splat(builder, builder.load(builder.gep(weights, [loop.index])), GROUP)
            term = builder.fmul(weight, load_vector(builder, place, FLOATS))
            builder.store(builder.fadd(builder.load(total), term), total)
        place = builder.inttoptr(to, FLOATS.as_pointer())
        builder.store(builder.load(total), place).align = 4
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen


def sum_lanes(rows, weights, count, to):  # type: ignore[no-untyped-def]
    """The weighted sum of `count` rows of eight numbers."""
    _add_rows(rows, weights, count, to)
