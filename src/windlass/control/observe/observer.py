"""The observer reads every source concurrently, each with a time limit.

A slow call keeps running up to its limit while the loop goes on without it. The last answer of a source stays valid for
as long as one call may take; after that the source is unknown, and its error says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from windlass.core.model.reasons import seconds
from windlass.providers.protocol import EndConfirmingProvider, Instance, Provider
from windlass.workloads.protocol import Workload, WorkloadError

from .completed import Completed
from .observed import Observed
from .validation import InvalidAnswer, Lists, ValidView, Views

T = TypeVar("T")

PATIENCE = 0.5
"""Seconds that the loop waits for an observation that it has just begun. Most take milliseconds; one that hangs is not
waited for a second time."""


_NO_ANSWER: Final = "has not answered yet"


@dataclass
class _Source(Generic[T]):
    """One provider or the workload."""

    look: Callable[[], Coroutine[Any, Any, object]]
    check: Callable[[object], T]
    limit: Callable[[], float]
    steady: Callable[[], float]
    on_answer: Callable[[], None]
    answer: T | None = None
    asked_at: float | None = None
    """When the observation began that gave the answer."""
    trouble: str = ""
    brief: bool = False
    """Whether it has failed too briefly to be reported."""
    task: asyncio.Task[None] | None = None
    _time: asyncio.Timeout | None = None
    """How long the last observation may take."""

    def begin(self) -> bool:
        """Whether an observation has just begun that takes its time; not while an older one is under way."""
        if self.is_looking:
            return False
        asked_at = self.steady()
        try:
            look = self.look()
            if isinstance(look, Completed):
                self._take(look.answer, asked_at)
                return False
        except Exception as error:  # noqa: BLE001  # as in an observation that takes its time
            self._fail(error)
            return False
        self.task = asyncio.create_task(self._look(look, asked_at))
        return True

    @property
    def is_looking(self) -> bool:
        return self.task is not None and not self.task.done()

    def bound(self, begun: float) -> None:
        """Give the observation under way its time limit, from when it began. A timer for each one that answers at once
        would cost more than the answer."""
        if self._time is not None:
            self._time.reschedule(begun + self.limit())

    async def _look(self, look: Coroutine[Any, Any, object], asked_at: float) -> None:
        limit = self.limit()
        try:
            async with asyncio.timeout(None) as self._time:
                self._take(await look, asked_at)
        except TimeoutError:
            self.trouble = f"gave no answer within {seconds(limit)}"
        except Exception as error:  # noqa: BLE001  # whatever a source raises is that source's trouble, never the loop's
            self._fail(error)
        self.on_answer()

    def _take(self, answer: object, asked_at: float) -> None:
        self.answer, self.asked_at, self.trouble, self.brief = self.check(answer), asked_at, "", False

    def _fail(self, error: Exception) -> None:
        garbage = isinstance(error, InvalidAnswer)
        self.brief = isinstance(error, WorkloadError) and error.brief
        self.answer, self.trouble = None, f"gave garbage: {error}" if garbage else f"{error}" or type(error).__name__

    def known(self) -> T | None:
        """The last answer, while it counts."""
        if self.answer is None or self.asked_at is None:
            return None
        if self.steady() - self.asked_at > self.limit():
            self.trouble = self.trouble or f"gives no answer since {seconds(round(self.steady() - self.asked_at))}"
            return None
        return self.answer


@dataclass(frozen=True, slots=True)
class Observation:
    """The answers of all sources. None is "unknown"."""

    instances: Mapping[str, Mapping[str, Instance] | None]
    """By provider, then by slice."""
    work: ValidView | None
    troubles: Mapping[str, str] = field(default_factory=dict)
    """Errors of sources, by name."""
    awaited: frozenset[str] = frozenset()
    """Sources whose first answer is still awaited, by name."""

    @property
    def mistakes(self) -> tuple[str, ...]:
        """Demands that were left out, in words."""
        return self.work.mistakes if self.work is not None else ()


class _Listing:
    """The list of a provider, with the slices whose end it confirms as ``ended``."""

    def __init__(self, provider: Provider, name: str, missing: Callable[[str], Mapping[str, str]]) -> None:
        self._provider, self._name, self._missing = provider, name, missing
        self._last: Sequence[Instance] = ()

    def __call__(self) -> Coroutine[Any, Any, object]:
        listing = self._provider.list()
        provider = self._provider
        if not isinstance(provider, EndConfirmingProvider):
            return listing
        if isinstance(listing, Completed):
            asked = self._absent(listing.answer)
            if not asked:
                return listing
            ends = provider.confirm_ended(asked)
            return Completed(_with_ends(listing.answer, asked, ends.answer)) if isinstance(ends, Completed) else listing
        return self._look(listing, provider)

    async def _look(self, listing: Coroutine[Any, Any, Sequence[Instance]], provider: EndConfirmingProvider) -> object:
        shown = await listing
        asked = self._absent(shown)
        return _with_ends(shown, asked, await provider.confirm_ended(asked)) if asked else shown

    def _absent(self, shown: Sequence[Instance]) -> dict[str, str]:
        """Slices that the last list had and this one has not, and those that the controller misses, with groups."""
        wanted = dict(self._missing(self._name))
        if shown is self._last and not wanted:
            return {}
        try:
            listed = {one.slice_id for one in shown}
            wanted |= {one.slice_id: one.group for one in self._last}
        except (AttributeError, TypeError):  # not a list: the validation finds that
            return {}
        self._last = shown
        return {name: group for name, group in wanted.items() if name not in listed}


def _with_ends(shown: Sequence[Instance], asked: Mapping[str, str], ended: Collection[str]) -> Sequence[Instance]:
    at = ended if isinstance(ended, Mapping) else {}
    confirmed = [Instance(name, asked[name], "ended", (), ended_at=at.get(name)) for name in ended if name in asked]
    return (*shown, *confirmed) if confirmed else shown


class Observer:
    """Observes the workload and every provider."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        workload: Workload,
        limit: Callable[[], float],
        steady: Callable[[], float],
        on_answer: Callable[[], None] = lambda: None,
        missing: Callable[[str], Mapping[str, str]] = lambda _: {},
    ) -> None:
        """``on_answer`` is called when an observation ends that no caller waits for any more. ``missing``: the slices
        of a provider, with their groups, that may have ended: a provider that remembers ends is asked about them."""
        self._on_answer, self._waited_for = on_answer, False
        self._views, self._lists = Views(), {name: Lists() for name in providers}
        self._workload = _Source(workload.observe, self._views, limit, steady, self._late)
        self._providers = {
            name: _Source(_Listing(provider, name, missing), self._lists[name], limit, steady, self._late)
            for name, provider in sorted(providers.items())
        }
        self._sources: tuple[_Source[Any], ...] = (self._workload, *self._providers.values())

    def known(self, observed: Observed) -> None:
        """Prime the tables with a known observation, so that equal items keep their identity."""
        self._views.known(observed.demand, observed.request, observed.node)
        for lists in self._lists.values():
            lists.known(observed.instance)

    def _late(self) -> None:
        if not self._waited_for:
            self._on_answer()

    async def look(self) -> Observation:
        """The current answers, without waiting for slow sources."""
        fresh = [source for source in self._sources if source.begin()]
        if fresh:
            self._waited_for = True
            try:
                await self._wait_for(fresh)
            finally:
                self._waited_for = False
        work = self._workload.known()
        instances = {name: source.known() for name, source in self._providers.items()}
        troubles, awaited = {}, set()
        for name, source in self._providers.items():
            if source.trouble or instances[name] is None:
                troubles[f"provider {name}"] = source.trouble or _NO_ANSWER
                if not source.trouble:
                    awaited.add(f"provider {name}")
        for listed in instances.values():
            for slice_id, one in (listed or {}).items():
                if one.trouble and all(host.running for host in one.hosts):  # a dead host is reported as such
                    troubles[f"slice {slice_id}"] = one.trouble
        if work is not None:
            troubles |= {f"node {node.id}": node.trouble for node in work.node.values() if node.trouble}
        if (self._workload.trouble or work is None) and not self._workload.brief:
            troubles["workload"] = self._workload.trouble or _NO_ANSWER
            if not self._workload.trouble:
                awaited.add("workload")
        return Observation(instances, work, troubles, frozenset(awaited))

    async def _wait_for(self, fresh: Sequence[_Source[Any]]) -> None:
        """Wait briefly for the observations that have just begun."""
        begun = asyncio.get_running_loop().time()
        try:
            await asyncio.sleep(0)  # many answer at once, and need no waiting
        finally:  # when this wait is cancelled the observations go on; all of them have begun
            slow = [source for source in fresh if source.is_looking]
            for source in slow:
                source.bound(begun)
        if slow:
            await asyncio.wait([source.task for source in slow if source.task is not None], timeout=PATIENCE)

    async def close(self) -> None:
        """Cancel the observations under way."""
        tasks = [source.task for source in self._sources if source.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
