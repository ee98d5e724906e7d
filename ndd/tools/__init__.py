"""Tools to inspect programs and data: explain, diagrams, profiles, pictures, type stubs."""
