"""This package writes decisions to API objects: taints with deadlines, claims, status, events, evictions.

``on_decision`` compares what the controller decided with what the mirror shows and queues the writes that make up the
difference. A write that fails is tried again from what is wanted then, so nothing is replayed that is out of date.
"""
