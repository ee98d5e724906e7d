"""Automatic augmentation: a random choice of augmentations for every sample."""
