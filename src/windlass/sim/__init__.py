"""The simulator runs the production loop unchanged on a virtual clock, in a simulated world with faults.

`cloud` launches simulated machines (``SimulatedProvider``) and `workload` runs jobs on them (``SimulatedWorkload``).
Both are deterministic: the time comes from a callable, randomness from one seed (`random_source`), and faults from a
list (`faults`). Work is placed by the planner's own fit rule. Unchanged items are returned as the same objects, so the
cost of a step grows with the changes, not with the fleet.

`run` executes a script (settings, jobs, faults, a seed): an event loop on virtual time, a journal in memory or a real
one, and a controller that can be killed before and after every write and call. `check` verifies the invariants after
every step against the simulated truth, and at the end that everything is placed that can be and all surplus is gone.

`trace` runs recorded job traces, `whatif` reruns what a journal recorded under other settings, and `fuzz` makes random
scripts, runs thousands of them, and shrinks a failing one to a small test. The same script and the same code give the
same run, down to its digest.
"""
