"""Check verifies the invariants after every step and at the end of a simulation."""
