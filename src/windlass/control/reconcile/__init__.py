"""Reconcile is one pass as a pure function: apply observations, plan, apply the plan, start launches."""
