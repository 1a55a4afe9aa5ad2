"""The contract of a workload says what it reports, and defines the fence that keeps running work alive.

A workload knows what waits, which nodes have joined and what runs where. It never buys. The controller releases a slice
in three steps. It calls ``cordon`` with an epoch number: no new work from now on. The workload acknowledges the cordon
for this epoch, with the number of tasks that still run. The controller ends the slice only after an acknowledgement
with no running tasks. Work that is placed there in between voids the acknowledgement: the workload then reports the
new number, or nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from windlass.core.model.lifecycle import State
from windlass.core.model.plan import Plan
from windlass.core.model.reasons import Code, Reason
from windlass.core.model.snapshot import Amounts, Demand, Group, Snapshot


class WorkloadError(Exception):
    """The workload did not answer. Its state is unknown, and never taken for empty."""

    brief: bool = False
    """Whether the failure is too short to be reported: nothing shrinks, and no message is printed."""


@dataclass(frozen=True, slots=True)
class WorkNode:
    """A node that has joined the workload."""

    id: str
    slice_id: str
    used: Amounts = ()
    tasks: int = 0
    idle_since: float | None = None
    """Since when nothing runs there; None while something does."""
    labels: Mapping[str, str] = field(default_factory=dict)
    healthy: bool = True
    present: Amounts | None = None
    """What the node really has; None: what its group says. A node without its accelerator is not ready."""
    trouble: str = ""
    """What is wrong on the node, for people; empty: nothing."""
    activity: str = ""
    """What keeps the node busy, in the words of the workload; empty: it does not say."""
    lost: str = ""
    """Why the node can no longer do work although its machine may run; its slice is lost. Empty if it can."""
    marked_until: float | None = None
    """The time of release that the node itself carries, for a controller that has lost its journal."""
    leaving: str = ""
    """Why its slice must go although it is well, such as an order given to the workload itself; empty: it may stay."""
    repair: str = ""
    """Why its slice must be replaced by a rule of the workload itself; empty: it is well. Its work is evicted."""
    classes: tuple[tuple[str, int], ...] = ()
    """(class, tasks of it that run there), sorted: what the constraints between tasks count."""
    jobs: tuple[tuple[str, int], ...] = ()
    """Tasks that run there by job, where the workload knows it: costs are charged to jobs by it."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The workload's statement about one cordoned slice."""

    slice_id: str
    epoch: int
    running: int
    """Tasks that still run there. 0 is the certificate without which no slice is ended."""
    final: bool = False
    """The cordon cannot be undone: the slice offers nothing any more, whatever waits."""
    refused: str = ""
    """Why the workload did not cordon the slice: work has come meanwhile. Empty: it did. With a refusal ``running``
    says nothing."""


@dataclass(frozen=True, slots=True)
class WorkloadGroup:
    """A group that the workload defines itself, such as a NodeProvisioner of Kubernetes."""

    group: Group
    provider: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    actions_per_pass: int = 0
    """How many kinds of action one pass carries out, in the order unmark, launch, drain, mark; 0: all of them."""
    max_leaving: int | None = None
    """How many of its slices may be leaving at once to save money; None: any number."""


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """What a workload showed at one instant."""

    demands: tuple[Demand, ...] = ()
    requests: tuple[Demand, ...] = ()
    nodes: tuple[WorkNode, ...] = ()
    acknowledged: tuple[Acknowledgement, ...] = ()
    groups: tuple[WorkloadGroup, ...] = ()
    """Groups besides those of the configuration."""


@dataclass(frozen=True, slots=True)
class DecidedSlice:
    """What the controller has decided about one slice."""

    id: str
    group: str
    state: State
    since: float
    reason: Reason
    started_for: Reason
    marked_until: float | None
    fence: int
    must_go: bool
    """Whether it leaves because it must, and not only to save money."""


@dataclass(frozen=True, slots=True)
class DecisionReport:
    """What one pass of the controller has decided, for a workload that shows decisions to its own users."""

    now: float
    groups: tuple[Group, ...]
    slices: Mapping[str, DecidedSlice]
    plan: Plan | None
    """None: the workload was not known, and nothing was planned."""
    refused: tuple[tuple[str, str], ...] = ()
    """Launches that a provider refused since the last pass: the slice, and what it said."""
    refusal_codes: Mapping[str, Code] = field(default_factory=dict)
    """The code of each refusal, such as STOCKOUT, by its slice."""
    snapshot: Snapshot | None = None
    """What the plan was made from; None: nothing was planned."""


@runtime_checkable
class ProviderWrapper(Protocol):
    """A workload that keeps an object of its own for every machine of a provider."""

    def wrap_provider(self, name: str, provider: Any) -> Any:
        """Return the provider as this workload wants it used. One that is wrapped already is wrapped again."""
        ...


