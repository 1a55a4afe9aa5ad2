"""Commands that start and end a cluster."""
