"""Where and when things run: eval modes, contexts, devices, streams, generators, memory."""
