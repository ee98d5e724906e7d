"""From a user's call to a graph node: schemas, calls, Tensor and Batch, conversions, errors."""
