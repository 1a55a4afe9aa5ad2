"""The core: from a snapshot to a plan, as a pure function.

A ``Snapshot`` comes in: all that is known at one instant, the time included. A ``Plan`` goes out: what to do about it,
and why, item by item. In between there is no clock, no chance and no I/O, and nothing depends on the order of sets or
of the input: the same snapshot gives the same plan, byte for byte. The core imports the standard library and numpy,
and none of the other packages.

To follow one demand from arrival to node, read the files in this order.

The words. `quantities` holds amounts and money as whole numbers, `conditions` says where demand may go, `lifecycle` is
the life of a slice as a table, `reasons` the codes, and `snapshot` puts these together as frozen types.

Arrival. `shapes` brings demand into the order in which it is served and makes equal tasks one shape with a count.
`eligibility` answers which nodes and groups a shape may go to. `room` is free space, and the one rule of what fits.
`offers` are the nodes that have room without buying, and which of them is taken first. `ledger` counts against every
ceiling. `lineup` has the groups as tables, `muster` the slices by id, `ground` their nodes as rows: all three follow
from what hardly changes from one plan to the next, and `recent` remembers them. `layout` puts them together, once for
all drafts of a plan, and what is not always asked for `lazily`; a `draft` is one plan in the making.

Serving. `lowering` lets go what is above a limit. `floors` hold `min`, standing requests and spares. `gangs` serves
what starts whole or not at all, with `matching` to give each member a host. `serving` goes through the priorities:
place first, buy last.

Buying. `market` is what is left and what may be bought for it, in numbers. `choosing` takes groups by `best-fit` or
`rank`; `cheapest` looks for the least money: `single` where one slice does, `exact` for few tasks, `covering` for many,
with `patterns` for what one slice can hold and `master` for the prices of tasks; `parting` then gives tasks slices of
their own, where that is wanted. `ways` makes the plan in more than one way, above all when there are free slices or
slices on their way, and takes the best, unless `bounds` says that there is no better one. `probes` sends one slice of a
gang ahead, where a group lets only one launch out at a time.

Why. `explaining` says why demand waits, `passing` why a group was taken and the others were not, `unblocking` what
would help, by planning again.

Giving back. `releasing` has the rules for idle and little used slices, `consolidating` the one for work that fits
elsewhere for less, and `keeping` says why each other slice stays.

The answer. `planner` calls these steps in their order, and `plan` is what comes out. `invariants` checks a plan from
the outside against the laws that every plan obeys.

Beside it stands `pool_rule`, the rule by which an elastic pool says how many nodes it wants.
"""
