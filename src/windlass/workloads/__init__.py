"""Workloads: the systems that run the work and know what waits. One package a workload, and their contract.

`protocol` is the contract. A workload of your own passes ``windlass.testing.workload_conformance``.
"""
