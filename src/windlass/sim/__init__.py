"""A cloud and a workload that are made up, on a clock that is given: real contracts, any fault, the same every time.

`cloud` sells machines that do not exist (``SimulatedProvider``); `workload` runs jobs on them (``SimulatedWorkload``).
Neither sleeps, looks at a clock or rolls a die by itself: the time comes from a callable, chance from one seed
(`chance`), and what goes wrong from a list of faults (`faults`). Work is placed by the planner's own rule of what fits
(`placing`). ``next_event`` of both says to which instant a virtual clock may jump, and ``step`` makes happen what is
due.
"""
