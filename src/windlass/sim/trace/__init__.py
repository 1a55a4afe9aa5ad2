"""Trace runs recorded job traces and measures cost and waiting time."""
