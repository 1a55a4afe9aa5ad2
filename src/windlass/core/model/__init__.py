"""Model holds the words of the planner as frozen types: quantities, conditions, lifecycle, reasons, snapshot, plan.

Nothing here decides. The lifecycle is a table, and every set of states is derived from it.
"""
