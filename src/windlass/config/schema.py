"""This module declares the settings of a configuration, for the reader and the reference.

A ``Setting`` says how its value is read (its kind), what it is when it is left out, in which unit, and what it means.
A default is written as it would be in the file, and goes the same way as a given value. Settings that a scenario file
has too (``cluster`` and ``groups``) are in ``windlass.scenario.schema``; ``reference`` combines both.
"""

from __future__ import annotations

from typing import Final

from windlass.control.settings import GroupSettings, Leadership, Policy, Settings
from windlass.scenario.declarations import REQUIRED, Declared, Form, Key, ValueType
from windlass.scenario.schema import CLUSTER, GROUP
from windlass.scenario.value_types import whole
from windlass.setting_types import YEARS, Address, Duration, Flag, Name, Section, Setting, Share, SubSection, Whole

from .groups.offers import NOT_WITH_OFFERS

# -- policy --------------------------------------------------------------------------------------------------------

_POLICY = Policy()
"""The defaults. The table below adds bounds, units and descriptions."""


def _span(name: str, meaning: str, low: float = 1, high: float = YEARS) -> Setting:
    return Setting(name, Duration(low, high), getattr(_POLICY, name), "s", meaning)


INTERVAL: Final = Section(
    "evaluation_interval",
    (
        Setting(
            "min",
            Duration(low=0.01, high=3600),
            _POLICY.evaluation_interval.min,
            "s",
            "The shortest time between two plans.",
        ),
        Setting(
            "max",
            Duration(low=0.01, high=3600),
            _POLICY.evaluation_interval.max,
            "s",
            "The longest time between two plans, if nothing happens.",
        ),
    ),
)
BACKOFF: Final = Section(
    "backoff",
    (
        Setting(
            "factor",
            Share(below_one=True),
            _POLICY.backoff.factor,
            "",
            "Each failed launch, failed boot or preemption multiplies the health of its group by this.",
        ),
        Setting("window", Duration(low=1), _POLICY.backoff.window, "s", "How long a failure counts fully."),
        Setting(
            "heal",
            Duration(low=1),
            _POLICY.backoff.heal,
            "s",
            "The age from which on a failure no longer counts. Between `window` and this age its weight falls. At "
            "least `window`.",
        ),
        Setting("floor", Share(), _POLICY.backoff.floor, "", "The lowest health. One launch at a time is still tried."),
        Setting(
            "pause",
            Duration(low=0),
            _POLICY.backoff.pause,
            "s",
            "After a failure, nothing is launched for this time divided by the health of the group.",
        ),
        Setting(
            "quota_block",
            Duration(low=0),
            _POLICY.backoff.quota_block,
            "s",
            "How long nothing is launched after a quota error. A successful launch ends it.",
        ),
        Setting(
            "boot_pause",
            Duration(low=0),
            _POLICY.backoff.boot_pause,
            "s",
            "How long nothing is launched after a machine failed to boot.",
            absent="as `pause`",
        ),
        Setting(
            "grows_after_errors",
            Flag(),
            _POLICY.backoff.grows_after_errors,
            "",
            "Whether the pause also grows with errors other than stock-outs and quota errors.",
        ),
    ),
)
POLICY: Final = Section(
    "policy",
    (
        SubSection("evaluation_interval", INTERVAL, "How often a plan is made."),
        _span(
            "observe_timeout",
            "How long the workload or a provider may take to answer, and how long its last answer is used. After that "
            "its state is unknown.",
            low=0.1,
            high=3600,
        ),
        _span(
            "call_timeout",
            "How long a call to a provider or the workload may take. What an unfinished call has done is seen in later "
            "observations.",
            0.1,
        ),
        _span(
            "retry_pause", "The time between a failed call to a provider or the workload and the next try.", 0.1, 3600
        ),
        _span(
            "requesting_timeout",
            "How long a provider may take to list a machine that was requested. After that the request is repeated, "
            "three times in all.",
        ),
        _span("boot_timeout", "How long a machine may take to boot. After that it is ended."),
        _span(
            "initializing_timeout",
            "How long the hosts of a machine may take to join the workload. After that it is ended.",
        ),
        _span(
            "cordon_timeout",
            "How long the workload may take to acknowledge a cordon. After that the cordon is withdrawn.",
        ),
        _span(
            "drain_timeout",
            "How long a drain waits for running work. After that the machine takes work again; see `allow_eviction`.",
        ),
        _span("terminate_timeout", "How long a machine may take to end. After that the call is repeated."),
        _span(
            "vanish_timeout",
            (
                "How long a machine must be missing from its provider's list before it counts as lost. If the "
                "workload still sees it, `unhealthy_timeout` applies. Time in which the provider does not answer "
                "does not count."
            ),
            0,
        ),
        _span(
            "unhealthy_timeout",
            "How long a machine may be unhealthy, or missing in the workload, before it is replaced.",
        ),
        Setting(
            "allow_eviction",
            Flag(),
            _POLICY.allow_eviction,
            "",
            "Whether work that still runs after `drain_timeout` may be ended. This applies only to machines that must "
            "go: over a lowered limit, drained by an operator, of a removed group, or unhealthy. Work is never ended "
            "to save money. With `false`, running work is never ended.",
        ),
        Setting(
            "launch_concurrency",
            Whole(low=1, high=10_000),
            _POLICY.launch_concurrency,
            "calls",
            "The highest number of concurrent launch calls of one group.",
        ),
        Setting(
            "launch_rate",
            Whole(low=1),
            _POLICY.launch_rate,
            "per minute",
            "The highest number of launches per minute of one group; less if its health is below 1.",
        ),
        SubSection("backoff", BACKOFF, "How failures of a group slow down its launches."),
    ),
)

