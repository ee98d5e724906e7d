"""Reductions over axes: sums, means, deviations and extremes.

>>> import ndd
>>> image = ndd.ones(shape=[4, 6, 3], layout="HWC")
>>> ndd.reductions.mean(image, axis_names="HW").shape
(3,)
"""

from __future__ import annotations

from .ops.reduce.axis_reductions import max, mean, mean_square, min, rms, std_dev, sum, variance

__all__ = ["max", "mean", "mean_square", "min", "rms", "std_dev", "sum", "variance"]
