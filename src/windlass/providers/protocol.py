"""This module defines the contract of a provider: its methods, their data, and the errors that they may raise.

A provider makes no decisions. It launches a slice under an id, ends a slice, and lists what exists. The controller
believes only the list: a launch that timed out may have succeeded, and a terminated slice has ended when the list no
longer shows it. Every changing call has the fencing epoch of its controller; a provider that can store the highest
epoch refuses a lower one with ``StaleEpoch``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from windlass.core.model.snapshot import Amounts, Group


class ProviderError(Exception):
    """The base of all errors that a provider may raise. Its text is shown to people."""


class InsufficientCapacity(ProviderError):
    """There is no capacity here now; another zone or group may have some."""


class QuotaExceeded(ProviderError):
    """The account's limit is reached; waiting does not help soon."""


class Throttled(ProviderError):
    """There were too many calls; retry after ``retry_after`` seconds, with the same id."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class AuthFailed(ProviderError):
    """The credentials are missing or refused."""


class InvalidRequest(ProviderError):
    """The request can never succeed; the configuration must change."""


class StaleEpoch(ProviderError):
    """A newer controller has taken over; this one must stop."""

    @classmethod
    def of(cls, epoch: int, newer: int) -> StaleEpoch:
        """Return the error of a controller with a lower epoch than the newest one."""
        return cls(f"a newer controller has taken over; this one has number {epoch}, that one {newer}")


class ClusterConflict(ProviderError):
    """Another journal uses the same cluster name here. Nothing was listed or changed."""


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """The owner of slices: a name that people choose, and the random id of the journal.

    A provider tags everything that it creates with both. The id decides what belongs to a cluster, so that a cluster
    keeps its slices when its name changes. An empty id is for read-only callers without a journal: it stands for every
    cluster of that name.
    """

    name: str = "windlass"
    id: str = ""

    def owns(self, name: str, id: str) -> bool:
        """Return whether something that is tagged with this name and id belongs to the cluster.

        Raises ``ClusterConflict`` if it has our name and the id of another journal.
        """
        if not self.id:
            return name == self.name
        if id and id != self.id and name == self.name:
            raise ClusterConflict(
                f"there are machines of another cluster named {name} here (its journal has cluster id {id}, ours has "
                f"{self.id}). Give one of the two another cluster.name; if that journal is lost, end its machines first"
            )
        return id == self.id


@dataclass(frozen=True, slots=True)
class HostOrder:
    """The command with which one host of a slice joins its workload."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    reach: tuple[str, ...] = ()
    """``HOST:PORT`` in the controller's network that the command connects to, possibly through a tunnel."""
    requirements: tuple[str, ...] = ()
    """Packages that the command needs besides this one, as arguments of pip."""


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """One slice to launch. ``slice_id`` is the idempotency token and the tag: an id is launched once."""

    slice_id: str
    group: str
    hosts: tuple[HostOrder, ...]
    resources: Amounts
    """The resources of each host."""
    labels: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The group's own settings for this provider, such as an instance type."""
    cluster: ClusterIdentity = ClusterIdentity()
    """The owner. The provider stores both parts in the tags of everything that it creates for the slice."""


InstanceState = Literal["pending", "running", "ending", "ended"]
"""``ended``: nothing of it is left, and it no longer costs money. A list may leave ended slices out."""


@dataclass(frozen=True, slots=True)
class Host:
    """The state of one host of an instance."""

    id: str
    running: bool = True
    """False in a ``pending`` instance: not up yet; in a ``running`` one: dead."""
    address: str = ""
    exit_code: int | None = None
    """The exit code of a dead host's program, negative for a signal, if the provider knows it."""
    last_output: str = ""
    """The last lines of output of a dead host's program, if the provider has them. At most 2,000 characters are
    kept."""
    failed_phase: str = ""
    """The step of its preparation in which it failed, if the provider knows."""


@dataclass(frozen=True, slots=True)
class Instance:
    """The state of one slice. A slice that is gone is not listed, or listed as ``ended`` for a while."""

    slice_id: str
    """The id of its launch order."""
    group: str
    state: InstanceState
    hosts: tuple[Host, ...]
    preempted_at: float | None = None
    """When the provider will take it away, if it has announced that (seconds since the epoch)."""
    zone: str = ""
    price: int | None = None
    """Nanodollars per hour, if the provider knows."""
    phase: str = ""
    """The step of its preparation, such as ``installing torch``, if the provider knows."""
    phase_since: float | None = None
    """When the phase was first observed (seconds since the epoch)."""
    trouble: str = ""
    """The reason why it does not start or has died, for people, if the provider knows."""
    ended_at: float | None = None
    """When it ended (seconds since the epoch), if the provider knows. It is billed until then."""
    started_at: float | None = None
    """Since when it costs money (seconds since the epoch), if the provider knows. It is billed from then on. Both times
    come from one clock, so that their difference is the lifetime even if another clock was set meanwhile."""


