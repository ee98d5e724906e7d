"""Where `find_windows` finds its numbers. The op fills these tables, native code reads them."""

from __future__ import annotations

# One table of int64 for the whole call.
DIMS = 0  # 2 or 3
OPTIONS = 1  # number of choices: a threshold each, and perhaps "no crop" as the last
THRESHOLDS = 2  # how many of the choices are thresholds
ATTEMPTS = 3  # attempts for each choice
TOTAL_ATTEMPTS = 4
IS_OVERLAP = 5  # the measure: the share of the box that is covered, and not IoU
NEEDS_ALL = 6  # all boxes must reach the threshold, and not one of them
PRUNES_BY_AREA = 7  # boxes are removed by the area that they lose, and not by their centre
IS_FIXED = 8  # the window's shape is given in pixels
HAS_SIZES = 9  # boxes are given by their sizes, and not by their ends
KEY = 10  # two words, then the two words of the lane
NUMBERS = 14  # address of a table of float64
ROWS = 15  # address of a table with a row for each sample
LABEL_BYTES = 16
# Addresses of results, and of the copies of all boxes as corners.
OUT_LABELS, OUT_START, OUT_SHAPE, OUT_BOXES, OUT_INDICES, CORNERS = 17, 18, 19, 20, 21, 22
COLUMNS = 23  # the columns of x, y, z, and then those of the ends or sizes
JOB_SIZE = 29

# The table of float64.
SCALES = 0  # the range of the window's extents
RATIOS = 2  # ranges of x/y, x/z and y/z
PRUNE_AREA = 8
FIRST_THRESHOLD = 9

# A row of int64 for each sample: what is given, then what is found.
BOXES, COUNT, LABELS = 0, 1, 2  # addresses, and the number of boxes
FIRST = 3  # how many boxes the samples before it have
INPUT_SHAPE, CROP_SHAPE = 4, 7  # three numbers each
KEPT = 10  # number of boxes that remain; number of the bad box if the outcome is OUTSIDE
OUTCOME = 11
ROW_SIZE = 12

# Outcomes.
FOUND, BEST, NOTHING, OUTSIDE = 0, 1, 2, 3
