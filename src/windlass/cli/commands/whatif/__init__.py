"""Commands that answer what would happen: plans, prices, replays and simulations."""
