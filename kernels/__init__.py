"""Element types, scalar expressions, and the two code generators with their runtimes."""
