"""The pages, and the scripts that make parts of them."""
