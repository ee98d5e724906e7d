"""Frames of a FLAC file (RFC 9639) → samples, interleaved. Only imported to compile something.

Decodes what encoders write and checks everything that the format lets a decoder check. At the first
thing that is unusual or damaged it stops, and the caller leaves the file to libsndfile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic

from . import primitives as prims
from .bit_reader import SAFE_BITS, first_bits, moved_up, number_at, signed_at, word_at, zeros
from .compile import part
from .vectors import I32, I64, at_byte

_get_u8, _get_u16 = prims.get_u8, prims.get_u16  # type: ignore[attr-defined]
_get_i32, _put_i32 = prims.get_i32, prims.put_i32  # type: ignore[attr-defined]
_get_i64, _put_i64 = prims.get_i64, prims.put_i64  # type: ignore[attr-defined]
_put_i16, _put_f32 = prims.put_i16, prims.put_f32  # type: ignore[attr-defined]
_stack_256 = prims.stack_256  # type: ignore[attr-defined]

# Columns of the job that the caller writes (see `FlacSamples`):
_DATA, _SIZE, _CHANNELS, _BITS, _BITS_CODE, _BLOCK, _IS_FIXED, _TOTAL = 0, 1, 2, 3, 4, 5, 6, 7
_TABLES, _ROWS, _STRIDE, _KIND = 8, 9, 10, 11
# Columns that a call changes: the byte and the first sample of the next frame; how many samples
# the last one has, and how many of them were used; how many samples of each channel were written;
# how many are to be left out first; the end of a header, and the first sample that it tells.
_AT, _NEXT, _HAVE, _USED, _DONE, _LEFT_OUT, _BODY, _BEGIN = 12, 13, 14, 15, 16, 17, 18, 19
# How the channels of a frame are stored; smaller numbers: each by itself.
_LEFT_SIDE, _SIDE_RIGHT, _MID_SIDE = 8, 9, 10
_MAX_ORDER = 32
_WIDE = 28  # low bits with which a residual could take more than 32 bits
_FAILED = -1
_UNKNOWN = 1 << 36  # a total that no file tells


def _make_predict(order: int) -> Any:
    """A predictor whose last samples and factors stay in registers."""

    @intrinsic
    def predict(typingctx: Any, row: Any, first: Any, end: Any, factors: Any, shift: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            row, first, end, factors, shift = args

            def place(i: Any) -> Any:
                return at_byte(builder, row, builder.shl(i, I64(2)), I32)

            taps, last = [], []
            for k in range(order):
                taps.append(builder.load(at_byte(builder, factors, I64(8 * k), I64)))
                last.append(cgutils.alloca_once(builder, I64))
                before = builder.load(place(builder.sub(first, I64(k + 1))))
                builder.store(builder.sext(before, I64), last[k])
            spilled = cgutils.alloca_once_value(builder, I64(0))
            with cgutils.for_range_slice(builder, first, end, I64(1), I64) as (i, _):
                past = [builder.load(p) for p in last]
                total = builder.mul(past[-1], taps[-1])
                for k in range(order - 2, -1, -1):  # the newest last: others need not wait for it
                    total = builder.add(total, builder.mul(past[k], taps[k]))
                value = builder.sext(builder.load(place(i)), I64)
                value = builder.add(value, builder.ashr(total, shift))
                builder.store(builder.trunc(value, I32), place(i))
                wide = builder.xor(value, builder.ashr(value, I64(63)))
                builder.store(builder.or_(builder.load(spilled), wide), spilled)
                for p, own in zip(last, [value, *past], strict=False):
                    builder.store(own, p)
            return builder.load(spilled)

        return types.int64(*[types.int64] * 5), codegen

    return predict


_predict_4, _predict_8, _predict_12 = _make_predict(4), _make_predict(8), _make_predict(12)


@part
def _predict_any(row, first, end, factors, shift, order):  # type: ignore[no-untyped-def]
    spilled = np.int64(0)
    for i in range(first, end):
        total = np.int64(0)
        for k in range(order):
            total += _get_i64(factors, k) * np.int64(_get_i32(row, i - 1 - k))
        value = np.int64(_get_i32(row, i)) + (total >> shift)
        _put_i32(row, i, np.int32(value))
        spilled |= value ^ (value >> 63)
    return spilled


@part
def _predict(row, n, factors, shift, order):  # type: ignore[no-untyped-def]
    """Add what is predicted to residuals; returns the bits of all values (see `_spread`).

    Factors that are not there are zero, and there is memory before a row.
    """
    if order <= 4:
        return _predict_4(row, order, n, factors, shift)
    if order <= 8:
        return _predict_8(row, order, n, factors, shift)
    if order <= 12:
        return _predict_12(row, order, n, factors, shift)
    return _predict_any(row, order, n, factors, shift, order)


@part
def _spread(row, n):  # type: ignore[no-untyped-def]
    """The bits of all values but their signs: how wide the widest of them is."""
    found = np.int32(0)
    for i in range(n):
        value = _get_i32(row, i)
        found |= value ^ (value >> 31)
    return np.int64(found)


@part
def _unary(data, size, bit):  # type: ignore[no-untyped-def]
    """How many zeros there are before the next one; `_FAILED` if there is none."""
    count = np.int64(0)
    while bit + count < 8 * size:
        found = zeros(word_at(data, size, bit + count))
        if found < SAFE_BITS:
            return count + found
        count += SAFE_BITS
    return np.int64(_FAILED)


@part
def _rice_one(data, size, bit, low, row, i):  # type: ignore[no-untyped-def]
    """Write one residual with any number of zeros; returns the place behind it."""
    high = _unary(data, size, bit)
    if high < 0 or high >> (32 - low) > 0:
        return np.int64(_FAILED)
    bit += high + 1
    value = high << low | number_at(data, size, bit, low)
    _put_i32(row, i, np.int32((value >> 1) ^ -(value & 1)))
    return bit + low


@part
def _rice(data, size, bit, low, row, begin, end):  # type: ignore[no-untyped-def]
    """Write residuals `begin` … `end` with `low` low bits; returns the place behind them.

    As many as probably fit are taken from a word at once: a test after each would be a branch that
    no CPU predicts.
    """
    many = max(SAFE_BITS // (low + 3), 1)
    last = end - many if low < _WIDE else begin - 1
    i = begin
    while i < end:
        if i <= last:
            word = word_at(data, size, bit)
            used = np.int64(0)
            for k in range(i, i + many):
                high = zeros(word)
                word = moved_up(word, high + 1)
                value = high << low | first_bits(word, low)
                word = moved_up(word, low)
                used += high
                _put_i32(row, k, np.int32((value >> 1) ^ -(value & 1)))
            used += many * (low + 1)
            if used <= SAFE_BITS:
                bit += used
                i += many
                continue
        for _ in range(min(many, end - i)):
            bit = _rice_one(data, size, bit, low, row, i)
            if bit < 0:
                return bit
            i += 1
    return bit


@part
def _residuals(data, size, bit, row, n, order):  # type: ignore[no-untyped-def]
    """Write the residuals behind `order` samples; returns the place behind them."""
    head = number_at(data, size, bit, 6)
    method, parts = head >> 4, head & 15
    length = n >> parts
    if method > 1 or length << parts != n or length < order:
        return np.int64(_FAILED)
    bit += 6
    width = 4 + method
    for k in range(1 << parts):
        begin, end = max(k * length, order), (k + 1) * length
        low = number_at(data, size, bit, width)
        bit += width
        if low + 1 < 1 << width:
            bit = _rice(data, size, bit, low, row, begin, end)
            if bit < 0:
                return bit
            continue
        raw = number_at(data, size, bit, 5)
        bit += 5
        for i in range(begin, end):
            _put_i32(row, i, np.int32(signed_at(data, size, bit, raw) if raw > 0 else 0))
            bit += raw
        if bit > 8 * size:
            return np.int64(_FAILED)
    return bit


@part
def _fixed_factors(factors, order):  # type: ignore[no-untyped-def]
    """The factors that continue a polynomial."""
    if order == 1:
        _put_i64(factors, 0, 1)
    elif order == 2:
        _put_i64(factors, 0, 2)
        _put_i64(factors, 1, -1)
    elif order == 3:
        _put_i64(factors, 0, 3)
        _put_i64(factors, 1, -3)
        _put_i64(factors, 2, 1)
    elif order == 4:
        _put_i64(factors, 0, 4)
        _put_i64(factors, 1, -6)
        _put_i64(factors, 2, 4)
        _put_i64(factors, 3, -1)


@part
def _predicted(data, size, bit, row, n, bits, kind, factors):  # type: ignore[no-untyped-def]
    """A channel that is predicted from its own past; returns the place behind it."""
    is_fixed = kind < 32
    order = kind - 8 if is_fixed else kind - 31
    if order > n:
        return np.int64(_FAILED)
    for i in range(order):
        _put_i32(row, i, np.int32(signed_at(data, size, bit, bits)))
        bit += bits
    for k in range(_MAX_ORDER):
        _put_i64(factors, k, 0)
    shift = np.int64(0)
    if is_fixed:
        _fixed_factors(factors, order)
    else:
        precision, shift = number_at(data, size, bit, 4) + 1, signed_at(data, size, bit + 4, 5)
        bit += 9
        if precision > 15 or shift < 0:
            return np.int64(_FAILED)
        for k in range(order):
            _put_i64(factors, k, signed_at(data, size, bit, precision))
            bit += precision
    bit = _residuals(data, size, bit, row, n, order)
    if bit < 0:
        return bit
    spread = _spread(row, n) if order == 0 else _predict(row, n, factors, shift, order)
    return bit if spread >> (bits - 1) == 0 else np.int64(_FAILED)


@part
def _channel(data, size, bit, row, n, bits, factors):  # type: ignore[no-untyped-def]
    """Write the samples of one channel; returns the place behind it."""
    head = number_at(data, size, bit, 8)
    kind, unused = head >> 1, np.int64(0)
    bit += 8
    if head & 1:  # zeros at the end of each sample, which are not stored
        unused = _unary(data, size, bit) + 1
        bit += unused
        if unused < 1 or unused >= bits:
            return np.int64(_FAILED)
        bits -= unused
    if kind == 0:
        value = np.int32(signed_at(data, size, bit, bits))
        for i in range(n):
            _put_i32(row, i, value)
        bit += bits
    elif kind == 1:
        for i in range(n):
            _put_i32(row, i, np.int32(signed_at(data, size, bit, bits)))
            bit += bits
    elif 8 <= kind <= 12 or 32 <= kind < 64:
        bit = _predicted(data, size, bit, row, n, bits, kind, factors)
    else:
        return np.int64(_FAILED)
    if unused > 0 and bit > 0:
        for i in range(n):
            _put_i32(row, i, np.int32(_get_i32(row, i) << unused))
    return bit


@part
def _coded_number(data, size, at):  # type: ignore[no-untyped-def]
    """A number as in UTF-8, but of up to 36 bits; `_FAILED` if it is none."""
    first = number_at(data, size, 8 * at, 8)
    more = zeros(~(first << 56))  # ones at its begin
    if more == 0:
        return first
    if more == 1 or more > 7:
        return np.int64(_FAILED)
    value = first & ((1 << (7 - more)) - 1)
    for k in range(1, more):
        byte = number_at(data, size, 8 * (at + k), 8)
        if byte >> 6 != 2:
            return np.int64(_FAILED)
        value = value << 6 | (byte & 63)
    return value


@part
def _coded_length(data, size, at):  # type: ignore[no-untyped-def]
    """How many bytes a coded number takes."""
    return max(zeros(~(number_at(data, size, 8 * at, 8) << 56)), 1)


@part
def _length(data, size, at, code):  # type: ignore[no-untyped-def]
    """The length of a block by its code; `at` is where long ones are told."""
    if code == 1:
        return np.int64(192)
    if code < 6:
        return np.int64(576) << (code - 2)
    if code < 8:
        return number_at(data, size, 8 * at, 8 * (code - 5)) + 1
    return np.int64(256) << (code - 8)


@part
def _crc_8(data, at, end, tables):  # type: ignore[no-untyped-def]
    value = np.int64(0)
    for k in range(at, end):
        value = np.int64(_get_u16(tables, 2048 + (value ^ np.int64(_get_u8(data, k)))))
    return value


@part
def _crc_16(data, at, end, tables):  # type: ignore[no-untyped-def]
    """Eight bytes at a time; row k of the tables is of the byte before k more bytes."""
    value = np.int64(0)
    while at + 8 <= end:
        word = number_at(data, end, 8 * at, 56)
        low = np.int64(_get_u16(tables, np.int64(_get_u8(data, at + 7))))
        word ^= value << 40
        value = low ^ np.int64(_get_u16(tables, 256 + (word & 255)))
        for k in range(2, 8):
            value ^= np.int64(_get_u16(tables, 256 * k + (word >> (8 * k - 8) & 255)))
        at += 8
    while at < end:
        byte = np.int64(_get_u8(data, at))
        value = (value << 8 & 0xFFFF) ^ np.int64(_get_u16(tables, value >> 8 ^ byte))
        at += 1
    return value


@part
def _header(job, at):  # type: ignore[no-untyped-def]
    """Read the header of a frame: the place of its end and its first sample into the job.

    Returns the length of its block, or `_FAILED`.
    """
    data, size = _get_i64(job, _DATA), _get_i64(job, _SIZE)
    head = number_at(data, size, 8 * at, 32)
    length, rate, stored, bits = head >> 12 & 15, head >> 8 & 15, head >> 4 & 15, head >> 1 & 7
    channels = 2 if stored >= _LEFT_SIDE else stored + 1
    is_usual = channels == _get_i64(job, _CHANNELS) and stored <= _MID_SIDE
    if head >> 17 != 0x7FFC or length == 0 or rate == 15 or head & 1 or not is_usual:
        return np.int64(_FAILED)
    if bits > 0 and bits != _get_i64(job, _BITS_CODE):
        return np.int64(_FAILED)
    number = _coded_number(data, size, at + 4)
    end = at + 4 + _coded_length(data, size, at + 4)
    n = _length(data, size, end, length)
    end += max(length - 5, 0) if length < 8 else 0
    end += 0 if rate < 12 else min(rate - 11, 2)
    if end >= size or _crc_8(data, at, end, _get_i64(job, _TABLES)) != _get_u8(data, end):
        return np.int64(_FAILED)
    block, total = _get_i64(job, _BLOCK), _get_i64(job, _TOTAL)
    begin = number
    if head >> 16 & 1 == 0:  # a number of a frame, not of a sample
        begin *= block
        is_last = begin + n == total or total == _UNKNOWN
        if _get_i64(job, _IS_FIXED) == 0 or (n != block and not is_last):
            return np.int64(_FAILED)
    if number < 0 or n > block or begin + n > total:
        return np.int64(_FAILED)
    _put_i64(job, _BODY, end + 1)
    _put_i64(job, _BEGIN, begin)
    return n


@part
def _mix(first, second, n, stored):  # type: ignore[no-untyped-def]
    """Left and right from what is stored, which may be their mean and their difference."""
    if stored == _LEFT_SIDE:
        for i in range(n):
            _put_i32(second, i, np.int32(_get_i32(first, i) - _get_i32(second, i)))
    elif stored == _SIDE_RIGHT:
        for i in range(n):
            _put_i32(first, i, np.int32(_get_i32(first, i) + _get_i32(second, i)))
    else:
        for i in range(n):
            side = _get_i32(second, i)
            middle = _get_i32(first, i) << 1 | (side & 1)
            _put_i32(first, i, np.int32((middle + side) >> 1))
            _put_i32(second, i, np.int32((middle - side) >> 1))
    return _spread(first, n) | _spread(second, n)


@part
def _frame(job):  # type: ignore[no-untyped-def]
    """Decode the next frame to the rows; False if it is unusual or damaged."""
    data, size, at = _get_i64(job, _DATA), _get_i64(job, _SIZE), _get_i64(job, _AT)
    n = _header(job, at)
    if n < 0 or _get_i64(job, _BEGIN) != _get_i64(job, _NEXT):
        return False
    stored, bits = number_at(data, size, 8 * at + 24, 4), _get_i64(job, _BITS)
    rows, stride, factors = _get_i64(job, _ROWS), _get_i64(job, _STRIDE), _stack_256()
    bit = 8 * _get_i64(job, _BODY)
    for c in range(_get_i64(job, _CHANNELS)):
        is_side = stored >= _LEFT_SIDE and (c == 0) == (stored == _SIDE_RIGHT)
        bit = _channel(data, size, bit, rows + c * stride, n, bits + is_side, factors)
        if bit < 0:
            return False
    end = (bit + 7) >> 3
    if end + 2 > size or number_at(data, size, bit, 8 * end - bit) != 0:
        return False
    if _crc_16(data, at, end, _get_i64(job, _TABLES)) != number_at(data, size, 8 * end, 16):
        return False
    if stored >= _LEFT_SIDE and _mix(rows, rows + stride, n, stored) >> (bits - 1) != 0:
        return False
    _put_i64(job, _AT, end + 2)
    _put_i64(job, _NEXT, _get_i64(job, _NEXT) + n)
    _put_i64(job, _HAVE, n)
    _put_i64(job, _USED, 0)
    return True


@part
def _convert(row, n, out, step, kind, bits):  # type: ignore[no-untyped-def]
    """Write samples of a channel as float32 (kind 0), int16 or int32, as libsndfile does."""
    if kind == 0:
        scale = np.float32(1.0) / np.float32(np.int64(1) << (bits - 1))
        for i in range(n):
            _put_f32(out, i * step, np.float32(_get_i32(row, i)) * scale)
    elif kind == 2:
        for i in range(n):
            _put_i32(out, i * step, np.int32(_get_i32(row, i) << (32 - bits)))
    elif bits > 16:
        for i in range(n):
            _put_i16(out, i * step, np.int16(_get_i32(row, i) >> (bits - 16)))
    else:
        for i in range(n):
            _put_i16(out, i * step, np.int16(_get_i32(row, i) << (16 - bits)))


def flac_header(job, begin, end):  # type: ignore[no-untyped-def]
    """Find the first header of a frame that begins at these bytes, at -1 if there is none.

    It may be no header: one of 2**24 random places looks like one.
    """
    data, found = _get_i64(job, _DATA), np.int64(-1)
    for at in range(begin, end):
        if _get_u8(data, at) == 255 and _header(job, at) > 0:
            found = np.int64(at)
            break
    _put_i64(job, _AT, found)
    _put_i64(job, _NEXT, _get_i64(job, _BEGIN))


def flac_frames(job, out, count):  # type: ignore[no-untyped-def]
    """Write the next samples [time, channel].

    There are fewer than `count` if the file is to be left to libsndfile.
    """
    channels, kind, bits = _get_i64(job, _CHANNELS), _get_i64(job, _KIND), _get_i64(job, _BITS)
    width = 2 if kind == 1 else 4
    done = np.int64(0)
    while done < count:
        used = _get_i64(job, _USED)
        if used == _get_i64(job, _HAVE):
            if not _frame(job):
                break
            used = np.int64(0)
        skipped = min(_get_i64(job, _HAVE) - used, _get_i64(job, _LEFT_OUT))
        _put_i64(job, _LEFT_OUT, _get_i64(job, _LEFT_OUT) - skipped)
        used += skipped
        n = min(_get_i64(job, _HAVE) - used, count - done)
        for c in range(channels):
            row = _get_i64(job, _ROWS) + c * _get_i64(job, _STRIDE) + 4 * used
            target = out + (done * channels + c) * width
            if channels == 1:  # for LLVM, which makes vectors of it
                _convert(row, n, target, 1, kind, bits)
            else:
                _convert(row, n, target, channels, kind, bits)
        _put_i64(job, _USED, used + n)
        done += n
    _put_i64(job, _DONE, done)
