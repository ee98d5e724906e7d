"""The GPU back-end: KernelSpec → Triton source → launches on a stream, real or simulated."""
