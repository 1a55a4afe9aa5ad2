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
            "The mark of its machines at their provider, with the id of the journal: lower-case letters, digits and "
            "dashes. Two clusters on one account need two names.",
        ),
        "max_nodes": Declared(
            whole(MOST), "Nodes over all groups, from queued until confirmed gone.", "nodes", "no limit"
        ),
        "max_hourly_cost": Declared(
            MONEY,
            "Dollars per hour: running, in flight and planned. Groups without a price count as 0.",
            "$/h",
            "no limit",
        ),
        "max_launching": Declared(
            whole(MOST), "Slices of all groups that may be in flight at once.", "slices", "no limit"
        ),
        "choose": Declared(
            one_of(STRATEGIES),
            "How the group of a new slice is chosen: `best-fit`, `rank` or `cheapest`. `cheapest` needs a price for "
            "every group.",
            default="`cheapest` if every group has a price, else `best-fit`",
        ),
        "effort": Declared(
            whole(MOST_EFFORT, low=1),
            "`cheapest` only: rounds of search for a cheaper mix. Rounds, not seconds, so that the same input gives "
            "the same plan.",
            "rounds",
        ),
        "own_machine_premium": Declared(
            share(0, MOST_APART),
            "`cheapest` only: single tasks get slices of their own, which can be given back one by one, as long as "
            "these cost at most this share more per hour than the one that they would share. 0: at equal cost. Its "
            "old name `apart` is read, too.",
            default="tasks share slices for the least gain",
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
            "A share above 0 and up to 1. The rule acts when less of the group is used, counted in its accelerator, "
            "else cpu, else its first resource by name.",
        ),
        "keep": Declared(whole(MOST_SLICES), "Slices to keep beyond what the work needs.", "slices"),
    },
)
UTILIZATION: Final = Form.of(
    "utilization",
    UtilizationTarget,
    {
        "percent": Declared(whole(100, low=1), "1 to 100: how many of the ready slices should be in use.", "%"),
        "delay": Declared(SPAN, "Seconds between mark and drain.", "s"),
        "spare_nodes": Declared(
            whole(MOST_SLICES), "Slices to keep beyond those in use, in addition to the percentage.", "slices"
        ),
        "resource": Declared(NAME, "What counts as use: a resource of the group.", default="any work"),
    },
)
SCALE_DOWN: Final = Form.of(
    "scale_down",
    ScaleDown,
    {
        "idle_timeout": Declared(
            SPAN,
            "Seconds without a task after which a ready slice is drained; the longest idle first.",
            "s",
            "off",
        ),
        "low_utilization": Declared(
            section("low_utilization", LOW_UTILIZATION),
            "Drain when little of the group is used and no waiting demand would fit on it.",
            default="off",
        ),
        "utilization": Declared(
            section("utilization", UTILIZATION),
            "Mark surplus empty slices, and drain them when their delay is over.",
            default="off",
        ),
        "consolidate": Declared(
            FLAG, "Drain a slice whose work fits elsewhere for less money; one move per plan and group. Needs prices."
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
            "When it ends. `backoff`: no launch before it, and from then on (or without it) one slice in flight at a "
            "time. `quota_exceeded`: no launch before it, available from then on; without it, no launch at all.",
            default="open",
        ),
        "why": Declared(TEXT_VALUE, "A note that is repeated in the reasons."),
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
        "max": Declared(whole(MOST_SLICES), "Slices of all its groups together at most. At least `min`.", "slices"),
        "min": Declared(
            whole(MOST_SLICES),
            "Slices of all its groups together at least, busy or not. Missing ones are bought in the group that is "
            "available and has the lowest price (under `rank` and `best-fit`: the lowest rank, then price).",
            "slices",
        ),
        "spare": Declared(
            whole(MOST_SLICES), "Free slices of all its groups together that are kept ready beyond demand.", "slices"
        ),
        "rank": Declared(
            whole(MOST), "The rank of each of its groups that has none of its own.", default="100", field=None
        ),
    },
)
GROUP: Final = Form.of(
    "a group",
    Group,
    {
        "resources": Declared(RESOURCES, "What one node has. Any names; `gpu` and `tpu` are whole devices."),
        "labels": Declared(LABELS, "Labels of its nodes, as text."),
        "taints": Declared(list_of("taints", TAINT), "Taints of its nodes: only work that tolerates them runs there."),
        "hosts": Declared(whole(MOST_HOSTS, low=1), "Nodes per slice.", "nodes"),
        "min": Declared(whole(MOST_SLICES), "Slices that are kept at least, busy or not.", "slices"),
        "max": Declared(
            whole(MOST_SLICES),
            "Slices at most, from queued until confirmed gone. At least `min`. In a family the default is its `max`.",
            "slices",
            "required without `family`",
        ),
        "spare": Declared(
            whole(MOST_SLICES), "Free slices (no task, nothing placed) that are kept ready beyond demand.", "slices"
        ),
        "family": Declared(
            ValueType(lambda reader, at, value: reader.family_name(at, value), {"type": "string"}, "str"),
            "The family whose `min`, `max` and `spare` hold over all its groups together.",
            default="none",
        ),
        "fallback": Declared(
            FLAG, "Whether it is bought only where no other group of its family is available. Needs `family`."
        ),
        "rank": Declared(
            whole(MOST),
            "Under `rank` the group with the lowest number is taken first; elsewhere it breaks ties.",
            default="100, or that of its family",
        ),
        "price": Declared(MONEY, "Dollars per hour for one slice, as a number or as text such as `$1.25`.", "$/h"),
        "preemptible": Declared(
            FLAG, "Whether the provider may take it back. Its nodes have it as the label `preemptible`."
        ),
        "max_launching": Declared(
            whole(MOST), "Slices of this group that may be in flight at once.", "slices", "no limit"
        ),
        "scale_down": Declared(
            section("scale_down", SCALE_DOWN), "The rules that may release its slices.", default="never shrinks"
        ),
        "availability": Declared(
            section("availability", AVAILABILITY), "The known state of the provider's stock.", default="available"
        ),
        "protected": Declared(SLICE_IDS, "Ids of slices that are never released."),
        "boot_seconds": Declared(SPAN, "Time until a new slice can take work; consolidation counts it as cost.", "s"),
        "frozen": Declared(FLAG, "An operator has frozen it: nothing is launched in it and nothing of it is released."),
    },
)

