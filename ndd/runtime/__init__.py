"""Where and when ops run: eval modes, contexts, devices, streams, generators, memory."""
