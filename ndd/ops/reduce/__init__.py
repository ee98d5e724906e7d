"""Ops that reduce axes (sums, means, deviations, extremes), and `normalize`."""
