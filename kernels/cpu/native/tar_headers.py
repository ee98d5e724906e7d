"""Headers of a tar archive → rows of places and sizes. Only imported to compile something."""

from __future__ import annotations

import numpy as np
from numba import njit

from . import primitives as prims

_get_u8, _get_i64 = prims.get_u8, prims.get_i64  # type: ignore[attr-defined]
_put_i64 = prims.put_i64  # type: ignore[attr-defined]
_BLOCK = 512


@njit
def _octal(data, at, size):  # type: ignore[no-untyped-def]
    """A number of octal digits, up to a zero byte or a space; -1 if it is something else."""
    value = np.int64(0)
    for k in range(size):
        byte = np.int64(_get_u8(data, at + k))
        if byte == 0 or byte == 32:
            return value if k > 0 else -1
        if byte < 48 or byte > 55:
            return -1
        value = value * 8 + byte - 48
    return value


@njit
def _has_checksum(data, at):  # type: ignore[no-untyped-def]
    total = np.int64(256)  # the checksum itself counts as eight spaces
    for k in range(_BLOCK):
        if k < 148 or k >= 156:
            total += np.int64(_get_u8(data, at + k))
    return total == _octal(data, at + 148, 8)


@njit
def _says_nothing(data, at, size):  # type: ignore[no-untyped-def]
    """Whether further settings of a member hold neither its name nor its size."""
    for k in range(at, at + size - 5):
        if _get_u8(data, k) != 32 or _get_u8(data, k + 5) != 61:  # " ....="
            continue
        first, second = _get_u8(data, k + 1), _get_u8(data, k + 2)
        if (first == 112 and second == 97) or (first == 115 and second == 105):  # pa, si
            return False
    return True


@njit
def _place_of_dot(data, at, end):  # type: ignore[no-untyped-def]
    """The begin of a name behind its folders, and its first dot there (or its end)."""
    begin = at
    for k in range(at, end):
        if _get_u8(data, k) == 47:
            begin = k + 1
    dot = begin
    while dot < end and _get_u8(data, dot) != 46:
        dot += 1
    return begin, dot


@njit
def _word(data, at, end):  # type: ignore[no-untyped-def]
    """Up to eight bytes as a number."""
    value = np.int64(0)
    for k in range(min(end - at, 8)):
        value |= np.int64(_get_u8(data, at + k)) << (8 * k)
    return value


@njit
def _is_same(data, a, a_size, b, b_size):  # type: ignore[no-untyped-def]
    if a_size != b_size:
        return False
    for k in range(a_size):
        if _get_u8(data, a + k) != _get_u8(data, b + k):
            return False
    return True


def tar_headers(job, most, found):  # type: ignore[no-untyped-def]
    """Go over plain headers, up to the first one that is anything else.

    The job has the address of a window, its size, the place to begin at, the size of the rest of
    the file from the window on, and the place and the length of the name of the last sample (in
    the window, or -1). It gets back where it stopped, that name, and the number of rows: whether
    the sample is the last one's, extension (16 bytes), its length, place and size of the data. The
    extension's length is -1 for hidden files.
    """
    data, size, at = _get_i64(job, 0), _get_i64(job, 1), _get_i64(job, 2)
    left, base, base_size = _get_i64(job, 3), _get_i64(job, 4), _get_i64(job, 5)
    count = np.int64(0)
    while at + _BLOCK <= size and count < most:
        kind = _get_u8(data, at + 156)
        length = _octal(data, at + 124, 12)
        behind = at + _BLOCK + (length + _BLOCK - 1) // _BLOCK * _BLOCK
        if length < 0 or length > left - at - _BLOCK or not _has_checksum(data, at):
            break
        if kind == 120:  # x
            if behind > size or not _says_nothing(data, at + _BLOCK, length):
                break
            at = behind
            continue
        is_plain = kind == 48 or kind == 0 or kind == 55
        if not is_plain or _get_u8(data, at) == 0 or _get_u8(data, at + 345) != 0:
            break
        end = at
        while end < at + 100 and _get_u8(data, end) != 0:
            end += 1
        begin, dot = _place_of_dot(data, at, end)
        row = found + 48 * count
        is_hidden = begin == dot
        same = base >= 0 and _is_same(data, base, base_size, at, dot - at)
        _put_i64(row, 0, 1 if same else 0)
        _put_i64(row, 1, _word(data, dot + 1, end))
        _put_i64(row, 2, _word(data, dot + 9, end))
        _put_i64(row, 3, -1 if is_hidden else max(end - dot - 1, 0))
        _put_i64(row, 4, at + _BLOCK)
        _put_i64(row, 5, length)
        if not is_hidden:
            base, base_size = at, dot - at
        count += 1
        at = behind
    _put_i64(job, 2, at)
    _put_i64(job, 4, base)
    _put_i64(job, 5, base_size)
    _put_i64(job, 6, count)
