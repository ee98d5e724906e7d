"""Code that both back-ends share: caches, pooled memory, threads, traces."""
