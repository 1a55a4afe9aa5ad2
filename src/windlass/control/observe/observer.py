"""The observer reads every source concurrently, each with a time limit.

A slow call keeps running up to its limit while the loop goes on without it. The last answer of a source stays valid for
as long as one call may take; after that the source is unknown, and its error says why. A workload with
``answers_promptly`` is unknown earlier: as soon as a call takes much longer than the one before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from windlass.control.state.diff import TableDiff, diff
from windlass.core.model.reasons import seconds
from windlass.providers.protocol import EndConfirmingProvider, Instance, Provider
from windlass.workloads.protocol import PromptWorkload, Workload, WorkloadError, WorkNode

from .completed import Completed
from .interning import news
from .observed import Observed
from .validation import InvalidAnswer, Lists, ValidView, Views

T = TypeVar("T")
Item = TypeVar("Item", Instance, WorkNode)

PATIENCE = 0.5
"""Seconds that the loop waits for an observation that it has just started. Most take milliseconds. The loop does not
wait a second time for one that hangs.
"""
SLOWER = 3.0
"""How many times as long as the last observation one may take before the answer of a prompt source is no longer used.
On a machine where every call is slow, the answers stay usable."""


_NO_ANSWER: Final = "has not answered yet"


@dataclass
class _Source(Generic[T]):
    """One provider or the workload."""

    observe: Callable[[], Coroutine[Any, Any, object]]
    check: Callable[[object], T]
    limit: Callable[[], float]
    steady: Callable[[], float]
    on_answer: Callable[[], None]
    prompt: bool = False
    """Whether its calls take milliseconds, so that a slow one means that it has stopped answering."""
    answer: T | None = None
    asked_at: float | None = None
    """When the observation that gave the answer began."""
    took: float = 0.0
    """Seconds from then to the answer."""
    problem: str = ""
    brief: bool = False
    """Whether the failure is too recent to be reported."""
    task: asyncio.Task[None] | None = None
    _time: asyncio.Timeout | None = None
    """Time limit of the current observation."""

    def begin(self) -> bool:
        """Start an observation unless one is under way; return whether the loop should wait for it."""
        if self.is_observing:
            return False
        asked_at = self.steady()
        try:
            coroutine = self.observe()
            if isinstance(coroutine, Completed):
                self._take(coroutine.answer, asked_at)
                return False
        except Exception as error:  # noqa: BLE001  # as in an observation that takes its time
            self._fail(error)
            return False
        self.task = asyncio.create_task(self._observe(coroutine, asked_at))
        return True

    @property
    def is_observing(self) -> bool:
        return self.task is not None and not self.task.done()

    def bound(self, begun: float) -> None:
        """Set the time limit of the observation under way, counted from its start. Observations that end at once need
        no timer, which would cost more than they do.
        """
        if self._time is not None:
            self._time.reschedule(begun + self.limit())

    async def _observe(self, coroutine: Coroutine[Any, Any, object], asked_at: float) -> None:
        limit = self.limit()
        try:
            async with asyncio.timeout(None) as self._time:
                self._take(await coroutine, asked_at)
        except TimeoutError:
            self.problem = f"gave no answer within {seconds(limit)}"
        except Exception as error:  # noqa: BLE001  # an error of a source never ends the loop
            self._fail(error)
        self.on_answer()

    def _take(self, answer: object, asked_at: float) -> None:
        self.answer, self.asked_at, self.problem, self.brief = self.check(answer), asked_at, "", False
        self.took = self.steady() - asked_at

    def _fail(self, error: Exception) -> None:
        self.brief = isinstance(error, WorkloadError) and error.brief
        text = str(error) or type(error).__name__
        self.answer, self.problem = (
            None,
            f"gave an invalid answer: {error}" if isinstance(error, InvalidAnswer) else text,
        )

    def known(self) -> T | None:
        """Return the last answer while it is valid."""
        if self.answer is None or self.asked_at is None:
            return None
        age = self.steady() - self.asked_at
        if age > self.limit():
            self.problem = self.problem or f"has not answered for {seconds(round(age))}"
            return None
        return None if self.is_late(age) else self.answer

    def is_late(self, age: float) -> bool:
        """Return whether the observation under way takes so long that the last answer is not used any more."""
        return self.prompt and self.is_observing and age > max(PATIENCE, SLOWER * self.took)


@dataclass(frozen=True, slots=True)
class Observation:
    """The answers of all sources. None is "unknown"."""

    instances: Mapping[str, Mapping[str, Instance] | None]
    """Instances by provider, then by slice."""
    work: ValidView | None
    problems: Mapping[str, str] = field(default_factory=dict)
    """Problems by the name of their subject: the workload, a provider, a slice or a node."""
    awaited: frozenset[str] = frozenset()
    """Sources that have not answered yet, by name."""

    @property
    def mistakes(self) -> tuple[str, ...]:
        """A sentence for each demand that was left out."""
        return self.work.mistakes if self.work is not None else ()


class _Listing:
    """Observes a provider: its list, and the slices whose end it confirms, as ``ended``."""

    def __init__(self, provider: Provider, name: str, missing: Callable[[str], Mapping[str, str]]) -> None:
        self._provider, self._name, self._missing = provider, name, missing
        self._confirming = provider if isinstance(provider, EndConfirmingProvider) else None
        self._last: Sequence[Instance] = ()
        self._listed: set[str] = set()
        """The slices of the last list."""

    def __call__(self) -> Coroutine[Any, Any, object]:
        listing, provider = self._provider.list(), self._confirming
        if provider is None:
            return listing
        if isinstance(listing, Completed):
            asked = self._absent(listing.answer)
            if not asked:
                return listing
            ends = provider.confirm_ended(asked)
            return Completed(_with_ends(listing.answer, asked, ends.answer)) if isinstance(ends, Completed) else listing
        return self._observe(listing, provider)

    async def _observe(
        self, listing: Coroutine[Any, Any, Sequence[Instance]], provider: EndConfirmingProvider
    ) -> object:
        shown = await listing
        asked = self._absent(shown)
        return _with_ends(shown, asked, await provider.confirm_ended(asked)) if asked else shown

    def _absent(self, shown: Sequence[Instance]) -> dict[str, str]:
        """Return the slices that disappeared from the list and those that the controller misses, with their groups."""
        wanted = dict(self._missing(self._name))
        if shown is self._last and not wanted:
            return {}
        try:
            fresh, over = news(self._last, shown)
            came, left = [one.slice_id for one in fresh], {one.slice_id: one.group for one in over}
            self._listed.difference_update(left)
            self._listed.update(came)
            if len(self._listed) != len(shown):  # a slice was or is listed twice: it may leave only once
                self._listed = {one.slice_id for one in shown}
        except (AttributeError, LookupError, TypeError):  # not a list: validation reports that
            return {}
        self._last = tuple(shown)
        wanted |= left
        return {name: group for name, group in wanted.items() if name not in self._listed}


def _with_ends(shown: Sequence[Instance], asked: Mapping[str, str], ended: Collection[str]) -> Sequence[Instance]:
    at = ended if isinstance(ended, Mapping) else {}
    confirmed = [Instance(name, asked[name], "ended", (), ended_at=at.get(name)) for name in ended if name in asked]
    return (*shown, *confirmed) if confirmed else shown


class _Troubled(Generic[Item]):
    """Finds the items of a table that report trouble. Only those that changed since the last table are read."""

    def __init__(self) -> None:
        self._last: Mapping[str, Item] = {}
        self._found: dict[str, Item] = {}

    def of(self, table: Mapping[str, Item]) -> Collection[Item]:
        changes: TableDiff = diff(self._last, table)
        for name in (*changes.changed, *changes.gone):
            one = table.get(name)
            if one is not None and one.trouble:
                self._found[name] = one
            else:
                self._found.pop(name, None)
        self._last = table
        return self._found.values()


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
        """``on_answer`` is called when an observation ends after the loop stopped waiting for it. ``missing`` returns
        the slices of a provider that may have ended, with their groups: providers that remember ends confirm them.
        """
        self._on_answer, self._waited_for = on_answer, False
        self._views, self._lists = Views(), {name: Lists() for name in providers}
        self._bad_nodes = _Troubled[WorkNode]()
        self._bad_instances = {name: _Troubled[Instance]() for name in providers}
        prompt = isinstance(workload, PromptWorkload) and workload.answers_promptly
        self._workload = _Source(workload.observe, self._views, limit, steady, self._late, prompt)
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

    async def observe(self) -> Observation:
        """Return the current answers, without waiting for slow sources."""
        fresh = [source for source in self._sources if source.begin()]
        if fresh:
            self._waited_for = True
            try:
                await self._wait_for(fresh)
            finally:
                self._waited_for = False
        work = self._workload.known()
        instances = {name: source.known() for name, source in self._providers.items()}
        problems, awaited = {}, set()
        for name, source in self._providers.items():
            if source.problem or instances[name] is None:
                problems[f"provider {name}"] = source.problem or _NO_ANSWER
                if not source.problem:
                    awaited.add(f"provider {name}")
        for name, listed in instances.items():
            for one in self._bad_instances[name].of(listed) if listed is not None else ():
                if all(host.running for host in one.hosts):  # a dead host is reported as such
                    problems[f"slice {one.slice_id}"] = one.trouble
        if work is not None:
            problems |= {f"node {node.id}": node.trouble for node in self._bad_nodes.of(work.node)}
        problem, never = self._workload.problem, self._workload.answer is None
        if (problem or never) and not self._workload.brief:
            problems["workload"] = problem or _NO_ANSWER
        if work is None and not problem:
            awaited.add("workload")
        return Observation(instances, work, problems, frozenset(awaited))

    async def _wait_for(self, fresh: Sequence[_Source[Any]]) -> None:
        """Wait briefly for the observations that have just begun."""
        begun = asyncio.get_running_loop().time()
        try:
            await asyncio.sleep(0)  # many answer at once
        finally:  # cancelling this wait does not cancel the observations
            slow = [source for source in fresh if source.is_observing]
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
