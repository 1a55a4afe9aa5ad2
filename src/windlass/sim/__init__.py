"""A world that is made up, on a clock that leaps: the production loop runs in it unchanged, whatever goes wrong.

`cloud` sells machines that do not exist (``SimulatedProvider``); `workload` runs jobs on them (``SimulatedWorkload``).
Neither sleeps, looks at a clock or rolls a die by itself: the time comes from a callable, chance from one seed
(`chance`), and what goes wrong from a list of faults (`faults`, with names for sets of them in `storms`). Work is
placed by the planner's own rule of what fits (`placing`) on the room that is there (`offered`). How many machines a
cloud has to sell may follow a recording (`stock`). What has not changed is shown as the very same object, so that a
step costs by what happens in it, not by what exists; `following` tells the checker and the gauge what that was.

A `script` is all that a run follows from: settings, jobs, faults, a seed. `engine` runs it: an event loop on virtual
time (`clock`), a journal in memory (`forgetful`) or a real one, a controller that may be killed before and after every
write and call (`perils`), and what comes out of the blue (`blue`). After every step `checking` looks whether what must
always hold does hold, in the truth, in what the controller remembers, and in what it decided; when the faults are over
and all is quiet, `ending` looks whether everything is placed that can be, and all surplus gone.

`arbitrary` makes a script for any number, and `swarm` runs thousands of them; one that breaks a promise is made as
small as it gets, and written down as a test (`shrinking`). The same script and the same code tell the same story, down
to its hash.
"""
