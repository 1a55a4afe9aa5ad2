"""What-if reruns what a journal recorded under other settings."""
