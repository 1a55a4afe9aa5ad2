"""This package plans devices of Dynamic Resource Allocation: the devices of nodes, the free ones, the requests of pods.

``expressions`` evaluates CEL selectors. ``queries`` turns the claims of a pod into counts of devices of a kind.
``inventory`` reads the devices of each node from ResourceSlices and allocated claims. ``columns`` translates devices
into plain resources of the planner, which are exact even where selectors overlap. A request that cannot be planned for
raises ``NotUnderstood``, and the pod waits with ``UNKNOWN_INPUT``.
"""
