"""Buying chooses which groups to launch for the demand that is left over.

`market` is the input and the output in numbers, `strategies` has best-fit and rank, `solver` minimises cost.
"""
