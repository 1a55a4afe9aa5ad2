"""What each part of a scenario may hold, what each key means, and how large its numbers may be."""

from __future__ import annotations

import re
from typing import Final

from windlass.core.model.lifecycle import State
from windlass.core.model.snapshot import Gang

from .reader import REQUIRED, Form, Key

# Larger numbers are typing errors, and would only cost time and memory before they fail.
MOST_HOSTS: Final = 4096
MOST_DEVICES: Final = 1024
MOST_SLICES: Final = 1_000_000
MOST_TASKS: Final = 10_000_000
MOST_GANG: Final = 100_000
MOST_EFFORT: Final = 1000
MOST_APART: Final = 10
"""Times: beyond that it is no longer a matter of price."""
MOST: Final = 10**9
"""For numbers that are only compared: ranks, priorities, nodes of the cluster."""

SCENARIO: Final = Form(
    "a scenario",
    {
        "now": Key("0", "The time of the snapshot, in seconds. All other times are compared with it."),
        "cluster": Key("no limits", "What holds over all groups."),
        "groups": Key(REQUIRED, "The kinds of machine that can be bought, by name. May be empty: `{}`."),
        "slices": Key("none", "What exists or is on its way."),
        "demands": Key("none", "Work that has no place yet."),
        "requests": Key("none", "Standing requests: room that must exist, busy or not. The keys of a demand."),
    },
)
CLUSTER_NAME: Final = re.compile(r"[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?")
"""What every provider takes in a tag or label."""
CLUSTER: Final = Form(
    "the cluster",
    {
        "name": Key(
            "`windlass`",
            "What machines are marked with at their provider, beside the id of the journal: lower-case letters, digits "
            "and dashes. Two clusters on one account need two names.",
        ),
        "max_nodes": Key("no limit", "Nodes over all groups, from queued until confirmed gone.", "nodes"),
        "max_hourly_cost": Key(
            "no limit", "Dollars per hour: running, in flight and planned. Groups without a price count as 0.", "$/h"
        ),
        "max_launching": Key("no limit", "Slices of all groups that may be in flight at once.", "slices"),
        "choose": Key(
            "`cheapest` if every group has a price, else `best-fit`",
            (
                "How the group of a new slice is chosen: `best-fit`, `rank` or `cheapest`. `cheapest` needs a price "
                "for every group."
            ),
        ),
        "effort": Key(
            "1", "`cheapest` only: rounds of work for a cheaper mix. Never seconds: same input, same plan.", "rounds"
        ),
        "own_machine_premium": Key(
            "tasks share slices for the least gain",
            (
                "`cheapest` only: single tasks get slices of their own, which can be given back one by one, as long as "
                "these cost at most this share more per hour than the one that they would share. 0: at equal cost. "
                "Its old name `apart` is read, too."
            ),
        ),
    },
)
GROUP: Final = Form(
    "a group",
    {
        "resources": Key(REQUIRED, "What one node has. Any names; `gpu` and `tpu` are whole devices."),
        "labels": Key("none", "What its nodes carry, as text."),
        "taints": Key("none", "What keeps work off its nodes unless the work tolerates it."),
        "hosts": Key("1", "Nodes per slice.", "nodes"),
        "min": Key("0", "Slices that are held at the least, busy or not.", "slices"),
        "max": Key(REQUIRED, "Slices at the most, from queued until confirmed gone. At least `min`.", "slices"),
        "spare": Key("0", "Free slices (no task, nothing placed) that are held ready beyond demand.", "slices"),
        "rank": Key("100", "The lower, the earlier under `rank`; breaks ties elsewhere. 0 comes before 1."),
        "price": Key("none", "Dollars per hour for one slice, as a number or as text such as `$1.25`.", "$/h"),
        "preemptible": Key(
            "false", "Whether the provider may take it back. Its nodes carry it as the label `preemptible`."
        ),
        "max_launching": Key("no limit", "Slices of this group that may be in flight at once.", "slices"),
        "scale_down": Key("never shrinks by itself", "The rules that may release its slices."),
        "availability": Key("available", "What is believed about the provider's stock."),
        "protected": Key("none", "Ids of slices that are never released."),
        "boot_seconds": Key("300", "What a new slice takes before it is of use; consolidation counts it as cost.", "s"),
        "frozen": Key("false", "By an operator's order nothing is launched in it and nothing of it is released."),
    },
)
SCALE_DOWN: Final = Form(
    "scale_down",
    {
        "idle_timeout": Key(
            "off", "Seconds without a task after which a ready slice is drained; the longest idle first.", "s"
        ),
        "low_utilization": Key("off", "Drain when little of the group is used and no demand waits that it could hold."),
        "utilization": Key("off", "Mark surplus empty slices, and drain them when their delay is over."),
        "consolidate": Key(
            "false",
            ("Drain a slice whose work fits elsewhere for less money; one move per plan and group. Needs prices."),
        ),
    },
)
LOW_UTILIZATION: Final = Form(
    "low_utilization",
    {
        "below": Key(
            REQUIRED,
            (
                "A share above 0 and up to 1. The rule acts when less of the group is used, counted in its "
                "accelerator, else cpu, else its first resource by name."
            ),
        ),
        "keep": Key("0", "Slices to keep beyond what the work needs.", "slices"),
    },
)
UTILIZATION: Final = Form(
    "utilization",
    {
        "percent": Key(REQUIRED, "1 to 100: how many of the ready slices should be in use.", "%"),
        "delay": Key(REQUIRED, "Seconds between mark and drain.", "s"),
        "spare_nodes": Key("0", "Slices to keep beyond those in use, whatever the percentage says.", "slices"),
        "resource": Key("any work", "What counts as use: a resource of the group."),
    },
)
AVAILABILITY: Final = Form(
    "availability",
    {
        "state": Key(REQUIRED, "`available`, `backoff` or `quota_exceeded`."),
        "until": Key(
            "open",
            (
                "When it ends. `backoff`: no launch before it, and from then on (or without it) one slice in flight "
                "at a time. `quota_exceeded`: no launch before it, available from then on; without it, no launch at "
                "all."
            ),
        ),
        "why": Key("empty", "A note that is repeated in the reasons."),
    },
)
TAINT: Final = Form(
    "a taint",
    {
        "key": Key(REQUIRED, "Its name."),
        "value": Key("empty", "Its value, as text."),
        "effect": Key(
            "`NoSchedule`",
            ("`NoSchedule` and `NoExecute` must be tolerated; `PreferNoSchedule` counts like an unmet preference."),
        ),
    },
)
TOLERATION: Final = Form(
    "a toleration",
    {
        "key": Key("every key", "The taint's name. May be left out with `operator: Exists` only."),
        "operator": Key("`Equal`", "`Equal` compares the value, `Exists` does not."),
        "value": Key("empty", "With `Equal`: the taint's value."),
        "effect": Key("every effect", "The taint's effect."),
    },
)
SLICE: Final = Form(
    "a slice",
    {
        "id": Key(REQUIRED, "Its name, once over all slices. Must not start with `new:`."),
        "group": Key(
            REQUIRED, "The name of its group. One that is not in the file is no mistake: the slice is drained."
        ),
        "state": Key(REQUIRED, "A state of [the life of a slice](lifecycle.md), in small or in capital letters."),
        "since": Key("unknown", "When it entered the state."),
        "marked_until": Key("not marked", "It is scheduled for release at that time (`utilization`)."),
        "final": Key(
            "false",
            (
                "With `cordoned`, `draining` or `marked_until`: its workload cannot take that back. It offers nothing "
                "and counts for the limits until it is gone."
            ),
        ),
        "nodes": Key(
            "`hosts` nodes with nothing used",
            (
                "Its nodes. A ready, cordoned or draining slice lists as many as its group has hosts; one that is "
                "missing is listed with `healthy: false`."
            ),
        ),
        "hosts": Key("as many as it has `nodes`", "Of a slice whose group is not in the file: its hosts.", "nodes"),
        "price": Key("0", "Of a slice whose group is not in the file: dollars per hour.", "$/h"),
    },
)
NODE: Final = Form(
    "a node",
    {
        "id": Key("`SLICE/INDEX`", "Its name, once over all nodes."),
        "used": Key("nothing", "What runs there uses. At most what a node of the group has."),
        "tasks": Key("1 if something is used, else 0", "How many tasks run there."),
        "idle_since": Key("`since` of the slice, else `now`", "Since when nothing runs there."),
        "labels": Key("none", "Labels of its own, over those of its group."),
        "healthy": Key("true", "An unhealthy node offers nothing, and its slice does not count as spare."),
        "classes": Key("none", "How many tasks of each class run there, such as `{web: 2}`."),
    },
)
DEMAND: Final = Form(
    "a demand",
    {
        "id": Key(REQUIRED, "Its name, once over all demands and requests."),
        "needs": Key("required without `bundles`", "What one task needs."),
        "count": Key("1", "How many equal tasks. 0 is the same as no demand."),
        "where": Key("anywhere", "Conditions that must hold."),
        "prefer": Key("none", "Conditions that are nice to have."),
        "tolerates": Key("none", "Taints that it puts up with."),
        "any_of": Key(
            "no alternatives",
            (
                "Lists of conditions, of which one must hold beside `where`. An earlier list is preferred to a later "
                "one before every other preference. An empty list matches all."
            ),
        ),
        "classes": Key("none", "Names that its tasks count as, for the constraints between tasks."),
        "apart": Key("none", "At most so many tasks of a class in one node, slice or label value."),
        "spread": Key("none", "Tasks of a class in nearly equal numbers over nodes, slices or label values."),
        "together": Key("none", "Only where a task of a class is already, in one node, slice or label value."),
        "priority": Key("0", "Higher is served first."),
        "since": Key("unknown", "Since when it waits; told in the reasons, without effect on the plan."),
        "gang": Key(
            "single tasks",
            (
                "All start or none. `any`: anywhere. `same-node`: all on one node. `same-slice`: on whole slices, one "
                "task per host. `spread`: each on a node of its own. A request with `bundles` may leave it out."
            ),
        ),
        "deadline": Key("none", "Gangs only: from that time on it is not served any more."),
        "bundles": Key("required with `gang`", "The tasks of a gang, instead of `needs` and `count`."),
    },
)
REQUEST: Final = DEMAND.replace("a request", without=("deadline",))
BUNDLE: Final = Form(
    "a bundle",
    {
        "needs": Key(REQUIRED, "What one task needs."),
        "count": Key("1", "How many equal tasks."),
        **{
            name: Key(key.default, f"{key.meaning} For this bundle, beside those of the gang.")
            for name, key in DEMAND.keys.items()
            if name in ("where", "prefer", "tolerates", "any_of", "classes", "apart", "spread", "together")
        },
    },
)
_BY: Final = "`node`, `slice`, or a label key: what is one domain. A node without the label is in none."
APART: Final = Form(
    "an apart constraint",
    {
        "from": Key(REQUIRED, "The class that is counted."),
        "by": Key(REQUIRED, _BY),
        "at_most": Key("1", "Tasks of the class that a domain may hold, the task itself included if it has the class."),
    },
)
SPREAD: Final = Form(
    "a spread constraint",
    {
        "of": Key(REQUIRED, "The class that is counted."),
        "over": Key(REQUIRED, _BY),
        "max_skew": Key("1", "How many more tasks of the class a domain may hold than the one that holds the fewest."),
        "min_domains": Key("1", "With fewer eligible domains than this, the smallest number is taken as 0."),
    },
)
TOGETHER: Final = Form(
    "a together constraint",
    {
        "with": Key(REQUIRED, "The class that must be there. The first task of the class itself may go anywhere."),
        "by": Key(REQUIRED, _BY),
    },
)

STATES: Final = tuple(State)
STRATEGIES: Final = ("best-fit", "rank", "cheapest")
GANGS: Final = tuple(Gang)
