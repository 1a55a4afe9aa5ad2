"""This table declares the keys of a scenario, each once, with its type, its unit and its meaning.

The default of a key is that of its field in ``windlass.core.model``. Everything else follows from these tables: the
reader, the writer, the reference pages, the JSON Schema and the keywords of the builders.
"""

from __future__ import annotations

import re
from typing import Final

from windlass.core.model.conditions import EFFECTS, Taint, Toleration
from windlass.core.model.constraints import Apart, Spread, Together
from windlass.core.model.lifecycle import State
from windlass.core.model.snapshot import (
    Availability,
    Bundle,
    Cluster,
    Demand,
    Family,
    Gang,
    Group,
    LowUtilization,
    Node,
    ScaleDown,
    Slice,
    Snapshot,
    UtilizationTarget,
)

from .declarations import REQUIRED, Declared, Form, ValueType
from .value_types import (
    ALTERNATIVES,
    CLASS_COUNTS,
    CLASSES,
    CONDITIONS,
    DOMAIN_COUNTS,
    FLAG,
    INSTANT,
    LABELS,
    MONEY,
    NAME,
    NEEDS,
    RESOURCES,
    SLICE_IDS,
    SPAN,
    TEXT_VALUE,
    USED,
    list_of,
    one_of,
    section,
    share,
    whole,
)

# Larger numbers are typing errors, and would only cost time and memory before they fail.
MOST_HOSTS: Final = 4096
MOST_DEVICES: Final = 1024
MOST_SLICES: Final = 1_000_000
MOST_TASKS: Final = 10_000_000
MOST_GANG: Final = 100_000
MOST_EFFORT: Final = 1000
MOST_APART: Final = 10
"""Ten times the price: with more, the price no longer matters."""
MOST: Final = 10**9
"""For numbers that are only compared: ranks, priorities, nodes of the cluster."""

STATES: Final = tuple(State)
STRATEGIES: Final = ("best-fit", "rank", "cheapest")
GANGS: Final = tuple(Gang)
STOCK: Final = ("available", "backoff", "quota_exceeded")
CLUSTER_NAME: Final = re.compile(r"[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?")
"""What every provider accepts in a tag or label."""

# -- the cluster and its groups ------------------------------------------------------------------------------------

