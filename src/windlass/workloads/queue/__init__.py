"""The queue workload runs commands from an SQLite file on the machines that join."""
