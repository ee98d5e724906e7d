"""The description of what a kernel computes: types, expressions, math, and the KernelSpec."""
