"""This package serves requests for room that have no pods yet: CapacityBuffers and ProvisioningRequests.

Each is turned into placeholder pods, which the planner serves like waiting pods and which no scheduler sees.
``buffers`` keeps free room for pods to come. ``provisioning`` brings room for a whole set of pods and books it for a
while, as Kueue needs it.
"""
