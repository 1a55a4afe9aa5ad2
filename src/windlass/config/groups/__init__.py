"""What a group of a configuration has beside what a scenario's group has: an image, and offers."""
