"""Encoded pictures and kernels → processed samples, by a native loop that needs no interpreter."""
