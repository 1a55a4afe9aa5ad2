"""Devices of Dynamic Resource Allocation: which devices nodes have, which are free, and what pods ask for.

``expressions`` evaluates CEL selectors. ``queries`` turns the claims of a pod into counts of devices of a kind.
``inventory`` reads ResourceSlices and allocated claims: the devices of each node. ``columns`` gives the planner plain
resources for them, exact also where selectors overlap. What is not understood raises ``NotUnderstood``: the pod waits
with ``UNKNOWN_INPUT``.
"""
