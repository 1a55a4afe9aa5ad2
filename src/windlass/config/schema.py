"""This table declares the settings of a configuration; the reader and the reference both use it.

A ``Setting`` says how its value is read (its kind), what it is when it is left out, in which unit, and what it means.
A default is written as it would be in the file, and goes the same way as a given value. Settings that a scenario file
has too (``cluster`` and ``groups``) are in ``windlass.scenario.schema``; ``reference`` combines both.
"""

from __future__ import annotations

from typing import Final

from windlass.control.settings import Leadership, Policy, Settings, SoldGroup
from windlass.scenario.declarations import REQUIRED, Declared, Form, Key, ValueType
from windlass.scenario.schema import CLUSTER, GROUP
from windlass.scenario.value_types import whole
from windlass.setting_types import YEARS, Address, Duration, Flag, Name, Section, Setting, Share, SubSection, Whole

from .groups.offers import NOT_WITH_OFFERS

# -- policy --------------------------------------------------------------------------------------------------------

_POLICY = Policy()
"""What holds when a file says nothing; the table below adds bounds, units and words."""


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
            "The shortest time between two plans, also when much happens.",
        ),
        Setting(
            "max",
            Duration(low=0.01, high=3600),
            _POLICY.evaluation_interval.max,
            "s",
            "The longest time between two plans, when nothing happens.",
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
        Setting("window", Duration(low=1), _POLICY.backoff.window, "s", "How long a failure counts in full."),
        Setting(
            "heal",
            Duration(low=1),
            _POLICY.backoff.heal,
            "s",
            "When it counts for nothing any more; in between for less and less. At least `window`.",
        ),
        Setting(
            "floor", Share(), _POLICY.backoff.floor, "", "The least health. Even there one launch at a time is tried."
        ),
        Setting(
            "pause",
            Duration(low=0),
            _POLICY.backoff.pause,
            "s",
            "Without a launch after a failure at full health; divided by the health.",
        ),
        Setting(
            "quota_block",
            Duration(low=0),
            _POLICY.backoff.quota_block,
            "s",
            "How long nothing is launched after a quota error; the first success ends it.",
        ),
        Setting(
            "boot_pause",
            Duration(low=0),
            _POLICY.backoff.boot_pause,
            "s",
            "Without a launch after a machine that did not come up.",
            absent="as `pause`",
        ),
        Setting(
            "grows_after_errors",
            Flag(),
            _POLICY.backoff.grows_after_errors,
            "",
            "Whether the pause grows with errors that are neither a stock-out nor a quota.",
        ),
    ),
)
POLICY: Final = Section(
    "policy",
    (
        SubSection("evaluation_interval", INTERVAL, "How often a plan is made."),
        _span(
            "observe_timeout",
            "How long a workload or provider may take to show what it has, and how long an answer counts; later, it is "
            "unknown.",
            low=0.1,
            high=3600,
        ),
        _span(
            "call_timeout", "How long one outside call may take before it is given up; what it did is seen then.", 0.1
        ),
        _span("retry_pause", "Before an outside call that failed is made again.", 0.1, 3600),
        _span("requesting_timeout", "How long a provider that was asked may show nothing; it is asked three times."),
        _span("boot_timeout", "How long a slice may boot before it is given up."),
        _span("initializing_timeout", "How long its hosts may take to join the workload before it is given up."),
        _span("cordon_timeout", "How long the workload may take to acknowledge a cordon before it is taken back."),
        _span("drain_timeout", "How long running work is waited for; then the slice goes back to work, or see below."),
        _span("terminate_timeout", "How long a slice may take to go before it is ended again."),
        _span(
            "vanish_timeout",
            (
                "How long a slice must be missing from its provider's list before it counts as gone. While the "
                "workload sees it alive: `unhealthy_timeout`, and while the provider is silent no time counts."
            ),
            0,
        ),
        _span("unhealthy_timeout", "How long a slice may be broken or unseen in the workload before it is replaced."),
        Setting(
            "allow_eviction",
            Flag(),
            _POLICY.allow_eviction,
            "",
            "Whether work that still runs after `drain_timeout` may be ended on a slice that must go: over a limit, "
            "drained by an operator, of a group that is gone, unhealthy. Never to save money. Without it, running work "
            "is never ended.",
        ),
        Setting(
            "launch_concurrency",
            Whole(low=1, high=10_000),
            _POLICY.launch_concurrency,
            "calls",
            "Launches of one group that are asked for at once.",
        ),
        Setting(
            "launch_rate",
            Whole(low=1),
            _POLICY.launch_rate,
            "per minute",
            "Launches of one group in a minute at full health.",
        ),
        SubSection("backoff", BACKOFF, "What failures of a group do to its launches."),
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
                "A path (a relative one starts at the directory of the configuration), `:memory:`, or `postgresql://USER@HOST/NAME`."
                " Leave passwords to `PGPASSWORD` or a password file. `journal: PATH` is short for it."
            ),
        ),
        Setting(
            "retention",
            Duration(low=60),
            "30d",
            "s",
            "How far back `why --at` and `replay` can look; older records go, but for those of live slices.",
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
            "How long a controller that is gone still counts as the leader.",
        ),
        Setting(
            "holder",
            Name(),
            None,
            "",
            "The name under which this controller holds the lease; once over all controllers of a journal.",
            absent="`HOST:PID`",
        ),
    ),
)
SOLD: Final = Form.of(
    "a group",
    SoldGroup,
    {
        "provider": Declared(
            ValueType(lambda reader, at, value: reader.provider_name(at, value), {"type": "string"}, "str"),
            "The provider that sells it: a name in `providers`.",
            default="the only provider",
        ),
        "upscaling_speed": Declared(
            ValueType(
                lambda reader, at, value: reader.speed(at, value), {"type": "number", "minimum": 0}, "float", float
            ),
            "At most this many times the slices that run (at least 1) come up at once, as in Ray's own autoscaler. "
            "Without it everything that is needed is launched at once.",
            default="no pacing",
        ),
        "settings": Declared(
            ValueType(lambda reader, at, value: reader.provider_settings(at, value), {"type": "object"}, "Any", dict),
            "Further settings for the provider, such as an instance type. They are passed on unchanged.",
        ),
    },
)
"""What a configuration says about a group, and a scenario does not."""
LAUNCHES: Final = Form.of(
    "the cluster",
    Settings,
    {
        "max_concurrent_launches": Declared(
            whole(10**6, low=1), "Slices of all groups that may come up at once.", "slices", "no limit"
        )
    },
)
MACHINES: Final = {
    "offers": Key(
        "none",
        "In place of `resources`, `price`, `preemptible` and `provider`: any machine of a catalogue that fits. Each "
        "offer becomes a group `NAME/TYPE/MARKET`; `min`, `max`, `spare` and `rank` hold over all of them.",
    ),
    "image": Key("that of the provider", "What its machines must have before their program starts."),
}
CONFIGURED_GROUP: Final = GROUP.replace("a group", without=("availability", "frozen"), more={**SOLD.keys, **MACHINES})
OFFERED_GROUP: Final = CONFIGURED_GROUP.replace("a group with offers", without=NOT_WITH_OFFERS)
"""As a group is read that has offers."""
CONFIGURED_CLUSTER: Final = CLUSTER.replace(CLUSTER.noun, more=LAUNCHES.keys)
CONFIG: Final = Form(
    "a configuration",
    {
        "cluster": Key("no limits", "What holds over all groups."),
        "families": Key("none", "Limits over several groups together, by name; a group joins with `family`."),
        "groups": Key(REQUIRED, "The kinds of machine that can be bought, by name."),
        "providers": Key(REQUIRED, "The systems that sell them, by name."),
        "workload": Key(REQUIRED, "The system that runs the work."),
        "journal": Key("see below", "Where every observation and decision is recorded."),
        "policy": Key("see below", "How fast and how patiently it works."),
        "leader": Key("see below", "Who decides when several controllers share a journal."),
        "shadow": Key("`false`", "Only look, plan and note what would be done, as `windlass run --shadow` does."),
        "server": Key("see below", "The HTTP API and the dashboard."),
        "notify": Key("none", "Where alarms are sent: a list of webhooks."),
    },
)
