"""Scaling decides how many nodes a pool wants and shows its tasks to the planner as a workload."""
