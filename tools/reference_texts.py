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
            "Work needs the slice. For a launch: existing slices have no room for the work. For an uncordon or unmark: "
            "the work is placed on a slice that was being released, which is cheaper than a new slice."
        ),
        "Nothing. `placements` shows which work it is, and `passed_over` shows why this group was chosen.",
    ),
    Code.NO_SHAPE_FITS: (
        (
            "No node of any group is large enough for one task, even if it is empty and no limit applies. Each group "
            "names the resource that is too small (`TOO_SMALL`)."
        ),
        "Ask for less, or add a group with larger nodes. The suggested change names the largest amount that would fit.",
    ),
    Code.TOO_SMALL: (
        "A node of this group has less of a resource than one task needs, or has none of it.",
        (
            "Ask for less of that resource, or give the group larger nodes. A resource that no group has may be a "
            "typing error in its name."
        ),
    ),
    Code.NO_LABEL_MATCH: (
        (
            "A condition in `where` does not match the labels of this group. If no group has the value, a similar "
            "value that exists is suggested."
        ),
        "Correct or remove the condition, or add the label to a group.",
    ),
    Code.NOT_TOLERATED: (
        "The group has a taint (`NoSchedule` or `NoExecute`) that the demand does not tolerate.",
        "Add a toleration to `tolerates` if the work may run there. Otherwise add a group without the taint.",
    ),
    Code.INVALID_DEMAND: (
        (
            "The demand is invalid: a negative amount, a negative count, or a need for more than one accelerator that "
            "is not a whole number. The demand is ignored, and the rest is planned. A scenario file with such a demand "
            "is refused, so this code appears only for snapshots that a Python program builds from the types of the "
            "core."
        ),
        "Correct the demand where it is submitted.",
    ),
    Code.UNKNOWN_INPUT: (
        (
            "A source (the workload or a provider) could not be read, so its state is unknown; or a task asks for "
            "something that Windlass does not support. Unknown is never treated as zero: nothing is released."
        ),
        "Find out why the named source does not answer, or change what the task asks for.",
    ),
    # -- gangs
    Code.APART: (
        (
            "An `apart` constraint is not met. A domain is a node, a slice, or all nodes with the same value of a "
            "label. Each domain already holds `at_most` tasks of the class, or holds a task whose own constraint "
            "excludes this one."
        ),
        "Raise `at_most`, or add a group in another domain.",
    ),
    Code.SPREAD: (
        (
            "A `spread` constraint is not met: with this task, its domain would hold more than `max_skew` tasks of the "
            "class above the eligible domain that holds the fewest. Often a limit keeps that domain from growing."
        ),
        "Raise the limit of the domain with the fewest tasks, raise `max_skew`, or exclude that domain by a condition.",
    ),
    Code.TOGETHER: (
        (
            "A `together` constraint is not met: no eligible domain holds a task of the required class, or those that "
            "do have no room."
        ),
        "Start the work of that class first, or give the task the same class, so that it may be the first one.",
    ),
    Code.GANG_SHAPE: (
        (
            "Each task of the gang would fit, but the whole gang cannot be placed as `gang` requires: the sum is too "
            "large for one node (`same-node`), or the size is not a multiple of the hosts of a slice (`same-slice`). "
            "The code is also given if a group can hold a part of the gang, but not all of it."
        ),
        "Change the size of the gang, relax `gang`, or add a group whose slices have the right number of hosts.",
    ),
    Code.GANG_FORMING: (
        "The deadline of the gang passed before all of its tasks could start. The gang is no longer served.",
        "Submit the gang again with a later `deadline`, or without one.",
    ),
    Code.GANG_HELD: (
        (
            "The slice is idle, and is held for a gang that cannot start yet. With a `deadline`, it is held until "
            "then. Without one, it is held as long as the obstacle is temporary (`RATE_LIMITED`, `BACKOFF`, "
            "`STOCKOUT`, `QUOTA`)."
        ),
        "Find out why the gang waits, and remove the obstacle. A `deadline` limits how long slices are held.",
    ),
    Code.GANG_RELEASED: (
        (
            "The slice was held for a gang whose deadline has passed, and it has been idle for longer than "
            "`idle_timeout`."
        ),
        "Nothing. If the gang needs more time, give it a later `deadline`.",
    ),
    # -- limits
    Code.AT_MAX: (
        (
            "The group, or its family, has as many slices as its `max` allows, or a gang needs more slices than are "
            "left. Slices count from queued until they are confirmed gone."
        ),
        "Raise `max`, or wait until work ends. The suggested change names the number.",
    ),
    Code.MAX_NODES: (
        "With a new slice, the cluster would have more nodes than `max_nodes`.",
        "Raise `cluster.max_nodes`, or release nodes of other groups.",
    ),
    Code.BUDGET: (
        (
            "With a new slice, the cluster would cost more than `max_hourly_cost`. Running, launching and planned "
            "slices all count."
        ),
        "Raise `cluster.max_hourly_cost`, or allow the work on cheaper groups. The suggested change names the amount.",
    ),
    Code.RATE_LIMITED: (
        "The number of slices in flight has reached `max_launching` of the group or of the cluster.",
        "Wait: more are launched when those in flight are ready. Raise `max_launching` if the provider allows it.",
    ),
    Code.OVER_MAX: (
        (
            "A limit was lowered (`max` of the group or family, `max_nodes` or `max_hourly_cost`), and there are more "
            "slices than it allows. Slices in flight are released first, then the least used ones."
        ),
        "Nothing, if the limit is intended. To keep a certain slice, list it in `protected` of its group.",
    ),
    Code.FROZEN: (
        (
            "An operator has frozen the group (`frozen: true`): nothing is launched in it and nothing of it is "
            "released. Its free capacity still takes demand."
        ),
        "Ask the operator, or resume the group: `windlass resume GROUP`.",
    ),
    Code.NOT_TAKEN: (
        (
            "A ready node has had room for the task for some time, but the workload does not place it there. Another "
            "machine of this kind would not help, so none is bought. The cause can be a hard affinity to one node, or "
            "with Ray 2.48 a label selector, which that version does not report."
        ),
        "Check the label selector and the affinity of the task. With Ray, use a version that reports selectors.",
    ),
    # -- what the provider can give
    Code.STOCKOUT: (
        "The provider has no such machines at the moment.",
        "Wait, or allow the work on other groups or zones.",
    ),
    Code.QUOTA: (
        (
            "The quota of the account does not allow more machines of the group (availability `quota_exceeded`). With "
            "`until`, the group is available again from that time on; without it, when the availability changes."
        ),
        "Ask the provider for more quota, or allow the work on another group.",
    ),
    Code.BACKOFF: (
        (
            "Launches of the group were refused (availability `backoff`). Before `until` nothing is launched. From "
            "then on one slice at a time may be in flight until a launch succeeds; other demand waits with this code. "
            "For a gang that needs several slices, one is launched first."
        ),
        "Wait until the named time, or allow the work on another group.",
    ),
    Code.PROBE: (
        (
            "The group was in back-off. One launch tests whether the provider has capacity again. For a gang that "
            "needs several slices of the group, this slice is held, and the others are launched when it is ready."
        ),
        (
            "Nothing: the controller ends the back-off if the launch succeeds. In a scenario file, set availability to "
            "`available`."
        ),
    ),
    Code.LAUNCHING: (
        (
            "For a slice: it is booting or initializing, and no demand needs it now. It is not cancelled; when it is "
            "ready, the rules for idle slices apply. For a demand: its slice is being launched. Only the controller "
            "gives this code for a demand; in a plan such demand counts as placed."
        ),
        "Nothing. Without a `scale_down` rule the slice stays.",
    ),
    Code.BOOTING: (
        "The demand waits for a slice that is booting.",
        "Wait until the named time.",
    ),
    # -- why another group was taken
    Code.WORSE_SCORE: (
        (
            "Under `best-fit`: another group fits better. The sentence names the first criterion in which they differ: "
            "preferences, a wasted accelerator, kinds of resource used, least and mean utilization, rank, price, name."
        ),
        "Nothing. To prefer this group, use `choose: rank` and give it a lower `rank`.",
    ),
    Code.DEARER: (
        "Under `cheapest`: all remaining demand together costs less without this group.",
        "Nothing. A higher `effort` may find a cheaper mix of groups.",
    ),
    Code.LOWER_RANK: (
        (
            "Under `rank`: a group with a lower rank number was chosen. Groups of equal rank are compared by "
            "preferences, then by whether they are already chosen or in flight, then by name."
        ),
        "Nothing. To change the order, change `rank`.",
    ),
    # -- floors
    Code.MIN: (
        "The group or its family has at least `min` slices. Slices are launched, called back or kept to reach it.",
        "Nothing. Lower `min` if fewer are enough.",
    ),
    Code.SPARE: (
        (
            "The group or its family keeps `spare` free slices ready beyond demand. Slices are launched, called back "
            "or kept to reach it."
        ),
        "Nothing. Lower `spare` if fewer are enough.",
    ),
    Code.REQUEST: (
        "A standing request (`requests`) needs capacity. A slice is launched or called back for it.",
        "Nothing. Remove the request when the capacity is no longer needed.",
    ),
    Code.REQUESTED_CAPACITY: (
        "The slice is idle, and a standing request needs its capacity.",
        "Remove or reduce the request if the capacity is no longer needed.",
    ),
    # -- the life of a slice
    Code.REPLACE_LOST: (
        "The slice replaces one that was lost.",
        "Nothing. `windlass why` shows why the other slice was lost.",
    ),
    Code.REPLACE_FAILED: (
        "The slice replaces one that failed to start.",
        "Nothing. `windlass why` shows why the other slice failed.",
    ),
    Code.MANUAL: (
        "An operator gave the order.",
        "Ask the operator, whom `windlass events` names.",
    ),
    Code.IDLE: (
        (
            "The slice has had no task for longer than `idle_timeout` of its group, no `min`, `spare` or request needs "
            "it, and no demand is placed on it."
        ),
        "Nothing. Raise `idle_timeout`, `min` or `spare` to keep idle slices longer.",
    ),
    Code.SURPLUS: (
        (
            "The slice is queued or requesting, and no demand, `min`, `spare` or request needs it any more. The launch "
            "is cancelled."
        ),
        "Nothing. Raise `spare` to keep slices beyond demand.",
    ),
    Code.LOW_UTILIZATION: (
        (
            "The utilization of the group is below the target of its rule. With `low_utilization`, the slice is "
            "drained. With `utilization`, it is marked, and drained when its `delay` is over."
        ),
        "Nothing. To keep more slices, change `below` and `keep`, or `percent` and `spare_nodes`.",
    ),
    Code.CONSOLIDATE: (
        (
            "The work of the slice fits on other running slices, or on one new slice that is cheaper. The slice is "
            "drained. If a new slice is needed, it is launched in the same plan."
        ),
        "Nothing. To keep work where it is, set `consolidate: false`, or list the slice in `protected`.",
    ),
    Code.UNHEALTHY: (
        "A node of the slice is unhealthy, so the slice is replaced.",
        "See the reason in `windlass why`, and the health of the node in its workload.",
    ),
    Code.LOST: (
        "The slice has ended or died, and Windlass had not ended it.",
        "See `windlass why`, which has the last output where it is known, and the events of the provider.",
    ),
    Code.PREEMPTED: (
        "The provider preempted the slice.",
        "Use groups that are not `preemptible` for work that must not be interrupted.",
    ),
    Code.LEAKED: (
        (
            "The provider lists a slice of this cluster that has no record in the journal. The controller adopts it, "
            "or ends it again if it had been ended before."
        ),
        "Find out who launched it: for example a controller whose journal was lost.",
    ),
    Code.GROUP_REMOVED: (
        "The group of the slice is no longer in the configuration. The slice takes no demand and is released.",
        "Add the group again if it was removed by mistake.",
    ),
    Code.DRAINING: (
        "The slice is cordoned or draining: it takes no new work, and is ended when it is empty.",
        "Nothing. Demand that fits on it cancels the drain.",
    ),
    Code.MARKED: (
        "The slice is marked: it will be drained at the time of its mark.",
        "Nothing. Work that is placed on it removes the mark.",
    ),
    Code.ENDING: (
        "The slice is ending or has ended (terminating, terminated, failed, lost). It takes no work.",
        "Nothing. It counts for the limits until the provider confirms that it is gone.",
    ),
    Code.NO_RULE: (
        (
            "The slice is idle, but its group has no `scale_down` rule, so it is never released. For an unmark: the "
            "group no longer has a `utilization` rule, so the mark is removed."
        ),
        "To release idle slices, add `scale_down: {idle_timeout: 5m}` to the group.",
    ),
    Code.BUSY: (
        "Work runs on the slice, and no rule of the group releases it.",
        "Nothing. It can be released when its work has ended.",
    ),
    Code.PLACED: (
        "Demand is placed on the slice in this plan.",
        "Nothing. `placements` lists the demand.",
    ),
    Code.YOUNG: (
        "The slice became ready only a short time ago.",
        "Wait until it has been ready for longer.",
    ),
    Code.NOT_IDLE_LONG_ENOUGH: (
        "The slice is idle, but not yet for `idle_timeout`. The sentence has the remaining time.",
        "Wait, or lower `idle_timeout`.",
    ),
    Code.PROTECTED: (
        "The slice is listed in `protected` of its group, so it is never released.",
        "Remove it from the list when it may be released.",
    ),
    Code.DRAIN_ABORTED: (
        (
            "A drain was given up: running work did not end within `drain_timeout`, or the workload refused the drain. "
            "The slice takes work again."
        ),
        "See which tasks run there.",
    ),
    Code.NOT_WORTH_IT: (
        (
            "No rule releases the slice: the group is used enough, the same plan launches slices of the group, or a "
            "node of the slice is unhealthy (unhealthy slices are replaced by the controller, not by these rules)."
        ),
        "Nothing, or change the rules in `scale_down`.",
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
            "cancel": ("list", "Slices in flight whose launch is cancelled."),
            "drain": ("list", "Ready slices to drain and release."),
            "uncordon": ("list", "Cordoned or draining slices whose drain is cancelled."),
            "mark": ("list", "Slices that are scheduled for release."),
            "unmark": ("list", "Slices whose mark is removed."),
            "placements": ("list", "Which tasks go where."),
            "waiting": ("list", "Which tasks and requests cannot be placed, and why."),
            "keep": ("list", "All other slices, and why they are kept."),
            "hourly_cost": ("mapping", "Dollars per hour: `now`, and `planned`, after the plan is carried out."),
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
            "first": ("number", "The index of the first new slice: they are `new:GROUP:first` and following."),
            "count": ("number", "How many."),
            "code": ("text", "Why: a [reason code](reasons.md)."),
            "why": ("text", "The same as a sentence."),
            "hourly_cost": ("number", "Dollars per hour for all of them."),
            "demands": ("mapping", "For each demand that these slices serve, how many of its tasks."),
            "passed_over": (
                "mapping",
                (
                    "For each group that was not chosen: `code` and `why`. Empty if there was no choice, as for `min` "
                    "and `spare`."
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
            "bundle": ("number", "For a gang: the index of the bundle in its list, from 0."),
        },
    ),
    (
        "An entry of `waiting`",
        {
            "demand": ("text", "The id of the demand or request."),
            "count": ("number", "How many of its tasks wait."),
            "code": ("text", "The nearest reason: a [reason code](reasons.md)."),
            "why": ("text", "The same as a sentence."),
            "groups": ("mapping", "For each group: `code` and `why` of the first check that fails."),
            "unblocks": (
                "list",
                (
                    "Changes that would place the demand, at most 5, the smallest first. May be empty: the number of "
                    "what-if plans is limited."
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
                    "The same for programs: each entry has `path`, a list of keys of the scenario (a demand or request "
                    "is named by its id), and `value`, the new value. A `value` of null means to remove the key."
                ),
            ),
            "hourly_cost": ("number", "Dollars per hour that the change adds, as the cost ceiling counts them."),
        },
    ),
)
