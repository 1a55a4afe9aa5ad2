"""Workloads: the systems that run the work and know what waits. One package a workload, and their contract."""
