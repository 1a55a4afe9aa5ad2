"""Workloads run the work and know what waits. `protocol` is their contract, `registry` lists the types.

`queue` is the default: commands in an SQLite file. A workload of your own passes
``windlass.testing.workload_conformance``.
"""
