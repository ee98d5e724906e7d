"""Where `find_objects` and `select_polygons` find their numbers, as int64 in a row per sample."""

from __future__ import annotations

MAX_DIMS = 6

# find_objects: a label map, memory to work in, and what is found.
DATA, DIMS, LINES = 0, 1, 2  # address; number of dimensions; number of lines along the last one
SKIPS, BACKGROUND = 3, 4  # whether a label is skipped, and which
RUNS, FIRST_RUNS, BOXES = (
    5,
    6,
    7,
)  # addresses: [runs, 4] and [runs, 2 × dims] int32, [lines + 1] int64
OBJECTS = 8  # the number of objects; their labels and boxes lie at the beginning of RUNS and BOXES
EXTENTS = 9  # MAX_DIMS of them
OBJECT_ROW = EXTENTS + MAX_DIMS

# select_polygons: ids, polygons, vertices, and memory for the results.
IDS, ID_COUNT, POLYGONS, POLYGON_COUNT, VERTICES, VERTEX_COUNT = 0, 1, 2, 3, 4, 5
OUT_POLYGONS, OUT_VERTICES = 6, 7  # addresses, or 0: only count
VERTEX_BYTES, REINDEXES = 8, 9
FOUND_POLYGONS, FOUND_VERTICES = 10, 11  # how many are selected
PROBLEM, CULPRIT = 12, 13  # what is wrong, and with which id or polygon
POLYGON_ROW = 14
FINE, REPEATED, MISSING, REVERSED, OUTSIDE = 0, 1, 2, 3, 4