# -- slices --------------------------------------------------------------------------------------------------------

NODE: Final = Form.of(
    "a node",
    Node,
    {
        "id": Declared(NAME, "Its name, unique among all nodes.", default="`SLICE/INDEX`"),
        "used": Declared(USED, "What the work there uses. At most what a node of the group has.", default="nothing"),
        "tasks": Declared(whole(MOST_TASKS), "How many tasks run there.", default="1 if something is used, else 0"),
        "idle_since": Declared(
            INSTANT, "The time since which nothing runs there.", default="`since` of the slice, else `now`"
        ),
        "labels": Declared(LABELS, "Labels of its own; they replace those of its group with the same key."),
        "healthy": Declared(FLAG, "An unhealthy node takes no work, and its slice does not count as spare."),
        "classes": Declared(CLASS_COUNTS, "How many tasks of each class run there, such as `{web: 2}`."),
    },
)
SLICE: Final = Form.of(
    "a slice",
    Slice,
    {
        "id": Declared(NAME, "Its name, unique among all slices. Must not start with `new:`."),
        "group": Declared(
            NAME, "The name of its group. If the file has no such group, the slice is drained; that is no mistake."
        ),
        "state": Declared(
            one_of(STATES),
            "A state of [the life of a slice](lifecycle.md), in lower or upper case.",
            field=None,
            default=REQUIRED,
        ),
        "since": Declared(INSTANT, "When it entered the state.", default="unknown"),
        "marked_until": Declared(
            INSTANT, "It is scheduled for release at that time (`utilization`).", default="not marked"
        ),
        "final": Declared(
            FLAG,
            "With `cordoned`, `draining` or `marked_until`: its workload cannot take that back. It takes no work and "
            "counts for the limits until it is gone.",
        ),
        "nodes": Declared(
            list_of("nodes", NODE),
            "Its nodes. A ready, cordoned or draining slice lists as many as its group has hosts; one that is missing "
            "is listed with `healthy: false`.",
            default="`hosts` nodes with nothing used",
            field=None,
        ),
        "hosts": Declared(
            whole(MOST_HOSTS),
            "Its hosts. Only for a slice whose group is not in the file.",
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
_BY: Final = "`node`, `slice`, or a label key: what is one domain. A node without the label is in none."
APART: Final = Form.of(
    "an apart constraint",
    Apart,
    {
        "from": Declared(NAME, "The class that is counted.", field="class_"),
        "by": Declared(NAME, _BY),
        "at_most": Declared(
            whole(MOST_TASKS), "Tasks of the class in one domain at most, this task included if it has the class."
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
            "How many more tasks of the class a domain may hold than the one that holds the fewest.",
        ),
        "min_domains": Declared(
            whole(MOST_TASKS, low=1), "With fewer eligible domains than this, the smallest number is taken as 0."
        ),
        "elsewhere": Declared(
            DOMAIN_COUNTS,
            "Domains on machines that no group owns, and how many tasks of the class each holds, such as "
            "`{zone-a: 2, zone-b: 0}`.",
        ),
    },
)
TOGETHER: Final = Form.of(
    "a together constraint",
    Together,
    {
        "with": Declared(
            NAME, "The class that must be there. The first task of the class itself may go anywhere.", field="class_"
        ),
        "by": Declared(NAME, _BY),
    },
)
_PLACING: Final = {
    "where": Declared(CONDITIONS, "Conditions that must hold.", default="anywhere"),
    "prefer": Declared(CONDITIONS, "Conditions that are preferred."),
    "tolerates": Declared(list_of("tolerations", TOLERATION), "Taints that it tolerates."),
    "any_of": Declared(
        ALTERNATIVES,
        "Lists of conditions, of which one must hold in addition to `where`. An earlier list is preferred to a later "
        "one before every other preference. An empty list matches all.",
        default="no alternatives",
    ),
    "classes": Declared(CLASSES, "Names that its tasks count as, for the constraints between tasks."),
    "apart": Declared(
        list_of("apart", APART), "The highest number of tasks of a class on one node, slice or label value."
    ),
    "spread": Declared(
        list_of("spread", SPREAD), "Tasks of a class in nearly equal numbers over nodes, slices or label values."
    ),
    "together": Declared(
        list_of("together", TOGETHER),
        "Only where a task of a class runs already, in one node, slice or label value.",
    ),
}
"""Where tasks may go, and how they lie to other tasks: keys of a demand and of each of its bundles."""
BUNDLE: Final = Form.of(
    "a bundle",
    Bundle,
    {
        "needs": Declared(NEEDS, "What one task needs."),
        "count": Declared(whole(MOST_TASKS), "How many equal tasks."),
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
            whole(MOST_TASKS), "How many equal tasks. 0 is the same as no demand.", default="1", field=None
        ),
        **_PLACING,
        "priority": Declared(
            ValueType(
                lambda reader, at, value: reader.integer(at, value, 0, low=-MOST * 10, high=MOST * 10),
                {"type": "integer", "minimum": -MOST * 10, "maximum": MOST * 10},
                "int",
            ),
            "Demand with a higher number is served first.",
        ),
        "since": Declared(
            INSTANT,
            "The time since which it waits. It is shown in reasons and has no effect on the plan.",
            default="unknown",
        ),
        "gang": Declared(
            one_of(GANGS),
            "All tasks start or none. `any`: anywhere. `same-node`: all on one node. `same-slice`: on whole slices, "
            "one task per host. `spread`: each on a node of its own. A request with `bundles` may leave it out.",
            default="single tasks",
            field=None,
        ),
        "deadline": Declared(INSTANT, "Gangs only: from that time on it is no longer served.", default="none"),
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
        "now": Declared(INSTANT, "The time of the snapshot, in seconds. All other times are compared with it."),
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
        "demands": Declared(list_of("demands", DEMAND), "Work that has no place yet.", field=None, default="none"),
        "requests": Declared(
            list_of("demands", REQUEST),
            "Standing requests: capacity that must exist, busy or not. The keys of a demand.",
            field=None,
            default="none",
        ),
    },
)
