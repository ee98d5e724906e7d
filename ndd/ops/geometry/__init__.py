"""Ops that move elements exactly: crops, flips, padding, pasting."""
