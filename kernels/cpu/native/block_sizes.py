"""How much interpolating kernels do at once: known to their source and to the functions they call.

Everything here is baked into compiled code.
"""

from __future__ import annotations

GROUP = 8  # pixels of a line that are interpolated together
BAND_ROWS = 8  # rows of an image whose columns are summed up together (band_sums.py),
BAND_COLUMNS = 160  # and columns that are turned over for that at a time: 15 KB of 3 channels
