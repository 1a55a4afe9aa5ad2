"""Model defines the types of the planner as frozen dataclasses: quantities, conditions, lifecycle, reasons, snapshot,
plan.

Nothing here decides. The lifecycle is a table, and every set of states is derived from it.
"""
