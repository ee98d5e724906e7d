"""From encoded bytes to arrays."""
