"""Acting: the outside calls that the book asks for, bounded and concurrent, and never a change of the book.

What is to be done follows from the states in the book alone, so a controller that was killed and started again does
what is still to do, with the same ids and fences, and nothing twice. One slow or failing call holds up nothing else. A
launch that a provider refuses is handed back as ``Refused`` and becomes an observation of the next fold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field

from windlass.core.lifecycle import State
from windlass.core.reasons import Code
from windlass.core.snapshot import Group
from windlass.providers.protocol import (
    HostOrder,
    InsufficientCapacity,
    LaunchOrder,
    Provider,
    ProviderError,
    QuotaExceeded,
    StaleEpoch,
    Throttled,
)
from windlass.workloads.protocol import Workload, WorkloadError

from .folding import Refused
from .records import Book, SliceRecord

Key = tuple[str, str, int]
"""What is done, to which slice, under which fence or attempt: the same key is never under way twice."""


@dataclass
class Actuator:
    """Makes the calls. ``may_act`` says whether this controller still leads: it is asked before every call."""

    providers: Mapping[str, Provider]
    workload: Workload
    provider_of: Callable[[str], str]
    epoch: int
    may_act: Callable[[], bool]
    now: Callable[[], float]
    pause: float = 5
    """Seconds before a call that failed is made again."""
    refused: list[Refused] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)
    """The last error of each slice whose call failed; for status."""
    _under_way: dict[Key, asyncio.Task[None]] = field(default_factory=dict)
    _done: set[Key] = field(default_factory=set)
    _not_before: dict[Key, float] = field(default_factory=dict)

    def start(self, book: Book, groups: Mapping[str, Group]) -> None:
        """Start every call that the book asks for and that is not under way or done."""
        wanted = {key: call for record in book.slices.values() for key, call in self._calls(record, groups)}
        self._done &= wanted.keys()
        self._not_before = {key: when for key, when in self._not_before.items() if key in wanted}
        now = self.now()
        for key, call in sorted(wanted.items(), key=lambda item: item[0]):
            if key not in self._done and key not in self._under_way and now >= self._not_before.get(key, now):
                task = asyncio.create_task(self._carry_out(key, call), name=" ".join(map(str, key)))
                self._under_way[key] = task

    def launching(self, slice_id: str) -> bool:
        """Whether a launch call for the slice is under way."""
        return any(key[0] == "launch" and key[1] == slice_id for key in self._under_way)

    async def settle(self) -> None:
        """Wait until nothing is under way."""
        while self._under_way:
            await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    async def close(self) -> None:
        """Give up what is under way; the next controller finds it in the book."""
        for task in self._under_way.values():
            task.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    def _calls(
        self, record: SliceRecord, groups: Mapping[str, Group]
    ) -> Iterator[tuple[Key, Callable[[], Awaitable[None]]]]:
        if record.quarantine:
            return
        name, fence = record.id, record.fence
        match record.state:
            case State.REQUESTING:
                group = groups.get(record.group)
                if group is not None:
                    yield ("launch", name, record.attempts), lambda: self._launch(record, group)
            case State.CORDONED:
                yield ("cordon", name, fence), lambda: self.workload.cordon(name, fence)
            case State.DRAINING:
                yield ("drain", name, fence), lambda: self.workload.drain(name, fence)
            case State.READY if fence:
                yield ("uncordon", name, fence), lambda: self.workload.uncordon(name, fence)
            case State.TERMINATING:
                provider = self.providers[self.provider_of(record.group)]
                yield ("terminate", name, int(record.since)), lambda: provider.terminate(name, self.epoch)
            case _:
                return

    async def _launch(self, record: SliceRecord, group: Group) -> None:
        joins = [self.workload.join(record.id, record.group, host) for host in range(group.hosts)]
        order = LaunchOrder(
            slice_id=record.id,
            group=record.group,
            hosts=tuple(HostOrder(join.command, join.environment) for join in joins),
            resources=group.resources,
            labels=group.node_labels(),
        )
        await self.providers[self.provider_of(record.group)].launch(order, self.epoch)

    async def _carry_out(self, key: Key, call: Callable[[], Awaitable[None]]) -> None:
        kind, slice_id, _ = key
        try:
            if not self.may_act():
                return
            await call()
            self._done.add(key)
            self.errors.pop(slice_id, None)
        except StaleEpoch as error:
            self.errors[slice_id] = str(error)
        except (ProviderError, WorkloadError) as error:
            self.errors[slice_id] = str(error)
            self._not_before[key] = self.now() + self.pause
            if kind == "launch" and isinstance(error, ProviderError):
                self.refused.append(Refused(slice_id, _code_of(error), str(error)))
                self._done.add(key)
        finally:
            del self._under_way[key]


def _code_of(error: ProviderError) -> Code:
    match error:
        case InsufficientCapacity():
            return Code.STOCKOUT
        case QuotaExceeded():
            return Code.QUOTA
        case Throttled():
            return Code.RATE_LIMITED
        case _:
            return Code.UNKNOWN_INPUT
