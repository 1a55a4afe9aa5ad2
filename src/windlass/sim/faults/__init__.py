"""This package has the faults of a simulation: the catalogue, presets, and the points where controllers crash."""
