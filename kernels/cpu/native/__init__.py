"""Functions that CPU kernels call, written for Numba. Only imported to compile something."""
