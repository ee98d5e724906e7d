"""The graph of pending calls, the passes that fuse it, and the plans that run it."""
