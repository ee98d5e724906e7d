"""Moving pictures: an index of each file, exact access to its frames, and their conversion."""
