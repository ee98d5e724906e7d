"""Ops that follow the histogram of an image: equalize, clahe."""
