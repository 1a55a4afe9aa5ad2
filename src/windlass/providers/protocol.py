"""The contract of a provider has launch, terminate, list, offerings, and the errors that it may raise.

A provider never decides. It is asked to launch a slice under an id, and to end one; what it has is read from its list,
and only the list is believed: a launch that timed out may have succeeded, and a terminate that succeeded is done when
the slice is gone from the list. Every changing call carries the fencing epoch of the controller that makes it; a
provider that can keep the highest epoch it has seen refuses a lower one with ``StaleEpoch``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from windlass.core.model.snapshot import Amounts, Group


class ProviderError(Exception):
    """What a provider may raise; nothing else escapes it. Its text is shown to people."""


class InsufficientCapacity(ProviderError):
    """Out of stock here and now; another zone or group may have it."""


class QuotaExceeded(ProviderError):
    """The account's limit is reached; waiting alone does not help soon."""


class Throttled(ProviderError):
    """Too many calls; ask again after ``retry_after`` seconds, with the same id."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class AuthFailed(ProviderError):
    """The credentials are missing or refused."""


class InvalidRequest(ProviderError):
    """Asked for something that can never be; the configuration must change."""


class StaleEpoch(ProviderError):
    """A newer controller has taken over; this one must stop."""


class ClusterConflict(ProviderError):
    """Another journal works here under the same cluster name. Nothing was listed or changed."""


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """The owner of slices: a name that people choose, and the random id that was made with the journal.

    A provider marks everything that it makes with both. The id decides what belongs to a cluster, so that a cluster
    keeps its slices when its name changes. An empty id is for callers that only look and have no journal: it stands for
    every cluster of that name.
    """

    name: str = "windlass"
    id: str = ""

    def owns(self, name: str, id: str) -> bool:
        """Return whether something that is marked with this name and id belongs to the cluster.

        ``ClusterConflict``: it has our name and the id of another journal.
        """
        if not self.id:
            return name == self.name
        if id and id != self.id and name == self.name:
            raise ClusterConflict(
                f"machines of a cluster named {name} with another journal (cluster id {id}, ours is {self.id}) are "
                "here. Give one of the two another cluster.name; or, if that journal is lost, end its machines first"
            )
        return id == self.id


@dataclass(frozen=True, slots=True)
class HostOrder:
    """What one host of a slice must run to join its workload."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    reach: tuple[str, ...] = ()
    """``HOST:PORT`` in the controller's network that the command connects to; a provider may carry it by a tunnel."""
    requirements: tuple[str, ...] = ()
    """What the command needs besides this package, as pip takes it."""


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """One slice to buy. ``slice_id`` is the idempotency token and the tag: the same id never buys twice."""

    slice_id: str
    group: str
    hosts: tuple[HostOrder, ...]
    resources: Amounts
    """Of each host."""
    labels: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The group's own settings for this provider, such as an instance type."""
    cluster: ClusterIdentity = ClusterIdentity()
    """Whose slice it is. The provider stores both parts in the tags of everything that it makes for the slice."""


InstanceState = Literal["pending", "running", "ending", "ended"]
"""``ended``: nothing of it is left, and it costs nothing any more. A list need not show what has ended."""


@dataclass(frozen=True, slots=True)
class Host:
    """One host of an instance, as the provider shows it."""

    id: str
    running: bool = True
    """False: not up yet, in an instance that is ``pending``; dead, in one that is ``running``."""
    address: str = ""
    exit_code: int | None = None
    """Of a dead host: the exit code of its program, negative for a signal, where the provider knows."""
    last_output: str = ""
    """Of a dead host: the last lines of what its program wrote, where the provider has them. At most 2,000 characters
    of it are kept."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A slice as the provider shows it. What is gone is not listed, or listed as ``ended`` for a while."""

    slice_id: str
    """The tag that its launch carried."""
    group: str
    state: InstanceState
    hosts: tuple[Host, ...]
    preempted_at: float | None = None
    """When the provider will take it away, if it has said so (seconds since the epoch)."""
    zone: str = ""
    price: int | None = None
    """Nanodollars per hour, where the provider knows."""
    phase: str = ""
    """What its hosts are doing before their programs run, such as ``installing torch``, where the provider knows."""
    phase_since: float | None = None
    """When the phase was first seen (seconds since the epoch)."""
    trouble: str = ""
    """Why it does not come up or has died, in words for people, where the provider knows."""
    ended_at: float | None = None
    """Of one that has ended: when (seconds since the epoch), where the provider knows. It is billed until then."""
    started_at: float | None = None
    """Since when it costs money (seconds since the epoch), where the provider knows. It is billed from then on. It and
    ``ended_at`` are by one clock, so that their difference is a lifetime also when a clock was set."""


