"""Client is what user code calls: compute, gather, gang, futures."""
