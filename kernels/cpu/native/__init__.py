"""Functions that CPU kernels call, written for Numba; imported only when something is compiled."""
