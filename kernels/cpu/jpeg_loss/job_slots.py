"""The columns of the table from which `lose_jpeg` works, and how much memory an image needs."""

from __future__ import annotations

SOURCE, TARGET, HEIGHT, WIDTH, TABLES, SCRATCH = range(6)
ROW_SIZE = 6

BLOCKS = 16  # blocks of a row that are transformed together, one in each lane of a vector
GROUP = 8 * BLOCKS  # their pixels in a row
TABLE = 64  # coefficients of a block
# A component has these tables of uint16, in this order: what to add before a division, two factors
# that divide, and the step of the quantiser.
HALF, RECIPROCAL, SHIFT, STEP = range(4)
TABLES_SIZE = 4 * TABLE

LUMA_ROWS, CHROMA_ROWS = 32, 16  # rows of two lines of macroblocks
SLACK = 64  # vectors read and write beyond the end of a row
SPARE = 192  # room for 32 pixels, and for what precedes the first sum of a row


def scratch_nbytes(width: int) -> int:
    """Bytes of scratch memory for an image of a width."""
    row = (width + GROUP - 1) // GROUP * GROUP
    # Planes, chroma of two rows of pixels, pixels, sums of chroma (int16), blocks (int16).
    planes = (LUMA_ROWS + CHROMA_ROWS) * row
    return planes + 4 * (row + SLACK) + SPARE + 2 * (row + 2 * SLACK) + 2 * TABLE * BLOCKS
