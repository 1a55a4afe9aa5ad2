"""Buying chooses which groups to launch for the demand that no existing node can take.

`market` defines the input and the output as numbers, `strategies` implements best-fit and rank, `solver` minimises
cost.
"""
