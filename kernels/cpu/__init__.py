"""The CPU back-end: KernelSpec → Numba source → native code."""
