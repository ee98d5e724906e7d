"""Ops that sum over a window around each element: blur, derivatives, any filter."""
