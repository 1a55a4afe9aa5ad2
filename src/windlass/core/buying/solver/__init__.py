"""The solver finds the purchase with the least cost: by exact search for few tasks, by column generation for many."""
