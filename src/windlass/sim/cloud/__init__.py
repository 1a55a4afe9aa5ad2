"""The simulated cloud launches simulated machines, with boot times, stock and faults."""