@dataclass(frozen=True, slots=True)
class Offering:
    """A kind of machine that the provider sells."""

    name: str
    resources: Amounts
    hosts: int = 1
    price: int | None = None
    zones: tuple[str, ...] = ()
    preemptible: bool = False


@runtime_checkable
class Provider(Protocol):
    """Sells slices."""

    def bind(self, cluster: ClusterIdentity) -> None:
        """Work for this cluster from now on. Called before the first call, and again when the name changes.

        It does no I/O. From then on nothing of another cluster is listed, changed or ended. ``launch``, ``terminate``
        and ``list`` raise ``ClusterConflict`` when they find that another journal uses the same name here. The highest
        epoch is kept for each cluster: epochs of two journals cannot be compared.
        """
        ...

    async def launch(self, order: LaunchOrder, epoch: int) -> None:
        """Ask for one slice, all of its hosts or none. Returns when the provider has taken the order.

        Idempotent: with an id that exists, is in flight or has ended, it changes nothing and returns. An id that was
        refused has bought nothing, and may be asked for again. Raises ``InsufficientCapacity``, ``QuotaExceeded``,
        ``Throttled``, ``AuthFailed``, ``InvalidRequest``, ``StaleEpoch``.
        After a cancelled or timed-out call the slice may or may not come: the next list shows it.
        """
        ...

    async def terminate(self, slice_id: str, epoch: int) -> None:
        """End a slice and all that belongs to it. Idempotent: ending what is ending or gone returns quietly.

        Raises ``Throttled``, ``AuthFailed``, ``StaleEpoch``. It is over when the slice is not listed any more.
        """
        ...

    async def list(self) -> Sequence[Instance]:
        """Every slice of our cluster that exists, from the order taken until nothing of it is left. Never others.

        The truth, though it may lag a little. A list that cannot be had whole raises; it is never shortened.
        """
        ...

    async def offerings(self) -> Sequence[Offering]:
        """The kinds of machine that it sells, with prices where it knows them. May be empty."""
        ...

    async def close(self) -> None:
        """Let go of connections. Slices live on."""
        ...


@runtime_checkable
class DiagnosedProvider(Protocol):
    """An optional part of the contract, for a provider that can tell which of its machines cannot be used."""

    async def diagnose(self) -> Sequence[str]:
        """Check what it sells from, and change nothing. One sentence for each problem, with its remedy."""
        ...


@runtime_checkable
class EndConfirmingProvider(Protocol):
    """An optional part of the contract, for a provider that remembers which slices have ended.

    A slice that is only missing from the list may be there all the same: lists lag. So it keeps its place under every
    limit for ``vanish_timeout``. One whose end the provider confirms frees its place at once.
    """

    async def confirm_ended(self, slice_ids: Collection[str]) -> Collection[str]:
        """Return those of our slices that have ended: nothing of them is left or costs money any more.

        It may leave some out, and is asked again. It never names a slice that may still run, or that it does not know.
        A provider that knows when they ended returns a mapping to these times (seconds since the epoch).
        """
        ...


@runtime_checkable
class ImageAwareProvider(Protocol):
    """An optional part of the contract, for a provider that prepares machines with an image."""

    def use_images(self, images: Mapping[str, Mapping[str, Any]]) -> None:
        """Prepare new machines of each of these groups with its image. Called before the first use and after a reload.

        Images may hold secrets: they are kept in memory and sent to machines, and written down nowhere.
        """
        ...


@runtime_checkable
class GroupAwareProvider(Protocol):
    """An optional part of the contract, for a provider that must know the groups of the configuration itself."""

    def regroup(self, groups: Iterable[Group]) -> None:
        """Learn the groups that it sells from now on. Called before the first use and after a reload."""
        ...
