"""Faults: the catalogue of faults of a simulation, presets, and the points where controllers crash."""
