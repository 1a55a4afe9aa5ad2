"""Control: what turns observations into the next state of every slice.

Data flows one way. What the workload and the providers show comes in as observations; ``fold`` makes the next ``Book``
of them, a record for every slice; the planner reads a snapshot of the book. Nothing here calls anybody: an act never
changes a record, only what is seen of it does.
"""
