"""TensorFlow's Example messages → where their features are, and the features' numbers.

Every length is checked against the message that contains it, so nothing outside of a record is
read, whatever its bytes are. Only imported to compile something.
"""

from __future__ import annotations

import numpy as np

from ..annotations.inner import inner
from . import primitives as prims

_get_u8, _get_i64 = prims.get_u8, prims.get_i64  # type: ignore[attr-defined]
_get_u32, _put_i64 = prims.get_u32, prims.put_i64  # type: ignore[attr-defined]
_put_u32 = prims.put_u32  # type: ignore[attr-defined]
_BYTES, _FLOATS, _INTS = 1, 2, 3  # numbers of the fields of a Feature


@inner
def _varint(data, at, end):  # type: ignore[no-untyped-def]
    """A number of variable length, and where it ends; -1 if it is invalid."""
    value, shift = np.int64(0), 0
    while at < end and shift < 70:
        byte = np.int64(_get_u8(data, at))
        at += 1
        if shift < 64:
            value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    return 0, -1


@inner
def _field(data, at, end):  # type: ignore[no-untyped-def]
    """Number, wire type, begin and end of a field's content; number 0 if it is invalid."""
    tag, begin = _varint(data, at, end)
    if begin < 0 or tag < 8:
        return 0, 0, at, at
    number, wire, stop = tag >> 3, tag & 7, -1
    if wire == 0:
        _, stop = _varint(data, begin, end)
    elif wire == 1:
        stop = begin + 8
    elif wire == 5:
        stop = begin + 4
    elif wire == 2:
        length, inner = _varint(data, begin, end)
        if inner >= 0 and 0 <= length <= end - inner:
            begin, stop = inner, inner + length
    if stop < 0 or stop > end:
        return 0, 0, at, at
    return number, wire, begin, stop


@inner
def _ints(data, begin, end):  # type: ignore[no-untyped-def]
    """The count of packed numbers; -1 if one is invalid."""
    count, run = 0, 0
    for at in range(begin, end):
        run += 1
        if _get_u8(data, at) < 128:
            count, run = count + 1, 0
        elif run >= 10:
            return -1
    return count if run == 0 else -1


@inner
def _values(data, kind, begin, end):  # type: ignore[no-untyped-def]
    """The values of a list: their count, and where the first one lies if they are strings.

    The count is -1 if the list is invalid; then the second number is the place.
    """
    count, first, last = 0, begin, end
    at = begin
    while at < end:
        number, wire, inner, stop = _field(data, at, end)
        if number == 0:
            return -1, at, at
        if number == 1:
            more = 0
            if kind == _BYTES and wire == 2:
                more = 1
                if count == 0:
                    first, last = inner, stop
            elif kind == _FLOATS and wire == 2:
                more = (stop - inner) // 4 if (stop - inner) % 4 == 0 else -1
            elif kind == _INTS and wire == 2:
                more = _ints(data, inner, stop)
            elif (kind == _FLOATS and wire == 5) or (kind == _INTS and wire == 0):
                more = 1
            else:
                more = -1
            if more < 0:
                return -1, at, at
            count += more
        at = stop
    return count, first, last


@inner
def _feature(names, ends, wanted, data, begin, end):  # type: ignore[no-untyped-def]
    """The number of the wanted feature that has this name, or -1."""
    start = 0
    for k in range(wanted):
        stop = _get_i64(ends, k)
        if stop - start == end - begin:
            same = True
            for i in range(end - begin):
                if _get_u8(names, start + i) != _get_u8(data, begin + i):
                    same = False
                    break
            if same:
                return k
        start = stop
    return -1


@inner
def _entry(names, ends, wanted, data, begin, end, row):  # type: ignore[no-untyped-def]
    """Note a feature, if it is a wanted one; returns the place of an error, or -1."""
    key, key_end, value, value_end, at = begin, begin, begin, begin, begin
    while at < end:
        number, wire, inner, stop = _field(data, at, end)
        if number == 0 or (number <= 2 and wire != 2):
            return at
        if number == 1:
            key, key_end = inner, stop
        elif number == 2:
            value, value_end = inner, stop
        at = stop
    k = _feature(names, ends, wanted, data, key, key_end)
    if k < 0:
        return -1
    kind, begin, end, at = 0, value, value, value
    while at < value_end:
        number, wire, inner, stop = _field(data, at, value_end)
        if number == 0 or (number <= 3 and wire != 2):
            return at
        if number <= 3:
            kind, begin, end = number, inner, stop
        at = stop
    count, first, last = 0, begin, end
    if kind > 0:
        count, first, last = _values(data, kind, begin, end)
    if count < 0:
        return first
    _put_i64(row, 4 * k, kind)
    _put_i64(row, 4 * k + 1, count)
    _put_i64(row, 4 * k + 2, first)
    _put_i64(row, 4 * k + 3, last)
    return -1


@inner
def _example(names, ends, wanted, data, size, row):  # type: ignore[no-untyped-def]
    """Note the wanted features of a record; returns the place of an error, or -1."""
    at = 0
    while at < size:
        number, wire, inner, stop = _field(data, at, size)
        if number == 0 or (number == 1 and wire != 2):
            return at
        if number == 1:
            place = inner
            while place < stop:
                number, wire, begin, end = _field(data, place, stop)
                if number == 0 or (number == 1 and wire != 2):
                    return place
                if number == 1:
                    bad = _entry(names, ends, wanted, data, begin, end, row)
                    if bad >= 0:
                        return bad
                place = end
        at = stop
    return -1


def example_fields(job, count, found):  # type: ignore[no-untyped-def]
    """Find features in each record: rows of (kind, count, begin, end), one for each feature.

    The job has the addresses of the names, of their ends and of the records (address, size), with
    the number of features before the last one. The kind is 0 for a feature that is missing, and -1
    in all rows of an invalid record; the count is then the place of the error.
    """
    names, ends, wanted = _get_i64(job, 0), _get_i64(job, 1), _get_i64(job, 2)
    records = _get_i64(job, 3)
    for s in range(count):
        row = found + 32 * wanted * s
        for k in range(4 * wanted):
            _put_i64(row, k, 0)
        data, size = _get_i64(records, 2 * s), _get_i64(records, 2 * s + 1)
        bad = _example(names, ends, wanted, data, size, row)
        if bad >= 0:
            for k in range(wanted):
                _put_i64(row, 4 * k, -1)
                _put_i64(row, 4 * k + 1, bad)


def example_values(lists, count, kind):  # type: ignore[no-untyped-def]
    """Write the numbers of checked lists: rows of (address, size, target, how many at most).

    Others may have changed the record since it was checked: it may lie in a mapped file.
    """
    for s in range(count):
        data, end = _get_i64(lists, 4 * s), _get_i64(lists, 4 * s + 1)
        target, most = _get_i64(lists, 4 * s + 2), _get_i64(lists, 4 * s + 3)
        done, at = 0, 0
        while at < end:
            number, _, inner, stop = _field(data, at, end)
            if number == 0:
                break
            if number == 1 and kind == _FLOATS:
                for i in range(min((stop - inner) // 4, most - done)):
                    _put_u32(target, done, _get_u32(data + inner, i))
                    done += 1
            elif number == 1:
                while inner < stop and done < most:
                    value, inner = _varint(data, inner, stop)
                    if inner < 0:
                        break
                    _put_i64(target, done, value)
                    done += 1
            at = stop