@runtime_checkable
class DecisionListener(Protocol):
    """A workload that shows the controller's decisions to its own users."""

    def on_decision(self, decision: DecisionReport) -> None:
        """Take note of a pass. It must return at once; what it writes elsewhere it writes later."""
        ...


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One thing that ``windlass doctor`` says about a workload."""

    text: str
    remedy: str = ""
    """What to do about it. Empty: all is well."""


@runtime_checkable
class Diagnosed(Protocol):
    """A workload that can say more about itself than whether it answers."""

    async def diagnose(self) -> Sequence[Diagnosis]:
        """Check what it needs, and change nothing. Raises ``WorkloadError`` when it cannot be asked."""
        ...


@dataclass(frozen=True, slots=True)
class Join:
    """What a host must run to join, and with which environment."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    reach: tuple[str, ...] = ()
    """``HOST:PORT`` in the controller's network that the command connects to; a provider may carry it by a tunnel."""
    requirements: tuple[str, ...] = ()
    """What the command needs besides this package, as pip takes it."""


@runtime_checkable
class Workload(Protocol):
    """Runs the work."""

    async def observe(self) -> WorkloadView:
        """Return its demand, nodes and acknowledgements at one instant.

        Raises ``WorkloadError`` if any part is unknown; it never returns only a part.
        """
        ...

    async def changed(self) -> None:
        """Return when there is something new to observe since the last observation: demand, a node, work that ended.

        It may return too often, and it may be cancelled. A workload that cannot notify never returns; it is observed by
        the clock then.
        """
        ...

    def join(self, slice_id: str, group: str, host: int) -> Join:
        """Return what host number ``host`` of a slice must run to join. Pure: the same answer for the same slice."""
        ...

    async def cordon(self, slice_id: str, epoch: int) -> None:
        """Place nothing new on the slice's nodes. Idempotent; a lower epoch than one already seen changes nothing, and
        neither does one that an uncordon has voided: a cordon that arrives late must not bring the fence back."""
        ...

    async def uncordon(self, slice_id: str, epoch: int) -> None:
        """Place work there again. Voids every acknowledgement up to ``epoch``."""
        ...

    async def drain(self, slice_id: str, epoch: int, *, evict: bool = False) -> None:
        """Wait for the work that runs there; with ``evict``, end it. Idempotent."""
        ...

    async def forget(self, slice_ids: Sequence[str]) -> None:
        """These slices do not come back: nodes of theirs that are still listed are dead."""
        ...

    async def close(self) -> None:
        """Close connections. Work keeps running."""
        ...


@runtime_checkable
class GroupAwareWorkload(Protocol):
    """An optional part of the contract, for a workload that must know the groups of the configuration itself."""

    def regroup(self, groups: Iterable[Group]) -> None:
        """Learn the groups that it runs on from now on. Called before the first use and after a reload."""
        ...


@runtime_checkable
class StoredWorkload(Protocol):
    """An optional part of the contract, for a workload that creates the storage of its own state."""

    def expect_state(self) -> None:
        """Called when the journal knows machines that have joined: from now on missing storage is an error, and no new
        storage is created in its place. An empty one would confirm that nothing runs on these machines.
        """
        ...


@runtime_checkable
class SliceAwareWorkload(Protocol):
    """An optional part of the contract, for a workload that also remembers slices that ended long ago."""

    def expect_slices(self, slice_ids: Collection[str]) -> None:
        """Learn the slices of the journal. Called before the first observation, so that it shows what became of them
        while no controller ran.
        """
        ...


@runtime_checkable
class ProviderNamingWorkload(Protocol):
    """An optional part of the contract, for a workload whose own objects refer to providers by name."""

    def use_providers(self, names: Iterable[str]) -> None:
        """Learn the names of the configured providers. Called after a reload that is in use."""
        ...


@runtime_checkable
class FinalFenceWorkload(Protocol):
    """An optional part of the contract, for a workload that may be unable to lift a cordon."""

    final_fences: bool
    """Whether an accepted drain cannot be undone. Then a slice is cordoned only to be ended."""


@runtime_checkable
class PromptWorkload(Protocol):
    """An optional part of the contract, for a workload that answers each observation quickly."""

    answers_promptly: bool
    """Whether a call that takes much longer than the one before means that the workload does not answer."""


@runtime_checkable
class PacedWorkload(Protocol):
    """An optional part of the contract, for a workload whose hosts hinder each other while they start."""

    @property
    def starts_per_machine(self) -> int:
        """How many hosts may start at the same time on one computer."""
        ...


@runtime_checkable
class PlaceAwareWorkload(Protocol):
    """An optional part of the contract, for a workload that must know which hosts run on its own computer."""

    def run_here(self, groups: Iterable[str]) -> None:
        """Set the groups whose hosts are processes of this computer. Called before the first use and after a reload."""
        ...


@runtime_checkable
class DrainLimitedWorkload(Protocol):
    """An optional part of the contract, for a workload that passes the time limit of a drain on."""

    def limit_drains(self, seconds: float | None) -> None:
        """Set after how many seconds work on a drained slice is evicted; None: never."""
        ...


@runtime_checkable
class ElectedWorkload(Protocol):
    """An optional part of the contract, for a workload that elects the controller itself."""

    election: Any
    """The lease, with ``acquire``, ``lost`` and ``release``; None: the lease of the journal is enough."""
    health: Any
    """The health server with ``start``; None: there is none."""


@runtime_checkable
class NodeNamingProvider(Protocol):
    """An optional part of a provider's contract, for machines that join the workload under names of their own."""

    names: Mapping[str, str]
    """``SLICE/HOST`` by the name under which the host joins, as last listed."""
