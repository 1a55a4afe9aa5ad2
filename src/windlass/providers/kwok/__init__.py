"""Nodes without machines: Node objects that the provider registers itself, for tests, demos and benchmarks."""
