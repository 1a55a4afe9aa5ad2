"""Scheduler places tasks on the slots of nodes and keeps the record of every task."""
