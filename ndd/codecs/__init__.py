"""Decoding: encoded bytes enter, arrays leave."""
