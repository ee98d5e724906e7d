"""A native loop that decodes samples and runs their kernels without the interpreter."""
