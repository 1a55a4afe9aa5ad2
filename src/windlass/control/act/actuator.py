"""The actuator makes the outside calls that the recorded states ask for. It never changes state.

The calls follow from the states of the slices alone, so a controller that was killed and restarted makes the remaining
calls, with the same ids and epochs, and none twice. Calls are bounded and concurrent; one slow or failing call delays
no other. A launch that a provider refuses is returned as ``Refused`` and becomes an observation of the next pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from windlass.control.settings import GroupSettings, Policy, Settings
from windlass.control.state.fleet import Fleet, Gone, Refused, SliceRecord
from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import Code, seconds
from windlass.providers.protocol import (
    AuthFailed,
    ClusterConflict,
    ClusterIdentity,
    HostOrder,
    InsufficientCapacity,
    InvalidRequest,
    LaunchOrder,
    Provider,
    ProviderError,
    QuotaExceeded,
    StaleEpoch,
    Throttled,
)
from windlass.workloads.protocol import Workload

Key = tuple[str, str, int]
"""Action, slice, and fence or attempt. Only one call per key is under way at a time."""

Call = Callable[[], Awaitable[None]]

_WAITING: Final = frozenset({State.QUEUED, State.BOOTING, State.INITIALIZING, State.READY})
"""States that need no call, unless a cordon must be lifted."""

LAUNCH_TRIES = 3
"""Failed launch calls without a refusal after which the demand goes to another group."""


@dataclass
class Actuator:
    """Makes the calls. ``may_act`` returns whether this controller still leads; it is checked before every call."""

    providers: Mapping[str, Provider]
    workload: Workload
    epoch: int
    cluster: ClusterIdentity
    may_act: Callable[[], bool]
    now: Callable[[], float]
    on_answer: Callable[[], None] = lambda: None
    """Called when a call has ended, with or without an error, so that the loop observes its effect."""
    refused: list[Refused] = field(default_factory=list)
    overtaken: str = ""
    """The error of a provider that knows a newer controller; empty: no provider does."""
    _errors: dict[Key, str] = field(default_factory=dict)
    _under_way: dict[Key, asyncio.Task[None]] = field(default_factory=dict)
    _done: set[Key] = field(default_factory=set)
    _not_before: dict[Key, float] = field(default_factory=dict)
    _tried: dict[Key, int] = field(default_factory=dict)
    _gone: Mapping[str, Gone] = field(default_factory=dict)
    _forgets: dict[Key, Call] = field(default_factory=dict)
    """Calls that were made for slices that are gone."""
    _forgotten: set[str] = field(default_factory=set)
    """Ended slices that the workload has already forgotten; they need no further call."""

    def next_tries(self) -> dict[str, tuple[float, str]]:
        """Return when each launch that failed is tried again, and why it failed, by slice."""
        now = self.now()
        return {
            key[1]: (self._not_before[key], self._errors.get(key, ""))
            for key in self._not_before
            if key[0] == "launch" and self._not_before[key] > now and key not in self._done
        }

    def start(self, fleet: Fleet, settings: Settings) -> None:
        """Start every call that the fleet needs and that is neither under way nor done."""
        now, policy = self.now(), settings.policy
        wanted = dict(self._calls(fleet, settings, now))
        if fleet.gone is not self._gone:
            self._gone = fleet.gone
            self._forgotten &= fleet.gone.keys()
            self._forgets = {("forget", name, 0): self._forget(name) for name in fleet.gone.keys() - self._forgotten}
        wanted |= self._forgets
        self._done &= wanted.keys()
        self._not_before = {key: when for key, when in self._not_before.items() if key in wanted}
        self._tried = {key: times for key, times in self._tried.items() if key in wanted}
        self._errors = {key: text for key, text in self._errors.items() if key in wanted}
        for key in sorted(wanted.keys() - self._done - self._under_way.keys()):
            if now >= self._not_before.get(key, now):
                call = self._carry_out(key, wanted[key], policy)
                self._under_way[key] = asyncio.create_task(call, name=" ".join(map(str, key)))

    @property
    def under_way(self) -> frozenset[str]:
        """The kinds of calls that are under way."""
        return frozenset([key[0] for key in self._under_way])

    @property
    def launching(self) -> frozenset[str]:
        """Slices whose launch call is under way."""
        return frozenset(slice_id for kind, slice_id, _ in self._under_way if kind == "launch")

    @property
    def errors(self) -> dict[str, str]:
        """Slices whose last call failed, with the error."""
        return {f"slice {key[1]}": f"{key[0]}: {text}" for key, text in sorted(self._errors.items())}

    def next_try(self) -> float | None:
        """Return when the next failed call is retried."""
        over = self._done | self._under_way.keys()
        return min((when for key, when in self._not_before.items() if key not in over), default=None)

    async def settle(self) -> None:
        """Wait until nothing is under way."""
        while self._under_way:
            await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    async def close(self) -> None:
        """Cancel the calls under way; the next controller finds them in the fleet."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- calls that the fleet needs -----------------------------------------------------------------------------------

    def _calls(self, fleet: Fleet, settings: Settings, now: float) -> Iterator[tuple[Key, Call]]:
        for record in fleet.activity.active.values():
            waits = record.state in _WAITING and not record.fence
            if not waits and not record.quarantine:
                yield from self._calls_for(record, settings, now)

    def _calls_for(self, record: SliceRecord, settings: Settings, now: float) -> Iterator[tuple[Key, Call]]:
        name, fence = record.id, record.fence
        match record.state:
            case State.REQUESTING:
                configured = settings.by_name.get(record.group)
                if configured is not None:
                    yield ("launch", name, record.attempts), lambda: self._launch(record, configured)
            case State.CORDONED:
                yield ("cordon", name, fence), lambda: self.workload.cordon(name, fence)
            case State.DRAINING:
                late = now - record.since >= (settings.policy.limit_of(record.state) or 0.0)
                evict = late and settings.policy.allow_eviction and record.must_go
                yield (
                    ("evict" if evict else "drain", name, fence),
                    lambda: self.workload.drain(name, fence, evict=evict),
                )
            case State.READY if fence:
                yield ("uncordon", name, fence), lambda: self.workload.uncordon(name, fence)
            case State.TERMINATING:
                if record.dead:
                    yield ("forget", name, fence), self._forget(name)
                if record.is_empty:
                    provider = self.providers[record.provider]
                    # A terminate call that arrived before the machine existed ended nothing: it is repeated once the
                    # machine is listed.
                    number = 2 * int(record.since) + record.seen
                    yield ("terminate", name, number), lambda: provider.terminate(name, self.epoch)
                else:
                    yield ("cordon", name, fence), lambda: self.workload.cordon(name, fence)
            case _:
                return

    def _forget(self, name: str) -> Call:
        return lambda: self.workload.forget([name])

    async def _launch(self, record: SliceRecord, configured: GroupSettings) -> None:
        group = configured.group
        joins = [self.workload.join(record.id, record.group, host) for host in range(group.hosts)]
        order = LaunchOrder(
            slice_id=record.id,
            group=record.group,
            hosts=tuple(HostOrder(join.command, join.environment, join.reach, join.requirements) for join in joins),
            resources=group.resources,
            labels=group.node_labels(),
            settings=configured.settings,
            cluster=self.cluster,
        )
        await self.providers[record.provider].launch(order, self.epoch)

    # -- one call -----------------------------------------------------------------------------------------------------

    async def _carry_out(self, key: Key, call: Call, policy: Policy) -> None:
        try:
            if not self.may_act():
                return
            async with asyncio.timeout(policy.call_timeout):
                await call()
            self._done.add(key)
            self._errors.pop(key, None)
            if key in self._forgets:
                self._forgotten.add(key[1])
        except StaleEpoch as error:
            self.overtaken = str(error)
        except TimeoutError:
            # The call may have worked; the next list shows it. A launch is retried later.
            self._failed(key, f"gave no answer within {seconds(policy.call_timeout)}", policy)
            if key[0] == "launch":
                self._done.add(key)
        except Exception as error:  # noqa: BLE001  # whatever a provider or a workload raises is about this one call
            self._failed(key, str(error) or type(error).__name__, policy)
            if key[0] == "launch":
                self._unlaunched(key, error)
        finally:
            del self._under_way[key]
            if key not in self._forgets or key[1] not in self._forgotten:  # an ended slice gives no new observation
                self.on_answer()

    def _unlaunched(self, key: Key, error: Exception) -> None:
        """Report a refusal at once. After any other error the machine may exist, so the call is retried with the same
        token.
        """
        refusal = _refusal(key[1], error)
        self._tried[key] = self._tried.get(key, 0) + 1
        if refusal.certain or self._tried[key] >= LAUNCH_TRIES:
            self._done.add(key)
            self.refused.append(refusal)

    def _failed(self, key: Key, text: str, policy: Policy) -> None:
        self._errors[key] = text
        self._not_before[key] = self.now() + policy.retry_pause


def _refusal(slice_id: str, error: Exception) -> Refused:
    match error:
        case InsufficientCapacity():
            return Refused(slice_id, Code.STOCKOUT, str(error))
        case QuotaExceeded():
            return Refused(slice_id, Code.QUOTA, str(error))
        case Throttled():
            return Refused(slice_id, Code.RATE_LIMITED, str(error), error.retry_after)
        case AuthFailed() | InvalidRequest() | ClusterConflict():
            return Refused(slice_id, Code.UNKNOWN_INPUT, str(error))
        case ProviderError():
            return Refused(slice_id, Code.UNKNOWN_INPUT, str(error), certain=False)
        case _:
            return Refused(slice_id, Code.UNKNOWN_INPUT, f"{type(error).__name__}: {error}", certain=False)