# -- the rest of the file ------------------------------------------------------------------------------------------

JOURNAL: Final = Section(
    "journal",
    (
        Setting(
            "location",
            Address(),
            ".windlass/journal.db",
            "",
            (
                "The path of an SQLite file, `:memory:`, or `postgresql://USER@HOST/NAME`. Put a password into "
                "`PGPASSWORD` or a password file. `journal: PATH` is the short form."
            ),
        ),
        Setting(
            "retention",
            Duration(low=60),
            "30d",
            "s",
            "How far back `why --at` and `replay` can look. Older records are deleted, except those of existing "
            "machines.",
        ),
    ),
    short="location",
)
LEADER: Final = Section(
    "leader",
    (
        Setting(
            "lease",
            Duration(low=1, high=3600),
            Leadership().lease,
            "s",
            "How long a controller that does not renew its lease still counts as the leader.",
        ),
        Setting(
            "holder",
            Name(),
            None,
            "",
            "The name of this controller in the lease. It must be unique among the controllers of a journal.",
            absent="`HOST:PID`",
        ),
    ),
)
GROUP_SETTINGS: Final = Form.of(
    "a group",
    GroupSettings,
    {
        "provider": Declared(
            ValueType(lambda reader, at, value: reader.provider_name(at, value), {"type": "string"}, "str"),
            "The provider to buy from: a name in `providers`.",
            default="the only provider",
        ),
        "upscaling_speed": Declared(
            ValueType(
                lambda reader, at, value: reader.speed(at, value), {"type": "number", "minimum": 0}, "float", float
            ),
            "The highest number of machines that start at the same time, as a multiple of the running machines (at "
            "least 1), as in Ray's autoscaler.",
            default="no limit",
        ),
        "settings": Declared(
            ValueType(lambda reader, at, value: reader.provider_settings(at, value), {"type": "object"}, "Any", dict),
            "Settings for the provider, such as `instance_type`. They are passed on unchanged.",
        ),
    },
)
"""The keys of a group that a configuration has and a scenario does not have."""
LAUNCHES: Final = Form.of(
    "the cluster",
    Settings,
    {
        "max_concurrent_launches": Declared(
            whole(10**6, low=1), "The highest number of machines that start at the same time.", "slices", "no limit"
        )
    },
)
MACHINES: Final = {
    "offers": Key(
        "none",
        "Buy any machine type of a catalogue that fits. It replaces `resources`, `price`, `preemptible` and "
        "`provider`. Each offer becomes a group `NAME/TYPE/MARKET`; `min`, `max`, `spare` and `rank` apply to all of "
        "them together.",
    ),
    "image": Key("that of the provider", "The software that its machines need before their program starts."),
}
CONFIGURED_GROUP: Final = GROUP.replace(
    "a group", without=("availability", "frozen"), more={**GROUP_SETTINGS.keys, **MACHINES}
)
OFFERED_GROUP: Final = CONFIGURED_GROUP.replace("a group with offers", without=NOT_WITH_OFFERS)
"""The keys of a group with offers."""
CONFIGURED_CLUSTER: Final = CLUSTER.replace(CLUSTER.noun, more=LAUNCHES.keys)
CONFIG: Final = Form(
    "a configuration",
    {
        "cluster": Key("no limits", "Limits over all groups."),
        "families": Key("none", "Limits over several groups together, by name. A group joins with `family`."),
        "groups": Key(REQUIRED, "The kinds of machine that can be bought, by name."),
        "providers": Key(REQUIRED, "The systems that machines are bought from, by name."),
        "workload": Key(REQUIRED, "The system that runs the work."),
        "journal": Key("see below", "Where every observation and decision is recorded."),
        "policy": Key("see below", "Intervals, time limits and back-off."),
        "leader": Key("see below", "Leader election, if several controllers share a journal."),
        "shadow": Key(
            "`false`", "Observe, plan and record what would be done, but do nothing, like `windlass run --shadow`."
        ),
        "server": Key("see below", "The HTTP API and the dashboard."),
        "notify": Key("none", "Webhooks that receive alarms."),
    },
)
