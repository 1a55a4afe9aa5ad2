"""The SSH provider sells machines that exist already, each to one slice at a time."""
