"""This package reads the keys of a group that only a configuration has: an image, and offers."""
