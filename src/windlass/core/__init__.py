"""The core turns a snapshot into a plan, as a pure function.

A ``Snapshot`` holds everything known at one instant, the time included. ``plan`` returns a ``Plan``: what to do and
why, item by item. There is no clock, no randomness and no I/O here, and nothing depends on the order of sets or of the
input: the same snapshot gives the same plan, byte for byte. The core imports only the standard library and numpy.

Follow one demand from arrival to node: `model` defines the types. `demand` sorts demand into serving order and groups
equal tasks into one shape with a count. `capacity` has the fit rule, eligibility by labels and taints, the offers of
existing nodes, and the limits. `tables` holds groups, slices and nodes as arrays. `plan_draft` is the plan under
construction. `placement` serves minimums, gangs and single tasks. `buying` chooses the groups to launch.
`candidate_plans` makes several plans and keeps the best (`draft_worth`); `purchase_search` tries cheaper sets of new
slices for small inputs with gangs; `next_plan` launches only what the next plan would keep; `copied_decisions` carries
placements from one draft to another; `probe_launches` buys one slice ahead of a gang after a back-off. `scale_down`
releases slices. `explain` gives the reasons. `planner` calls these steps in order. `plan_laws` and `constraint_laws`
check a finished plan.
"""
