"""This package writes decisions to API objects: taints with deadlines, claims, status, events, evictions.

``on_decision`` compares the decision with the mirror and queues a write for each difference. A failed write is retried
with the values that are wanted at that time, so no outdated value is written.
"""
