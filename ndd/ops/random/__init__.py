"""Random numbers, noise and random crops."""
