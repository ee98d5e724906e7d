"""Ops that reduce axes: sums, means, deviations, extremes; normalize."""