CLUSTER: Final = Form.of(
    "the cluster",
    Cluster,
    {
        "name": Declared(
            ValueType(
                lambda reader, at, value: reader.cluster_name(at, value),
                {"type": "string", "pattern": f"^{CLUSTER_NAME.pattern}$"},
                "str",
            ),
            "The name of the cluster: lower-case letters, digits and dashes. Machines are tagged with it and with the "
            "id of the journal. Two clusters on one account need different names.",
        ),
        "max_nodes": Declared(
            whole(MOST),
            "The highest number of nodes over all groups. A node counts from queued until it is confirmed gone.",
            "nodes",
            "no limit",
        ),
        "max_hourly_cost": Declared(
            MONEY,
            "The highest cost of all machines, running, in flight and planned, in dollars per hour. Groups without a "
            "price count as 0.",
            "$/h",
            "no limit",
        ),
        "max_launching": Declared(
            whole(MOST), "The highest number of slices in flight, over all groups.", "slices", "no limit"
        ),
        "choose": Declared(
            one_of(STRATEGIES),
            "How the group of a new slice is chosen: `best-fit`, `rank` or `cheapest`. `cheapest` needs a price for "
            "every group.",
            default="`cheapest` if every group has a price, else `best-fit`",
        ),
        "effort": Declared(
            whole(MOST_EFFORT, low=1),
            "`cheapest` only: how many rounds the search for a cheaper mix takes. It is counted in rounds and not in "
            "seconds, so that the same input gives the same plan.",
            "rounds",
        ),
        "own_machine_premium": Declared(
            share(0, MOST_APART),
            "`cheapest` only: the highest extra cost per hour, as a fraction, for giving each task its own slice "
            "instead of one that several tasks share. Such slices can be released one by one. `0`: only at equal "
            "cost. The old name `apart` is accepted.",
            default="off: tasks share slices",
            field="apart",
            old_name="apart",
        ),
    },
)
LOW_UTILIZATION: Final = Form.of(
    "low_utilization",
    LowUtilization,
    {
        "below": Declared(
            share(0, 1, above=True),
            "A share above 0 and up to 1. The rule applies when less than this share of the group is used. The share "
            "is that of its accelerator, else of `cpu`, else of its first resource by name.",
        ),
        "keep": Declared(whole(MOST_SLICES), "How many slices to keep beyond those that the work needs.", "slices"),
    },
)
UTILIZATION: Final = Form.of(
    "utilization",
    UtilizationTarget,
    {
        "percent": Declared(whole(100, low=1), "1 to 100: the share of ready slices that should be in use.", "%"),
        "delay": Declared(SPAN, "The time between the mark and the drain of a slice.", "s"),
        "spare_nodes": Declared(whole(MOST_SLICES), "How many slices to keep at least beyond those in use.", "slices"),
        "resource": Declared(NAME, "The resource whose use counts; it must be one of the group.", default="any work"),
    },
)
SCALE_DOWN: Final = Form.of(
    "scale_down",
    ScaleDown,
    {
        "idle_timeout": Declared(
            SPAN,
            "The time without a task after which a ready slice is drained. The longest idle slice goes first.",
            "s",
            "off",
        ),
        "low_utilization": Declared(
            section("low_utilization", LOW_UTILIZATION),
            "Drain slices when little of the group is used and no waiting demand would fit on it.",
            default="off",
        ),
        "utilization": Declared(
            section("utilization", UTILIZATION),
            "Mark surplus empty slices, and drain them when their delay is over.",
            default="off",
        ),
        "consolidate": Declared(
            FLAG, "Drain a slice whose work fits elsewhere for less money, one per plan and group. Needs prices."
        ),
    },
)
AVAILABILITY: Final = Form.of(
    "availability",
    Availability,
    {
        "state": Declared(one_of(STOCK), "`available`, `backoff` or `quota_exceeded`.", default=REQUIRED),
        "until": Declared(
            INSTANT,
            "The end of the state; nothing is launched before it. After a `backoff`, or without an end, one slice at a "
            "time may be in flight. After `quota_exceeded` the group is available; without an end nothing is launched.",
            default="no end",
        ),
        "why": Declared(TEXT_VALUE, "A note that appears in the reasons."),
    },
)
TAINT: Final = Form.of(
    "a taint",
    Taint,
    {
        "key": Declared(NAME, "Its name."),
        "value": Declared(TEXT_VALUE, "Its value, as text."),
        "effect": Declared(
            one_of(EFFECTS),
            "`NoSchedule` and `NoExecute` must be tolerated; `PreferNoSchedule` counts like an unmet preference.",
        ),
    },
)
FAMILY: Final = Form.of(
    "a family",
    Family,
    {
        "max": Declared(whole(MOST_SLICES), "The highest number of slices of all its groups together.", "slices"),
        "min": Declared(
            whole(MOST_SLICES),
            "The lowest number of slices of all its groups together, busy or not. They are bought in the available "
            "group with the lowest price (under `rank` and `best-fit`: the lowest rank, then the lowest price).",
            "slices",
        ),
        "spare": Declared(
            whole(MOST_SLICES), "How many free slices of all its groups are kept ready beyond demand.", "slices"
        ),
        "rank": Declared(whole(MOST), "The rank of its groups that have no `rank`.", default="100", field=None),
    },
)
GROUP: Final = Form.of(
    "a group",
    Group,
    {
        "resources": Declared(
            RESOURCES, "The resources of one node. Names are free; `gpu` and `tpu` are whole devices."
        ),
        "labels": Declared(LABELS, "Labels of its nodes, as text."),
        "taints": Declared(list_of("taints", TAINT), "Taints of its nodes: only work that tolerates them runs there."),
        "hosts": Declared(whole(MOST_HOSTS, low=1), "Nodes per slice.", "nodes"),
        "min": Declared(whole(MOST_SLICES), "The lowest number of slices, busy or not.", "slices"),
        "max": Declared(
            whole(MOST_SLICES),
            "The highest number of slices. A slice counts from queued until it is confirmed gone. In a family, the "
            "default is the `max` of the family.",
            "slices",
            "required without `family`",
        ),
        "spare": Declared(
            whole(MOST_SLICES), "How many free slices (without tasks) are kept ready beyond demand.", "slices"
        ),
        "family": Declared(
            ValueType(lambda reader, at, value: reader.family_name(at, value), {"type": "string"}, "str"),
            "The family of the group. `min`, `max` and `spare` of a family apply to all its groups together.",
            default="none",
        ),
        "fallback": Declared(FLAG, "Buy this group only if no other group of its family is available. Needs `family`."),
        "rank": Declared(
            whole(MOST),
            "With the strategy `rank`, the group with the lowest number is chosen first. With others it breaks ties.",
            default="100, or that of its family",
        ),
        "price": Declared(MONEY, "Dollars per hour for one slice, as a number or as text such as `$1.25`.", "$/h"),
        "preemptible": Declared(
            FLAG, "Whether the provider may preempt it (spot). Its nodes have this value as the label `preemptible`."
        ),
        "max_launching": Declared(whole(MOST), "The highest number of its slices in flight.", "slices", "no limit"),
        "scale_down": Declared(
            section("scale_down", SCALE_DOWN), "The rules that release its slices.", default="never shrinks"
        ),
        "availability": Declared(
            section("availability", AVAILABILITY),
            "Whether the provider can launch machines of it now.",
            default="available",
        ),
        "protected": Declared(SLICE_IDS, "Ids of slices that are never released."),
        "boot_seconds": Declared(
            SPAN, "How long a new slice takes until it can run work. Consolidation counts this time as cost.", "s"
        ),
        "frozen": Declared(FLAG, "An operator has frozen it: none of its slices are launched or released."),
    },
)

