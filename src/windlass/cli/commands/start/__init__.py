"""Commands that start a cluster and end it."""
