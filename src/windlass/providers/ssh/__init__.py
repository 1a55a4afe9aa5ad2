"""The SSH provider uses existing machines, each for one slice at a time."""
