"""The KubeRay provider changes the replicas of a RayCluster's worker groups; KubeRay creates and deletes the pods.

``worker_groups`` is pure: it reads a RayCluster and its pods, and decides which pod serves which slice. ``provider``
reads and patches the API server.
"""
