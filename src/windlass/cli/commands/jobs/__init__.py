"""These commands submit, list and cancel jobs of the queue, and print their output."""
