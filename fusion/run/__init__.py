"""Plan → values: who flushes and when, tables of numbers per sample, threads."""
