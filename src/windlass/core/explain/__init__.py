"""Explain gives the reasons of a plan: why demand waits, why a group is launched, why a slice is kept, what would
unblock demand."""
