"""Tables turn a snapshot into numpy arrays: groups, slices and nodes as rows.

This is the only package of the core that reuses work from one plan to the next (`memo`).
"""
