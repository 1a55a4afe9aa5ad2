"""Workloads: the systems that run the work and know what waits. One package a workload, and their contract.

`protocol` is the contract. `queue` is the workload that is always there: commands in an SQLite file (`queue_store`),
run by the hosts that join (`queue_agent`). A workload of your own passes ``windlass.testing.workload_conformance``.
"""
