"""Where `turn_boxes` finds its numbers. The op fills these tables, native code reads them."""

from __future__ import annotations

# One table of int64 for the whole call.
ROWS, NUMBERS = 0, 1  # addresses of the tables below
HAS_SIZES = 2  # boxes are given by their sizes, and not by their ends
IS_RELATIVE = 3  # coordinates are relative to the image, and those of results to the canvas
MODE = 4
LABEL_BYTES = 5
JOB_SIZE = 6
EXPAND, HALFWAY, FIXED = 0, 1, 2

# A row of int64 for each sample: how many boxes there are and remain; all others are addresses.
BOXES, COUNT, LABELS, OUT_BOXES, OUT_LABELS, KEPT = 0, 1, 2, 3, 4, 5
ROW_SIZE = 6

# A row of float32 for each sample: the angle, the image, the canvas; and what boxes must keep.
SINE, COSINE, IMAGE_W, IMAGE_H, CANVAS_W, CANVAS_H, LEAST = 0, 1, 2, 3, 4, 5, 6
NUMBER_SIZE = 7
