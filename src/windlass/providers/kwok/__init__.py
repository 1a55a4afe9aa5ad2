"""The KWOK provider registers Node objects without machines, for tests, demos and benchmarks."""
