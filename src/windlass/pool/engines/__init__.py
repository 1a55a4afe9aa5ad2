"""Engines carry calls to nodes. `protocol` is their contract; they never choose where a call runs."""
