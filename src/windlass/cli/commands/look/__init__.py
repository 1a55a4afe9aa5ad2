"""These commands show the state, the history and the cost of a cluster."""
