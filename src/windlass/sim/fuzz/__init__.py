"""Fuzz makes random simulation scripts, runs many of them and shrinks the ones that fail."""
