"""Texts of the reference pages: the meaning of each reason code and of each key of an answer.

``reference`` combines them with facts from the code (which codes answer which question), and fails on a code without a
text here.
"""

from __future__ import annotations

from typing import Final

from windlass.core.model.reasons import Code

NOT_IN_USE: Final = "This code is not in use; its meaning is reserved."
BY_CONTROLLER: Final = "The controller gives this code; a plan does not."

RESERVED: Final = frozenset({Code.REPLACE_LOST, Code.YOUNG})
"""Codes that nothing gives."""
OF_CONTROLLER: Final = frozenset(
    Code(name)
    for name in (
        *("STOCKOUT", "BOOTING", "REPLACE_FAILED", "MANUAL", "UNHEALTHY"),
        *("LOST", "PREEMPTED", "LEAKED", "DRAIN_ABORTED"),
    )
)
"""Codes of the loop, which the planner does not give."""

REASONS: Final[dict[Code, tuple[str, str]]] = {
    # -- demand
    Code.DEMAND: (
        (
            "Work needs the slice. On a launch: no room was left for it elsewhere. On an uncordon or unmark: it is "
            "placed on a slice that was leaving, which is cheaper than a new one."
        ),
        "Nothing. To see which work it is, look at `placements`; to see why this group, at `passed_over`.",
    ),
    Code.NO_SHAPE_FITS: (
        (
            "No node of any group is large enough for one task, even empty and with every limit lifted. Each group "
            "says which resource is short (`TOO_SMALL`)."
        ),
        "Ask for less, or add a group with larger nodes. The suggested change names the largest amount that would fit.",
    ),
    Code.TOO_SMALL: (
        "A node of this group has too little of a resource, or none of it, for one task.",
        (
            "Ask for less of that resource, or give the group larger nodes. A resource that no group has may be a "
            "typing error in its name."
        ),
    ),
    Code.NO_LABEL_MATCH: (
        (
            "A condition in `where` does not hold for the labels of this group. If no group has the value, the one "
            "that was probably meant is named."
        ),
        "Correct the condition, remove it, or add the label to a group for which it is true.",
    ),
    Code.NOT_TOLERATED: (
        "The group has a taint (`NoSchedule` or `NoExecute`) that the demand does not tolerate.",
        "Add the toleration to `tolerates` if the work may run there; else add a group without the taint.",
    ),
    Code.INVALID_DEMAND: (
        (
            "The demand can never be run as it is written: a negative amount, a negative count, or an accelerator "
            "need above 1 that is not whole. It is left out, and the rest is planned. A scenario file with such a "
            "demand is refused before planning, so this is seen only with snapshots that were made in Python from the "
            "core's types."
        ),
        "Correct it where it is submitted.",
    ),
    Code.UNKNOWN_INPUT: (
        (
            "A source could not be read, so what it would have said is unknown; or a task asks for something that "
            "is not understood. Unknown is never taken as zero."
        ),
        "See why the named source does not answer, or change what the task asks for.",
    ),
    # -- gangs
    Code.APART: (
        (
            "An `apart` constraint keeps the task away: the domain (a node, a slice, or all nodes with one value of a "
            "label) holds as many tasks of the class as it may, or a task there keeps others of its class away."
        ),
        "Raise `at_most`, or add a group in a further domain.",
    ),
    Code.SPREAD: (
        (
            "A `spread` constraint keeps the task back: its domain would hold more tasks of the class than the "
            "smallest eligible domain and `max_skew` allow. Often another domain cannot grow because of a limit."
        ),
        "Lift the limit of the domain that holds the fewest, raise `max_skew`, or drop that domain with a condition.",
    ),
    Code.TOGETHER: (
        (
            "A `together` constraint: no domain that the task could go to holds a task of the class that it must be "
            "with, or the domains that do have no room."
        ),
        "Start the work of that class first, or give the task the class too, so that it may be the first of it.",
    ),
    Code.GANG_SHAPE: (
        (
            "Each task of the gang would fit, but not all of them in the form that `gang` asks for: the sum is too "
            "large for one node (`same-node`), or the size is no multiple of the hosts of a slice (`same-slice`). "
            "Also given when a group could hold a part of the gang and no way was found to place all of it."
        ),
        "Change the size of the gang, relax `gang`, or add a group whose slices have the right number of hosts.",
    ),
    Code.GANG_FORMING: (
        "The deadline of the gang has passed before it could start whole. It is not served any more.",
        "Submit it again with a later `deadline`, or with none.",
    ),
    Code.GANG_HELD: (
        (
            "The slice is idle, and a gang that cannot start whole yet would use it. It is not released while the "
            "gang forms: until the deadline of the gang, or, without one, while its blocker is one that passes by "
            "itself (`RATE_LIMITED`, `BACKOFF`, `STOCKOUT`, `QUOTA`)."
        ),
        "Look up why the gang waits, and lift that. Give the gang a `deadline` to bound how long slices are held.",
    ),
    Code.GANG_RELEASED: (
        (
            "The slice was held for a gang until the deadline of the gang. That has passed, and the slice has been "
            "idle longer than `idle_timeout`."
        ),
        "Nothing for the slice. If the gang should have had more time, give it a later `deadline`.",
    ),
    # -- limits
    Code.AT_MAX: (
        (
            "The group has as many slices as its `max` allows, or too few places left for all that a gang needs. "
            "Slices count from queued until they are confirmed gone."
        ),
        "Raise `max` of the group, or wait until work ends. The suggested change names the number.",
    ),
    Code.MAX_NODES: (
        "The nodes of a new slice would go beyond `max_nodes` of the cluster.",
        "Raise `cluster.max_nodes`, or free nodes of other groups.",
    ),
    Code.BUDGET: (
        "A new slice would take the cluster above `max_hourly_cost`. Running, in flight and planned slices all count.",
        "Raise `cluster.max_hourly_cost`, or let cheaper groups hold the work. The suggested change names the sum.",
    ),
    Code.RATE_LIMITED: (
        "As many slices are in flight as `max_launching` of the group or of the cluster allows.",
        "Wait: launches go on when those in flight are ready. Raise `max_launching` if the provider can take more.",
    ),
    Code.OVER_MAX: (
        (
            "There are more slices than a limit allows, because the limit was lowered: `max` of the group, "
            "`max_nodes`, or `max_hourly_cost`. The ones furthest from being of use go first."
        ),
        "Nothing, if the limit is meant. To keep a certain slice, name it in `protected` of its group.",
    ),
    Code.FROZEN: (
        (
            "An operator has frozen the group (`frozen: true`): nothing is launched in it and nothing of it is "
            "released. Its free capacity still takes demand."
        ),
        "Ask the operator, or resume the group.",
    ),
    Code.NOT_TAKEN: (
        (
            "A ready node has had room for it for a while, and the workload does not place it there: another machine "
            "of the kind would not help. With Ray 2.48 this is how a label selector looks, which that version does "
            "not report; with every version, a hard affinity to one node."
        ),
        "Look at the label selector or the affinity of the task. With Ray, use a version that reports selectors.",
    ),
    # -- what the provider can give
    Code.STOCKOUT: (
        "The provider has no such machines at the moment.",
        "Wait, or allow the work on other groups or zones.",
    ),
    Code.QUOTA: (
        (
            "The availability of the group is `quota_exceeded`: the account may not have more of it. Without `until` "
            "this lasts until the availability changes; with it, the group is available again from then on."
        ),
        "Ask the provider for more quota, or allow the work on another group.",
    ),
    Code.BACKOFF: (
        (
            "The availability of the group is `backoff`: launches were refused. Before `until` nothing is launched. "
            "From then on one slice may be in flight at a time, and what needs more waits with this code. A gang that "
            "needs several sends one ahead."
        ),
        "Wait for the time that is named, or allow the work on another group.",
    ),
    Code.PROBE: (
        (
            "The group is in back-off and its time is over. One launch tests whether the provider has capacity again. "
            "For a gang that needs several slices of the group, it is launched ahead and held; the others "
            "follow when it is ready."
        ),
        "Nothing. If it succeeds, set the availability to `available`.",
    ),
    Code.LAUNCHING: (
        (
            "The slice is in flight (booting or initializing), and nothing needs it now. It is left to come up, and "
            "then falls under the rules for idle slices. For a demand, the meaning is that its slice is being "
            "launched; no plan gives it for a demand, because such demand counts as placed."
        ),
        "Nothing. Without a `scale_down` rule the slice will stay.",
    ),
    Code.BOOTING: (
        "The demand waits for a slice that is booting.",
        "Wait for the time that is named.",
    ),
    # -- why another group was taken
    Code.WORSE_SCORE: (
        (
            "Under `best-fit`: the group could have been taken, and another one fits better. The sentence names the "
            "first point in which they differ: preferences, a wasted accelerator, kinds used, least and mean "
            "utilization, rank, price, name."
        ),
        "Nothing. If this group should win, give it a lower `rank` (it decides after the fit), or use `choose: rank`.",
    ),
    Code.DEARER: (
        "Under `cheapest`: the group could have been taken, and the whole of the work costs less without it.",
        "Nothing. More `effort` may find a still cheaper mix.",
    ),
    Code.LOWER_RANK: (
        (
            "Under `rank`: the group could have been taken, and one of a better rank (a lower number) was. Within one "
            "rank preferences decide, then groups already chosen or in flight, then the name."
        ),
        "Nothing. Change the `rank` of a group to change the order.",
    ),
    # -- floors
    Code.MIN: (
        "The group keeps at least `min` slices. Slices are launched, called back or kept for it.",
        "Lower `min` if so many are not needed.",
    ),
    Code.SPARE: (
        "The group holds `spare` free slices ready beyond demand. Slices are launched, called back or kept for it.",
        "Lower `spare` if so many are not needed.",
    ),
    Code.REQUEST: (
        "A standing request (`requests`) needs room. A slice is launched or called back for it.",
        "Nothing. Remove the request when the room is not needed any more.",
    ),
    Code.REQUESTED_CAPACITY: (
        "The slice is idle, and a standing request needs the room on it.",
        "Remove or shrink the request if the room is not needed any more.",
    ),
    # -- the life of a slice
    Code.REPLACE_LOST: (
        "A slice was lost, and this one takes its place.",
        "Nothing. See why the other one was lost.",
    ),
    Code.REPLACE_FAILED: (
        "A slice never came up, and this one takes its place.",
        "Nothing. See why the other one failed.",
    ),
    Code.MANUAL: (
        "An operator asked for it.",
        "Ask the operator.",
    ),
    Code.IDLE: (
        (
            "The slice has had no task for longer than `idle_timeout` of its group, no floor needs it, and nothing is "
            "placed on it."
        ),
        "Nothing. Raise `idle_timeout`, `min` or `spare` to keep idle slices longer.",
    ),
    Code.SURPLUS: (
        "The slice is queued or requesting, and no demand, floor or request needs it any more. It is cancelled.",
        "Nothing. Raise `spare` to keep slices beyond demand.",
    ),
    Code.LOW_UTILIZATION: (
        (
            "Less of the group is used than its rule asks for. Under `low_utilization` the slice is drained; under "
            "`utilization` it is marked until its delay is over, and then drained."
        ),
        "Nothing. Change `below` and `keep`, or `percent` and `spare_nodes`, to hold more slices.",
    ),
    Code.CONSOLIDATE: (
        (
            "The work of the slice fits on running slices, or on one cheaper new slice, for less money. The slice is "
            "drained; a new one, if there is one, is launched in the same plan."
        ),
        "Nothing. Set `consolidate: false`, or name the slice in `protected`, to keep work where it is.",
    ),
    Code.UNHEALTHY: (
        "A node of the slice is unhealthy, so the slice is replaced.",
        "See the health of the node.",
    ),
    Code.LOST: (
        "The slice is gone or dead without being asked to end.",
        "See the events of the provider.",
    ),
    Code.PREEMPTED: (
        "The provider took the slice back.",
        "Use groups that are not `preemptible` for work that must not be interrupted.",
    ),
    Code.LEAKED: (
        "The provider shows a slice that has no record.",
        "Find out who launched it.",
    ),
    Code.GROUP_REMOVED: (
        "The group of the slice is not in the scenario any more. The slice takes no demand and goes.",
        "Add the group again if it was removed by mistake.",
    ),
    Code.DRAINING: (
        "The slice is cordoned or draining: it takes no new work and ends when it is empty.",
        "Nothing. Demand that fits on it calls it back.",
    ),
    Code.MARKED: (
        "The slice is marked for release at a time that has not come, and nothing needs it so far.",
        "Nothing. Work that is placed on it removes the mark.",
    ),
    Code.ENDING: (
        "The slice is leaving or gone (terminating, terminated, failed, lost). It takes no work.",
        "Nothing. It counts for the limits until it is confirmed gone.",
    ),
    Code.NO_RULE: (
        (
            "The slice is idle, and its group has no `scale_down` rule, so it never shrinks. On an unmark: the "
            "group has no `utilization` rule any more, so the mark is removed."
        ),
        "Add `scale_down: {idle_timeout: SECONDS}` to the group if idle slices should go.",
    ),
    Code.BUSY: (
        "Work runs on the slice, and no rule of the group asks for its release.",
        "Nothing. It can go when its work has ended.",
    ),
    Code.PLACED: (
        "Demand is placed on the slice in this plan.",
        "Nothing. `placements` says which.",
    ),
    Code.YOUNG: (
        "The slice became ready only a short time ago.",
        "Wait until it has been there longer.",
    ),
    Code.NOT_IDLE_LONG_ENOUGH: (
        "The slice is idle, and its `idle_timeout` has not passed. The sentence has the time that is left.",
        "Wait, or lower `idle_timeout`.",
    ),
    Code.PROTECTED: (
        "The group names the slice in `protected`. It is never released.",
        "Take it off the list when it may go.",
    ),
    Code.DRAIN_ABORTED: (
        "The slice was draining, and its work did not end in time.",
        "Look at what runs there.",
    ),
    Code.NOT_WORTH_IT: (
        (
            "No rule of the group asks for the release of the slice: enough is used, the group is being launched in "
            "the same plan, or a node of the slice is unhealthy, which scaling down does not handle."
        ),
        "Nothing, or change the rules under `scale_down`.",
    ),
}

