"""The graph that op calls build: nodes, their shapes and memory, and the builders of nodes."""
