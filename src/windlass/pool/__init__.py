"""The elastic pool runs functions of a Python program on nodes, and adjusts the number of nodes to the work.

`client` is what a user writes: ``compute``, ``gather``, ``gang`` and the operators. `pool` is the ``ComputePool`` that
they are sent to. It starts a thread with an event loop, on which the production controller runs with the pool's own
journal (`runtime`): the task book (`scheduler`) reports what waits, the pool's rule (`scaling`) says how many nodes may
go, the planner buys and releases, the provider starts and ends nodes. An engine (`engines`) carries tasks to nodes.
"""
