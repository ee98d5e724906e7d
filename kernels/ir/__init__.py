"""What a kernel computes: types, expressions, math, and the spec that back-ends read."""
