"""UI renders pages, tables and check lists in the terminal."""
