"""Ops on label maps, masks and polygons."""
