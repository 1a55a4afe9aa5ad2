"""The types of providers and workloads that this version has, each with its settings.

A new one is a new entry here; what it is made of lives with the provider or workload itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from windlass.scenario.reader import REQUIRED, Form, Key

from .schema import YEARS, Duration, Endpoint, Place, Section, Setting, SubSection, Whole


@dataclass(frozen=True)
class Types:
    """The known types of one section."""

    noun: str
    meaning: str
    known: Mapping[str, Section]
    extras: Mapping[str, str]
    """Types that are not here yet, and the extra of the package that is kept for each."""

    def form(self, name: str) -> Form:
        return self.known[name].typed(self.key)

    @property
    def key(self) -> Key:
        return Key(REQUIRED, self.meaning)


_SEED = Setting("seed", Whole(high=2**63), 0, "", "The same seed gives the same course of events.")

PROVIDERS: Final = Types(
    "a provider",
    "`local`: processes of this machine. `simulated`: a simulated cloud.",
    {
        "local": Section(
            "a local provider",
            (
                Setting("directory", Place(), ".windlass/local", "", "Where it keeps what it knows of its processes."),
                Setting("boot_delay", Duration(high=3600), "0s", "s", "How long a slice pretends to boot."),
                Setting(
                    "grace",
                    Duration(high=3600),
                    "5s",
                    "s",
                    "How long processes may take to end; then they are killed.",
                ),
            ),
        ),
        "simulated": Section(
            "a simulated provider",
            (_SEED, Setting("boot_delay", Duration(high=86400), "60s", "s", "How long a slice takes to boot.")),
        ),
    },
    {"aws": "aws", "ec2": "aws", "gcp": "gcp", "kubernetes": "kubernetes", "ssh": "ssh"},
)
DASK_TLS: Final = Section(
    "tls",
    (
        Setting("ca_file", Place(), None, "", "The authority that has signed the certificates.", absent="none"),
        Setting("cert", Place(), None, "", "The certificate of Windlass and its workers.", absent="none"),
        Setting("key", Place(), None, "", "The key of the certificate.", absent="in the file of the certificate"),
    ),
)
WORKLOADS: Final = Types(
    "a workload",
    "`queue`: commands in a queue on this machine. `dask`: the tasks of a Dask scheduler that runs already. "
    "`simulated`: work that does not exist. `pool`: tasks of a program in Python, which runs its controller itself; "
    "its configuration is for looking at it.",
    {
        "queue": Section(
            "a queue",
            (
                Setting(
                    "directory",
                    Place(),
                    ".windlass/queue",
                    "",
                    "Where the queue and the output of its tasks are. `windlass submit` puts commands in.",
                ),
            ),
        ),
        "dask": Section(
            "a Dask cluster",
            (
                Setting(
                    "scheduler",
                    Endpoint(("tcp", "tls")),
                    REQUIRED,
                    "",
                    "Where the scheduler listens, as clients write it: `tcp://HOST:PORT`. Workers that Windlass has "
                    "not bought are left alone.",
                ),
                SubSection(
                    "tls", DASK_TLS, "What is shown to a scheduler at `tls://HOST:PORT`, by Windlass and by workers."
                ),
                Setting(
                    "target_duration",
                    Duration(high=86400),
                    "0s",
                    "s",
                    "In about this time all waiting tasks of one function should be through, by Dask's averages of how "
                    "long they take: nodes are bought for as many as must run at once for that. `0s`: every waiting "
                    "task gets a thread.",
                ),
                Setting(
                    "heartbeat_timeout",
                    Duration(low=1, high=86400),
                    "2m",
                    "s",
                    "How long a worker may send no heartbeat before its node is unhealthy. Code that holds Python's "
                    "lock sends none; a process that died is seen at once.",
                ),
            ),
        ),
        "simulated": Section(
            "a simulated workload",
            (
                _SEED,
                Setting(
                    "demands",
                    Place(),
                    None,
                    "",
                    "A file with `demands` and `requests` as in a scenario: they arrive when the controller starts.",
                    absent="none",
                ),
                Setting("duration", Duration(high=YEARS), "5m", "s", "How long one task runs."),
            ),
        ),
        "pool": Section("a pool", ()),
    },
    {"kubernetes": "kubernetes", "ray": "ray"},
)
