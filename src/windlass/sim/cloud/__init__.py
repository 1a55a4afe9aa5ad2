"""The simulated cloud sells machines that do not exist, with boot times, stock and faults."""
