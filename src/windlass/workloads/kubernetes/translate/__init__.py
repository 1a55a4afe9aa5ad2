"""This package translates API objects into the planner's model. Pure: no clock, no calls."""
