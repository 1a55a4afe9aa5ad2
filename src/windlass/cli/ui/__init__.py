"""This package renders pages, tables and checklists in the terminal."""
