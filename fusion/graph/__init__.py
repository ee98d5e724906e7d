"""The graph that calls build: nodes, shapes, memory, and the vocabulary to build it with."""
