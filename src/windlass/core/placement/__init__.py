"""Placement serves demand: minimums first, then gangs, then single tasks."""
