"""What both back-ends share: the cache on disk, pooled memory, threads, traces."""
