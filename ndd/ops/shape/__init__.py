"""Shapes, indexing and new tensors."""
