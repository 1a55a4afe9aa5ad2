"""This module is the base of a suite for engines: one engine for a class, and a fresh set of calls for each test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar

from .fixture import EngineStage, RecordingListener
from .run_case import CaseRun


class EngineSuite:
    """The base of the engine tests: one engine for all tests of a class."""

    patience: float = 60.0
    """The time limit in seconds of every wait."""
    processes: bool = True
    """Whether slots are processes: a call can then kill its own, wait in the middle, and print from child processes."""
    alone: str = ""
    """MODULE:NAME of the engine's class, for the test that kills its program; empty: the test is skipped."""

    _runner: ClassVar[asyncio.Runner]
    _shared_stage: ClassVar[EngineStage]
    _shared_events: ClassVar[RecordingListener]
    _number: ClassVar[int] = 0

    def stage(self) -> EngineStage:
        """Return a stage with a new engine."""
        raise NotImplementedError("give a stage() that returns the engine under test on its stage")

    @staticmethod
    def loop() -> asyncio.AbstractEventLoop:
        """Return the event loop of all tests of the class."""
        return asyncio.new_event_loop()

    @classmethod
    def setup_class(cls) -> None:
        cls._runner = asyncio.Runner(loop_factory=cls.loop)
        cls._shared_stage, cls._shared_events = cls._runner.run(opened(cls().stage()))

    @classmethod
    def teardown_class(cls) -> None:
        async def end() -> None:
            await cls._shared_stage.engine.close()
            await cls._shared_stage.break_off()

        cls._runner.run(end())
        cls._runner.close()

    def _run(self, test: Callable[[CaseRun], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            case = CaseRun(self._shared_stage, self._shared_events, self.patience)
            try:
                await test(case)
            finally:
                case.clear()

        self._runner.run(whole())


async def opened(stage: EngineStage) -> tuple[EngineStage, RecordingListener]:
    events = RecordingListener()
    await stage.engine.start(events)
    return stage, events
