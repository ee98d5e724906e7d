"""How much interpolating kernels do at once: constants of generated sources and of their helpers.

Everything here is baked into compiled code.
"""

from __future__ import annotations

GROUP = 8  # pixels of a line that are interpolated together
BAND_ROWS = 8  # rows of an image whose columns are summed together (band_sums.py)
BAND_COLUMNS = 160  # columns that are transposed at a time: 15 KB with 3 channels
RANK_BYTES = 32  # bytes of integers that are compared together (window_ranks.py)
