"""Observe reads the workload and the providers, validates their answers and keeps the last valid ones."""
