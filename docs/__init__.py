"""The documentation pages, and the scripts that generate parts of them."""
