"""Translation of API objects into the planner's words. Pure: no clock, no calls."""
