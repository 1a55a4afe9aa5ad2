"""The settings of a configuration: one table, from which files are read and the reference is written.

A ``Setting`` says how its value is read (its kind), what it is when it is left out, in which unit, and what it means.
A default is written as it would be in the file, and goes the same way as a given value. Settings that a scenario file
has too (``cluster`` and ``groups``) stand in ``windlass.scenario.forms``; ``reference`` puts both together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from windlass.core.lifecycle import TABLE, State
from windlass.scenario.forms import GROUP
from windlass.scenario.reading import REQUIRED, Form, Key

from .durations import format_duration

YEARS: Final = 10 * 365 * 86400.0
"""Longer spans are typing errors."""


# -- how a value is read -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Duration:
    """A span of time between the bounds, in seconds."""

    low: float = 0
    high: float = YEARS


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number between the bounds."""

    low: int = 0
    high: int = 10**6


@dataclass(frozen=True, slots=True)
class Share:
    """A number above 0 and up to 1; with ``below_one``, 1 is too much."""

    below_one: bool = False


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""


@dataclass(frozen=True, slots=True)
class Name:
    """Visible text in one line."""


@dataclass(frozen=True, slots=True)
class Place:
    """A path; one that is not absolute is beside the configuration file."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a journal is: a path as above, or the URL of a database."""


Kind = Duration | Whole | Share | Flag | Name | Place | Address


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of a section."""

    name: str
    kind: Kind
    default: Any
    """As it would be written; ``REQUIRED``: it must be given; None: see ``absent``."""
    unit: str
    meaning: str
    absent: str = ""
    """What holds without it, in words, when there is no value to show."""

    def key(self) -> Key:
        if self.default == REQUIRED:
            text = REQUIRED
        elif self.default is None:
            text = self.absent
        elif isinstance(self.kind, Duration) and not isinstance(self.default, str):
            text = f"`{format_duration(self.default)}`"
        else:
            text = f"`{str(self.default).lower() if isinstance(self.kind, Flag) else self.default}`"
        return Key(text, self.meaning, self.unit)


@dataclass(frozen=True)
class Section:
    """The settings of one mapping in the file."""

    noun: str
    settings: tuple[Setting | Part, ...]
    short: str = ""
    """The setting that may stand alone in place of the whole mapping."""

    @cached_property
    def form(self) -> Form:
        return Form(self.noun, {one.name: one.key() for one in self.settings})

    def typed(self, key: Key) -> Form:
        """The same with ``type`` in front, for sections that come in several kinds."""
        return Form(self.noun, {"type": key, **self.form.keys})


@dataclass(frozen=True, slots=True)
class Part:
    """A section inside a section."""

    name: str
    section: Section
    meaning: str

    def key(self) -> Key:
        return Key("see below", self.meaning)


# -- policy --------------------------------------------------------------------------------------------------------


def _limit(state: State, meaning: str, unit: str = "s") -> Setting:
    """The time limit of a state; its default is the one in the table of states."""
    facts = TABLE[state]
    assert facts.limit is not None
    name = {State.CORDONED: "cordon", State.DRAINING: "drain", State.TERMINATING: "terminate", State.BOOTING: "boot"}
    return Setting(f"{name.get(state, state.value)}_timeout", Duration(low=1), facts.limit, unit, meaning)


INTERVAL: Final = Section(
    "evaluation_interval",
    (
        Setting(
            "min", Duration(low=0.01, high=3600), 0.2, "s", "Between two plans at the least, however much happens."
        ),
        Setting("max", Duration(low=0.01, high=3600), 5, "s", "Between two plans at the most, when nothing happens."),
    ),
)
BACKOFF: Final = Section(
    "backoff",
    (
        Setting(
            "factor",
            Share(below_one=True),
            0.7,
            "",
            "Each failed launch, failed boot or preemption in the window multiplies the health of its group by this.",
        ),
        Setting("window", Duration(low=1), "15m", "s", "How long a failure counts."),
        Setting("heal", Duration(low=1), "1h", "s", "How long it takes until a group without failures is well again."),
        Setting("floor", Share(), 0.05, "", "The least health. Even there one launch at a time is tried."),
        Setting(
            "quota_block",
            Duration(low=0),
            "5m",
            "s",
            "How long nothing is launched after a quota error; the first success ends it.",
        ),
    ),
)
POLICY: Final = Section(
    "policy",
    (
        Part("evaluation_interval", INTERVAL, "How often a plan is made."),
        Setting(
            "observe_timeout",
            Duration(low=0.1, high=3600),
            10,
            "s",
            "How long a workload or provider may take to show what it has; later, it is unknown in that round.",
        ),
        _limit(State.REQUESTING, "How long a provider may show nothing after it was asked, before it is asked again."),
        _limit(State.BOOTING, "How long a slice may boot before it is given up."),
        _limit(State.INITIALIZING, "How long its hosts may take to join the workload before it is given up."),
        _limit(State.CORDONED, "How long the workload may take to acknowledge a cordon before it is taken back."),
        _limit(State.DRAINING, "How long running work is waited for; then the slice goes back to work, or see below."),
        _limit(State.TERMINATING, "How long a slice may take to go before it is ended again."),
        Setting(
            "allow_eviction",
            Flag(),
            False,
            "",
            "Whether work that still runs after `drain_timeout` may be ended. Without it, running work is never ended.",
        ),
        Setting("launch_concurrency", Whole(low=1, high=10_000), 20, "calls", "Launches that are asked for at once."),
        Setting("launch_rate", Whole(low=1), 60, "per minute", "Launches of one group in a minute at full health."),
        Setting(
            "adoption_time",
            Duration(low=0),
            "60s",
            "s",
            "Within how long a slice with our tag but without a record is adopted, or ended.",
        ),
        Part("backoff", BACKOFF, "What failures of a group do to its launches."),
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
                "A path (beside the configuration if it is not absolute), `:memory:`, or `postgresql://USER@HOST/NAME`."
                " Leave passwords to `PGPASSWORD` or a password file. `journal: PATH` is short for it."
            ),
        ),
        Setting("retention", Duration(low=60), "30d", "s", "How long records are kept that no live slice needs."),
    ),
    short="location",
)
LEADER: Final = Section(
    "leader",
    (
        Setting(
            "lease",
            Duration(low=1, high=3600),
            15,
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
CONFIGURED_GROUP: Final = GROUP.but(
    "a group",
    without=("availability",),
    more={
        "provider": Key("the only provider", "Who sells it: a name in `providers`."),
        "settings": Key("none", "What the provider must know besides, such as an instance type. Passed on untouched."),
    },
)
CONFIG: Final = Form(
    "a configuration",
    {
        "cluster": Key("no limits", "What holds over all groups."),
        "groups": Key(REQUIRED, "The kinds of machine that can be bought, by name."),
        "providers": Key(REQUIRED, "The systems that sell them, by name."),
        "workload": Key(REQUIRED, "The system that runs the work."),
        "journal": Key("see below", "Where every observation and decision is recorded."),
        "policy": Key("see below", "How fast and how patiently it works."),
        "leader": Key("see below", "Who decides when several controllers share a journal."),
    },
)
