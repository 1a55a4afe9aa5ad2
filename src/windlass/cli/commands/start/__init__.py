"""These commands start a cluster and end it."""
