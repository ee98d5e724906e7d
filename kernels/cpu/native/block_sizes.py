"""How much interpolating kernels do at once: constants of generated sources and of their helpers.

Everything here is baked into compiled code.
"""

from __future__ import annotations

from ...ir.dtypes import DType, uint8

GROUP = 8  # pixels of a line that are interpolated together
BAND_ROWS = 8  # rows of an image whose columns are summed together (band_sums.py)
BAND_COLUMNS = 160  # columns that are transposed at a time: 15 KB with 3 channels
RANK_BYTES = 32  # bytes of integers that are compared together (window_ranks.py)
# Bytes of rows that are computed before they are stored past the caches, and what they take on the
# stack: a line of addresses before them, and up to a line at both ends (streamed_stores.py).
PIECE_BYTES = 4096
STAGING_BYTES = PIECE_BYTES + 192
BYTE_LANES = 32  # bytes that are summed together as words of 16 bits (rounded_sums.py)
MEAN_TAPS = 127  # of a window whose mean is computed in integers: see NOTE [means of bytes]


# -- two lines of window ranks at once (whole_windows.py) ------------------------------------------


def reach_of(side: int, column: int) -> int:
    """Elements by which a window extends to each side."""
    return side // 2 * column


def least_row(dtype: DType, side: int, column: int) -> int:
    """The least number of elements of a row, which must fill two blocks and what they reach."""
    return 2 * (RANK_BYTES // dtype.bytes) + reach_of(side, column)


def suits(dtype: DType, rank: str, side: int, column: int) -> bool:
    """Whether windows reach no further than the next block, and registers suffice for medians.

    Only images of bytes have these helpers, because each takes a while to compile.
    """
    fits = 2 * reach_of(side, column) <= RANK_BYTES
    return dtype is uint8 and fits and (rank != "middle" or side == 3)
