"""This package is the provider type ``ray-node-provider``: it calls any v1 ``NodeProvider`` of Ray.

``bridge`` runs in a process whose Python has Ray, and imports nothing of Windlass; ``provider`` sends it one JSON
object per line. Nodes start Ray on their own; the id of a node is its instance id in the Ray cluster.
"""
