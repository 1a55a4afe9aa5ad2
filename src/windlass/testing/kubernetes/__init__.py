"""This package runs Kubernetes for tests: a real control plane from its binaries, and an in-process API server."""
