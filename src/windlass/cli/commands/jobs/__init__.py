"""Commands for the jobs in the queue."""
