"""Kinds of computation: one class and one file each, with all its rules side by side."""
