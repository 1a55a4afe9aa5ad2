"""Explain says why: why demand waits, why a group was launched, why a slice is kept, what would unblock."""
