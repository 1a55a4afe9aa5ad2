"""The elastic pool runs functions of a Python program on nodes, and adjusts the number of nodes to the work.

`client` has the functions that users call: ``compute``, ``gather``, ``gang`` and the operators. `pool` has
``ComputePool``, which runs their tasks. It starts a thread with an event loop for the production controller and the
pool's own journal (`runtime`): the task book (`scheduler`) reports what waits, the pool's rule (`scaling`) decides how
many nodes may be released, the planner buys and releases, the provider starts and ends nodes. An engine (`engines`)
carries tasks to nodes.
"""
