"""Native code for boxes, label maps and polygons; how much it finds depends on their values."""
