"""This module is the base of a suite for engines: one engine for a class, and a fresh set of calls for each test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar

from .fixture import EngineStage, Heard
from .run_case import Play


class EngineSuite:
    """What the tests of an engine stand on: one engine for all tests of a class."""

    patience: float = 60.0
    """Seconds within which anything must happen."""
    processes: bool = True
    """Whether slots are processes, so that a call can end its own, be waited for in its middle, and print by others."""
    alone: str = ""
    """MODULE:NAME of the engine's class, for the test that kills its program; empty: there is nothing to leave."""

    _runner: ClassVar[asyncio.Runner]
    _shared_stage: ClassVar[EngineStage]
    _shared_heard: ClassVar[Heard]
    _number: ClassVar[int] = 0

    def stage(self) -> EngineStage:
        """A stage with a fresh engine."""
        raise NotImplementedError("give a stage() that returns the engine under test on its stage")

    @staticmethod
    def loop() -> asyncio.AbstractEventLoop:
        """The event loop on which all runs."""
        return asyncio.new_event_loop()

    @classmethod
    def setup_class(cls) -> None:
        cls._runner = asyncio.Runner(loop_factory=cls.loop)
        cls._shared_stage, cls._shared_heard = cls._runner.run(opened(cls().stage()))

    @classmethod
    def teardown_class(cls) -> None:
        async def end() -> None:
            await cls._shared_stage.engine.close()
            await cls._shared_stage.break_off()

        cls._runner.run(end())
        cls._runner.close()

    def _run(self, test: Callable[[Play], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            play = Play(self._shared_stage, self._shared_heard, self.patience)
            try:
                await test(play)
            finally:
                play.clear()

        self._runner.run(whole())


async def opened(stage: EngineStage) -> tuple[EngineStage, Heard]:
    heard = Heard()
    await stage.engine.start(heard)
    return stage, heard
