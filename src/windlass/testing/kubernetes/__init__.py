"""This package has Kubernetes for tests: a real control plane from its binaries, and an API server within the
process.
"""
