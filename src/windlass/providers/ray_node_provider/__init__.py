"""This package runs Ray's own node providers: any v1 ``NodeProvider``, in a process that has Ray.

``bridge`` runs in that process and imports nothing of Windlass; ``provider`` speaks with it, one JSON object per line.
Nodes start Ray on their own; the id of a node is its instance id in the cluster.
"""
