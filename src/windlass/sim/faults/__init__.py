"""Faults lists what can go wrong in a simulation, presets of it, and where it strikes."""
