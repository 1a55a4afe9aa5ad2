"""Keys of a group that only a configuration has: an image, and offers."""
