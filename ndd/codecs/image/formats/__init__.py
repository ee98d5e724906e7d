"""One file per format: what must hold in a file before any decoder sees it."""
