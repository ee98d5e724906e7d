"""Ops that interpolate: resize, rotate, warp and their geometry."""
