"""Bounding boxes, and matrices that transform coordinates."""