# -- slices --------------------------------------------------------------------------------------------------------

NODE: Final = Form.of(
    "a node",
    Node,
    {
        "id": Declared(NAME, "Its name, unique among all nodes.", default="`SLICE/INDEX`"),
        "used": Declared(
            USED, "The resources that its tasks use; at most what a node of the group has.", default="nothing"
        ),
        "tasks": Declared(whole(MOST_TASKS), "How many tasks run on it.", default="1 if something is used, else 0"),
        "idle_since": Declared(
            INSTANT, "Since when no task has run on it.", default="`since` of the slice, else `now`"
        ),
        "labels": Declared(LABELS, "Labels of this node. They override the labels of its group with the same key."),
        "healthy": Declared(FLAG, "An unhealthy node takes no work, and its slice does not count as spare."),
        "classes": Declared(CLASS_COUNTS, "How many tasks of each class run on it, such as `{web: 2}`."),
    },
)
SLICE: Final = Form.of(
    "a slice",
    Slice,
    {
        "id": Declared(NAME, "Its name, unique among all slices. Must not start with `new:`."),
        "group": Declared(NAME, "The name of its group. If the file has no such group, the slice is drained."),
        "state": Declared(
            one_of(STATES),
            "A state of [the life of a slice](lifecycle.md), in lower or upper case.",
            field=None,
            default=REQUIRED,
        ),
        "since": Declared(INSTANT, "Since when it has been in this state.", default="unknown"),
        "marked_until": Declared(
            INSTANT, "The time at which a slice that `utilization` has marked is drained.", default="not marked"
        ),
        "final": Declared(
            FLAG,
            "With `cordoned`, `draining` or `marked_until`: its workload cannot cancel the drain. The slice takes no "
            "work, and counts for the limits until it is gone.",
        ),
        "nodes": Declared(
            list_of("nodes", NODE),
            "Its nodes. A ready, cordoned or draining slice lists as many as its group has hosts; list a missing node "
            "with `healthy: false`.",
            default="`hosts` nodes with nothing used",
            field=None,
        ),
        "hosts": Declared(
            whole(MOST_HOSTS),
            "The number of its hosts. Only for a slice whose group is not in the file.",
            "nodes",
            "as many as it has `nodes`",
        ),
        "price": Declared(MONEY, "Dollars per hour. Only for a slice whose group is not in the file.", "$/h"),
    },
)

# -- demand --------------------------------------------------------------------------------------------------------

