"""These commands answer what would happen: plans, prices, replays and simulations."""
