"""Renders pages, tables and checklists in the terminal."""
