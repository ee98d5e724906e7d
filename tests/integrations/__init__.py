"""Tests of what other frameworks do with us."""
