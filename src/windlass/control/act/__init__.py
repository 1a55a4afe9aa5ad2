"""Act makes the outside calls that the recorded states ask for. It never changes state itself."""
