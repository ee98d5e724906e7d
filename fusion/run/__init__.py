"""Plan → values: flushing, filling the kernels' tables, and running kernels and decoders."""
