"""Bridges to other frameworks: import the one you need, as in `import ndd.integrations.ray`."""
