"""What makes a training loop fast: calls are recorded, replayed and made in advance."""
