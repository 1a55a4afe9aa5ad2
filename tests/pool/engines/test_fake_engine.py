"""The engine without processes keeps the contract of an engine, on virtual time."""

import tempfile
from pathlib import Path

from windlass.pool.transport.serialization import pack_arguments, pack_batch, pack_function
from windlass.sim.run.virtual_loop import VirtualLoop
from windlass.testing.engine.conformance import EngineConformance
from windlass.testing.engine.fixture import trace
from windlass.testing.fake_engine import FakeEngine


class FakeStage:
    def __init__(self):
        self.engine = FakeEngine(seconds=lambda call: 1.0, join_seconds=30.0)
        self._directory = tempfile.TemporaryDirectory()
        self.directory = Path(self._directory.name)

    async def host(self, node, join):
        self.engine.arrive(join)

    async def kill_host(self, node):
        self.engine.lose(node)

    def held(self, call):
        self.engine.hold(call)
        return pack_batch(pack_function(trace), [pack_arguments((str(self.directory), call))])

    def let_go(self, call):
        self.engine.release(call)

    async def leftovers(self):
        return ()

    async def break_off(self):
        self._directory.cleanup()


class TestFakeEngine(EngineConformance):
    processes = False

    @staticmethod
    def loop():
        return VirtualLoop()

    def stage(self):
        return FakeStage()
