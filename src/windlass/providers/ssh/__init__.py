"""Machines that exist already and have SSH: each is sold to one slice at a time."""
