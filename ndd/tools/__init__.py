"""For people who look inside: explain, diagrams, profiles, pictures, type stubs."""
