"""Workers of a RayCluster: the provider changes the replicas of worker groups, and KubeRay makes and deletes the pods.

``worker_groups`` is pure: it reads a RayCluster and its pods, and decides which pod serves which slice. ``provider``
reads and patches the API server.
"""
