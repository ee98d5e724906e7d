"""Copies rectangles between images, and clears whole images, as a list of entries tells.

An entry is a row of int64, its columns see below. This module is imported to compile the function,
and by those who fill lists.
"""

from __future__ import annotations

# Where the first row is read (0: write zeros instead) and written; how many planes, rows of a plane
# and bytes of a row there are; the distances between rows and between planes.
SOURCE, TARGET, PLANES, ROWS, NBYTES = range(5)
SOURCE_ROW, TARGET_ROW, SOURCE_PLANE, TARGET_PLANE = range(5, 9)
ENTRY = 9


def make_copy_rectangles():  # type: ignore[no-untyped-def]
    """The function that does what entries [begin, end) of a list at an address tell, in order."""
    from numba import njit

    from . import primitives as prims
    from .row_moves import copy_row

    get_i64, put_u8 = prims.get_i64, prims.put_u8  # type: ignore[attr-defined]
    copy = njit(inline="always")(copy_row)

    def copy_rectangles(entries, begin, end):  # type: ignore[no-untyped-def]
        for k in range(begin, end):
            entry = entries + k * ENTRY * 8
            source, target = get_i64(entry, SOURCE), get_i64(entry, TARGET)
            rows, nbytes = get_i64(entry, ROWS), get_i64(entry, NBYTES)
            for plane in range(get_i64(entry, PLANES)):
                read = source + plane * get_i64(entry, SOURCE_PLANE)
                written = target + plane * get_i64(entry, TARGET_PLANE)
                for _ in range(rows):
                    if source == 0:
                        for i in range(nbytes):
                            put_u8(written, i, 0)
                    else:
                        copy(read, written, nbytes)
                    read += get_i64(entry, SOURCE_ROW)
                    written += get_i64(entry, TARGET_ROW)

    return copy_rectangles
