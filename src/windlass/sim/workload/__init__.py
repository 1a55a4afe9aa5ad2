"""The simulated workload runs jobs on simulated machines."""
