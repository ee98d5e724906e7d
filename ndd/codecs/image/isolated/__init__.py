"""Decoding in processes of their own, for files that nobody vouches for."""
