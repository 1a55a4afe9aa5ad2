"""The elastic pool: functions of a Python program run on nodes whose number follows the work.

`tasks` is what a user writes: ``compute``, ``gather``, ``gang`` and the operators. `pool` is the ``ComputePool`` that
they are sent to. Inside it, on a thread and an event loop of its own, the production controller runs on a journal of
its own (`runtime`): the task book reports what waits, the pool's rule decides how many nodes it wants (`scaling`), the
planner buys and releases, the provider starts and ends nodes. Nothing here decides what a node is for.
"""
