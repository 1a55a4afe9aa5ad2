"""The peers: how other autoscalers decide, put in the planner's place inside the same simulated world.

A peer takes a snapshot and gives a plan, as ours does; the loop, the cloud, the prices, the boot times, the jobs and
the rule by which a job finds its node are the same for all. So a comparison is of what is bought when, and of what is
given back when, and of nothing else. Each module says what its system does by its own documentation and defaults, and
where the model is kinder than the system:

- Every peer sees what waits at once and without error, and knows at once what became of a launch.
- Every peer counts what is in flight exactly once, and knows shares of a GPU and GPU models.
- A job that runs is never moved: it has no checkpoint, so moving it would be doing it again. Systems that evict are
  run as their documentation says for such jobs: with the mark that keeps a running job where it is.
- Of types that a peer finds equally good it takes the cheapest, as a careful operator would configure it.

``peer`` has what they share, ``filling`` how a new machine is filled; ``deciding`` puts a peer into a controller.
"""
