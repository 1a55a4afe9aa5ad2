"""Report shows a pool to people: status, why, the live console view."""
