"""Solver finds the purchase with the least cost: exact search for few tasks, column generation for many."""
