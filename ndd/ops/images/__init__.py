"""Decoders of images."""