@dataclass(frozen=True, slots=True)
class Offering:
    """A kind of machine that the provider has."""

    name: str
    resources: Amounts
    hosts: int = 1
    price: int | None = None
    zones: tuple[str, ...] = ()
    preemptible: bool = False


@runtime_checkable
class Provider(Protocol):
    """Launches, ends and lists slices."""

    def bind(self, cluster: ClusterIdentity) -> None:
        """Set the cluster. Called before all other methods, and again when the name changes. Does no I/O.

        From then on nothing of another cluster is listed, changed or ended. ``launch``, ``terminate`` and ``list``
        raise ``ClusterConflict`` if another journal uses the same name here. The highest epoch is stored for each
        cluster: epochs of two journals cannot be compared.
        """
        ...

    async def launch(self, order: LaunchOrder, epoch: int) -> None:
        """Launch all hosts of one slice or none. Returns when the provider has accepted the order.

        Idempotent: if the id exists, is in flight or has ended, the call changes nothing and returns. A refused call
        has launched nothing, and may be repeated. Raises ``InsufficientCapacity``, ``QuotaExceeded``, ``Throttled``,
        ``AuthFailed``, ``InvalidRequest``, ``StaleEpoch``. After a cancelled or timed-out call the slice may or may not
        exist: the next list shows it.
        """
        ...

    async def terminate(self, slice_id: str, epoch: int) -> None:
        """End a slice and everything that belongs to it. Idempotent: does nothing if the slice is ending or gone.

        Raises ``Throttled``, ``AuthFailed``, ``StaleEpoch``. The slice has ended when it is no longer listed.
        """
        ...

    async def list(self) -> Sequence[Instance]:
        """Return every slice of our cluster, and no others, from the accepted order until nothing of it is left.

        The list is the truth, though it may lag a little. An incomplete list is an error, never a shorter list.
        """
        ...

    async def offerings(self) -> Sequence[Offering]:
        """Return the kinds of machine that it has, with prices if it knows them. May be empty.

        ``windlass doctor`` compares them with the groups that name a kind in ``settings: {instance_type: NAME}``.
        """
        ...

    async def close(self) -> None:
        """Close connections. Slices keep running."""
        ...


@runtime_checkable
class DiagnosedProvider(Protocol):
    """An optional part of the contract, for a provider that can check which of its machines are usable."""

    async def diagnose(self) -> Sequence[str]:
        """Return one sentence for each problem, with its remedy. Changes nothing."""
        ...


@runtime_checkable
class EndConfirmingProvider(Protocol):
    """An optional part of the contract, for a provider that remembers which slices have ended.

    A slice that is missing from the list may still exist, because lists lag. So it counts under every limit for
    ``vanish_timeout``. A confirmed end makes room at once.
    """

    async def confirm_ended(self, slice_ids: Collection[str]) -> Collection[str]:
        """Return those of our slices that have ended: nothing of them is left, and they no longer cost money.

        It may leave some out, and is called again. It never returns a slice that may still run or that it does not
        know. A provider that knows when they ended returns a mapping to these times (seconds since the epoch).
        """
        ...


@runtime_checkable
class ImageAwareProvider(Protocol):
    """An optional part of the contract, for a provider that prepares machines with an image."""

    def use_images(self, images: Mapping[str, Mapping[str, Any]]) -> None:
        """Set the image of each group for new machines. Called before the first use and after a reload.

        Images may have secrets in them: they are kept in memory and sent to machines, never stored or logged.
        """
        ...


@runtime_checkable
class GroupAwareProvider(Protocol):
    """An optional part of the contract, for a provider that must know the groups of the configuration."""

    def regroup(self, groups: Iterable[Group]) -> None:
        """Set the groups of this provider. Called before the first use and after a reload."""
        ...


@runtime_checkable
class SharedMachineProvider(Protocol):
    """An optional part of the contract, for a provider whose slices are processes of one computer."""

    one_machine: bool
    """Whether all slices share one computer: a workload may limit how many of its hosts start at once."""


def on_one_machine(provider: object) -> bool:
    """Return whether all slices of a provider share one computer."""
    return isinstance(provider, SharedMachineProvider) and provider.one_machine


@runtime_checkable
class KubernetesProvider(Protocol):
    """An optional part of the contract, for a provider that needs the Kubernetes API of the workload."""

    def use_kubernetes(self, api: Any) -> None:
        """Set the API client. Called before the first use."""
        ...
