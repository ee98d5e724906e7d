"""Benchmarks: our library beside its peers, interleaved in one run, medians over rounds."""