Keys = dict[str, tuple[str, str]]
"""For each key: what it is, and what it means."""

ANSWER: Final[tuple[tuple[str, Keys], ...]] = (
    (
        "The whole",
        {
            "schema": ("text", "`windlass.plan/v1`."),
            "now": ("number", "The time of the snapshot."),
            "strategy": ("text", "How groups were chosen: `best-fit`, `rank` or `cheapest`."),
            "launch": ("mapping", "Slices to launch, by group. Groups without any are left out."),
            "launches": ("list", "The same with reasons, see below."),
            "cancel": ("list", "Slices in flight that are given up."),
            "drain": ("list", "Ready slices that are to be emptied and released."),
            "uncordon": ("list", "Cordoned or draining slices that are called back."),
            "mark": ("list", "Slices that are scheduled for release."),
            "unmark": ("list", "Slices whose mark is taken off."),
            "placements": ("list", "Which tasks go where."),
            "waiting": ("list", "Which tasks and requests find no place, and why."),
            "keep": ("list", "All other slices, and why they stay."),
            "hourly_cost": ("mapping", "Dollars per hour: `now`, and `planned` when the plan is carried out."),
            "mistakes": (
                "list",
                "One line for each demand with `INVALID_DEMAND`. Empty for a file.",
            ),
        },
    ),
    (
        "An entry of `launches`",
        {
            "group": ("text", "What is launched."),
            "first": ("number", "The new slices are `new:GROUP:first` and on."),
            "count": ("number", "How many."),
            "code": ("text", "Why: a [reason code](reasons.md)."),
            "why": ("text", "The same as a sentence."),
            "hourly_cost": ("number", "Dollars per hour for all of them."),
            "demands": ("mapping", "For each demand that these slices serve, how many of its tasks."),
            "passed_over": (
                "mapping",
                (
                    "For each other group `code` and `why` it was not taken. Empty where there was no choice, as for "
                    "`min` and `spare`."
                ),
            ),
        },
    ),
    (
        "An entry of `cancel`, `drain`, `uncordon`, `mark`, `unmark`, `keep`",
        {
            "slice": ("text", "The id of the slice."),
            "code": ("text", "Why: a [reason code](reasons.md)."),
            "why": ("text", "The same as a sentence."),
            "until": ("number", "In `mark` only: when the slice is due for release."),
        },
    ),
    (
        "An entry of `placements`",
        {
            "demand": ("text", "The id of the demand."),
            "count": ("number", "How many of its tasks."),
            "on": ("text", "The id of a slice, or `new:GROUP:i` for one that is launched."),
            "bundle": ("number", "For a gang: the place of the bundle in its list, from 0."),
        },
    ),
    (
        "An entry of `waiting`",
        {
            "demand": ("text", "The id of the demand or request."),
            "count": ("number", "How many of its tasks wait."),
            "code": ("text", "The nearest reason: a [reason code](reasons.md)."),
            "why": ("text", "The same as a sentence."),
            "groups": ("mapping", "For each group `code` and `why` of the first check that fails."),
            "unblocks": (
                "list",
                (
                    "Changes that would place the demand, at most 5, the smallest first. May be empty: the number of "
                    "what-if plans is bounded."
                ),
            ),
        },
    ),
    (
        "An entry of `unblocks`",
        {
            "change": ("text", "What to change, for people."),
            "set": (
                "list",
                (
                    "The same for programs: each entry has `path`, the keys that lead to a place in the scenario (a "
                    "demand or request is named by its id), and `value`, what to write there. A `value` of null means "
                    "to leave the key out."
                ),
            ),
            "hourly_cost": ("number", "Dollars per hour that it adds to what the cost ceiling counts."),
        },
    ),
)
