"""This module runs one test of the suite for engines: its nodes, its calls, and the events of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from windlass.pool.engines.protocol import Call, CallOutcome, NodeFacts
from windlass.pool.transport.serialization import (
    ItemResult,
    pack_arguments,
    pack_batch,
    pack_function,
    result_of,
    unpack_results,
)
from windlass.testing.eventually import eventually

from .fixture import EngineStage, RecordingListener, living, starts


def batch_of(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> bytes:
    """Pack a batch of one item."""
    return pack_batch(pack_function(function), [pack_arguments(args, kwargs)])


class CaseRun:
    """One test on the stage: its nodes, its calls, and the events of both."""

    _numbers = 0
    _idle: ClassVar[WeakKeyDictionary[EngineStage, dict[int, list[NodeFacts]]]] = WeakKeyDictionary()
    """The nodes that the next test may use, by their slots."""

    def __init__(self, stage: EngineStage, events: RecordingListener, patience: float) -> None:
        self.stage, self.events, self.engine = stage, events, stage.engine
        self._patience = patience
        self._own: list[str] = []
        """The nodes that no other test gets."""
        self._in_use: list[tuple[int, NodeFacts]] = []
        self._given: list[str] = []

    def name(self) -> str:
        CaseRun._numbers += 1
        return f"c-{CaseRun._numbers}"

    def clear(self) -> None:
        """Keep the nodes of the test for the next one, or release them."""
        for call in self._given:
            self.stage.let_go(call)
        for node in self._own:
            self.engine.dismiss(node)
        for slots, facts in self._in_use:
            if self.events.of(facts.node)[-1][0] != "left":
                self._idle[self.stage].setdefault(slots, []).append(facts)

    async def node(self, slots: int = 1, *, own: bool = False) -> NodeFacts:
        """Return an idle node. ``own``: one that the test may break; others are used again by later tests, because
        starting one may take seconds."""
        idle = self._idle.setdefault(self.stage, {}).get(slots, [])
        if idle and not own:
            self._in_use.append((slots, idle.pop()))
            return self._in_use[-1][1]
        name = f"n-{self.name()}"
        await self.stage.host(name, self.engine.join(name, slots))
        await self.until(lambda: self.events.of(name))
        facts: NodeFacts = self.events.of(name)[0][2]
        if own:
            self._own.append(name)
        else:
            self._in_use.append((slots, facts))
        return facts

    def give(self, call: Call) -> str:
        self._given.append(call.id)
        self.engine.run(call)
        return call.id

    def call(
        self,
        node: NodeFacts,
        batch: bytes,
        *,
        slot: int = 0,
        environment: Mapping[str, str] | None = None,
        items: int = 1,
    ) -> str:
        return self.give(Call(self.name(), node.node, slot, batch, environment or {}, items))

    def run(self, node: NodeFacts, function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
        return self.call(node, batch_of(function, *args, **kwargs))

    def hold(self, node: NodeFacts, slot: int = 0) -> str:
        """Start a call that runs until ``let_go``."""
        call = self.name()
        return self.give(Call(call, node.node, slot, self.stage.held(call)))

    async def until(self, wanted: Callable[[], object]) -> None:
        await self.events.until(wanted, self._patience)

    async def until_began(self, *calls: str) -> None:
        await self.until(lambda: all(("began", call) in self.events.all for call in calls))

    async def until_left(self, node: NodeFacts) -> None:
        await self.until(lambda: self.events.of(node.node)[-1][0] == "left")

    async def outcome(self, call: str) -> CallOutcome:
        await self.until(lambda: self.events.outcomes(call))
        return self.events.outcomes(call)[0]

    async def results(self, call: str) -> list[ItemResult]:
        outcome = await self.outcome(call)
        assert outcome.ending == "done", outcome.detail
        return [result_of(raw) for raw in unpack_results(self.events.results(call))]

    async def value(self, node: NodeFacts, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return (await self.results(self.run(node, function, *args, **kwargs)))[0].value()

    def starts(self, call: str) -> int:
        return len(starts(self.stage.directory, call))

    async def until_dead(self, *calls: str) -> None:
        """Wait until all processes in which these calls have started are gone."""

        async def look() -> list[int]:
            return living(pid for call in calls for pid in starts(self.stage.directory, call))

        await eventually(look, lambda left: not left, within=self._patience)
