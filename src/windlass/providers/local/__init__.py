"""The local provider sells slices that are groups of processes on this machine."""