TOLERATION: Final = Form.of(
    "a toleration",
    Toleration,
    {
        "key": Declared(
            TEXT_VALUE, "The taint's name. May be left out with `operator: Exists` only.", default="every key"
        ),
        "operator": Declared(one_of(("Equal", "Exists")), "`Equal` compares the value, `Exists` does not."),
        "value": Declared(TEXT_VALUE, "With `Equal`: the taint's value."),
        "effect": Declared(one_of(EFFECTS), "The taint's effect.", default="every effect"),
    },
)
_BY: Final = "The domain: `node`, `slice`, or a label key. A node without the label is in no domain."
APART: Final = Form.of(
    "an apart constraint",
    Apart,
    {
        "from": Declared(NAME, "The class that is counted.", field="class_"),
        "by": Declared(NAME, _BY),
        "at_most": Declared(
            whole(MOST_TASKS),
            "The highest number of tasks of the class in one domain, with this task if it has the class.",
        ),
    },
)
SPREAD: Final = Form.of(
    "a spread constraint",
    Spread,
    {
        "of": Declared(NAME, "The class that is counted."),
        "over": Declared(NAME, _BY),
        "max_skew": Declared(
            whole(MOST_TASKS, low=1),
            "How many more tasks of the class a domain may hold than the domain with the fewest.",
        ),
        "min_domains": Declared(
            whole(MOST_TASKS, low=1),
            "If there are fewer eligible domains than this, the domain with the fewest tasks counts as empty.",
        ),
        "elsewhere": Declared(
            DOMAIN_COUNTS,
            "Domains of machines that belong to no group, with the number of tasks of the class in each, such as "
            "`{zone-a: 2, zone-b: 0}`.",
        ),
    },
)
TOGETHER: Final = Form.of(
    "a together constraint",
    Together,
    {
        "with": Declared(
            NAME,
            "The class that must be present. The first task of the class may be placed in any domain.",
            field="class_",
        ),
        "by": Declared(NAME, _BY),
    },
)
_PLACING: Final = {
    "where": Declared(CONDITIONS, "Conditions on node labels that must hold.", default="anywhere"),
    "prefer": Declared(CONDITIONS, "Conditions on node labels that are preferred."),
    "tolerates": Declared(list_of("tolerations", TOLERATION), "Taints that it tolerates."),
    "any_of": Declared(
        ALTERNATIVES,
        "Lists of conditions. One list must hold, in addition to `where`. An earlier list is preferred to a later one, "
        "and this counts before every other preference. An empty list matches every node.",
        default="no alternatives",
    ),
    "classes": Declared(CLASSES, "The classes of its tasks, for constraints between tasks."),
    "apart": Declared(
        list_of("apart", APART), "Limits on the number of tasks of a class per node, slice or label value."
    ),
    "spread": Declared(
        list_of("spread", SPREAD), "Spread the tasks of a class evenly over nodes, slices or label values."
    ),
    "together": Declared(
        list_of("together", TOGETHER),
        "Place tasks only on a node, slice or label value where a task of a class runs.",
    ),
}
"""Where tasks may go, and how they lie to other tasks: keys of a demand and of each of its bundles."""
BUNDLE: Final = Form.of(
    "a bundle",
    Bundle,
    {
        "needs": Declared(NEEDS, "What one task needs."),
        "count": Declared(whole(MOST_TASKS), "The number of equal tasks."),
        **{
            name: one._replace(meaning=f"{one.meaning} For this bundle, in addition to those of the gang.")
            for name, one in _PLACING.items()
        },
    },
)
DEMAND: Final = Form.of(
    "a demand",
    Demand,
    {
        "id": Declared(NAME, "Its name, unique among all demands and requests."),
        "needs": Declared(NEEDS, "What one task needs.", default="required without `bundles`", field=None),
        "count": Declared(
            whole(MOST_TASKS), "The number of equal tasks. 0 is the same as no demand.", default="1", field=None
        ),
        **_PLACING,
        "priority": Declared(
            ValueType(
                lambda reader, at, value: reader.integer(at, value, 0, low=-MOST * 10, high=MOST * 10),
                {"type": "integer", "minimum": -MOST * 10, "maximum": MOST * 10},
                "int",
            ),
            "Demand with a higher priority is served first.",
        ),
        "since": Declared(
            INSTANT,
            "Since when it waits. It is shown in reasons and does not change the plan.",
            default="unknown",
        ),
        "gang": Declared(
            one_of(GANGS),
            "All tasks start together, or none. `any`: on any nodes. `same-node`: all on one node. `same-slice`: on "
            "whole slices, one task per host. `spread`: each on a different node. Optional in a request with "
            "`bundles`.",
            default="single tasks",
            field=None,
        ),
        "deadline": Declared(INSTANT, "Gangs only: the time from which on it is no longer served.", default="none"),
        "bundles": Declared(
            list_of("bundles", BUNDLE),
            "The tasks of a gang, instead of `needs` and `count`.",
            default="required with `gang`",
            field=None,
        ),
    },
)
REQUEST: Final = DEMAND.replace("a request", without=("deadline",))

# -- the whole file ------------------------------------------------------------------------------------------------

SCENARIO: Final = Form.of(
    "a scenario",
    Snapshot,
    {
        "now": Declared(INSTANT, "The time of the snapshot, in seconds. Other times are compared with it."),
        "cluster": Declared(
            section("cluster", CLUSTER), "Limits and rules for all groups together.", default="no limits", field=None
        ),
        "families": Declared(
            section("families", FAMILY),
            "Limits over several groups together, by name; a group joins with `family`.",
            default="none",
            field=None,
        ),
        "groups": Declared(
            section("groups", GROUP),
            "The kinds of machine that can be bought, by name. May be empty: `{}`.",
            default=REQUIRED,
            field=None,
        ),
        "slices": Declared(
            list_of("slices", SLICE), "The machines that exist or are in flight.", field=None, default="none"
        ),
        "demands": Declared(list_of("demands", DEMAND), "The work that waits.", field=None, default="none"),
        "requests": Declared(
            list_of("demands", REQUEST),
            "Standing requests: capacity that must exist, busy or not. They have the keys of a demand.",
            field=None,
            default="none",
        ),
    },
)
