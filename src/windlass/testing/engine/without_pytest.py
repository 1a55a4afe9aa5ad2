"""This program starts an engine, a node and a call that never ends; a test kills it and checks what is left.

python -m windlass.testing.engine.without_pytest MODULE:ENGINE
"""

from __future__ import annotations

import asyncio
import importlib
import os
import subprocess
import sys
import time

from windlass.pool.engines.protocol import Call, Engine
from windlass.pool.transport.serialization import pack_arguments, pack_batch, pack_function

from .fixture import RecordingListener

READY = "ready"
LIMIT = 600.0
"""Seconds for each step, only so that the program ends if its test was killed: the test has its own limit."""


async def stand(engine: Engine, seconds: float) -> None:
    """Wait until the process is killed."""
    events = RecordingListener()
    await engine.start(events)
    join = engine.join("alone", 2)
    subprocess.Popen(join.command, env={**os.environ, **join.environment}, start_new_session=True)
    await events.until(lambda: events.of("alone"), seconds)
    for slot in range(2):
        batch = pack_batch(pack_function(time.sleep), [pack_arguments((3600,))])
        engine.run(Call(f"call-{slot}", "alone", slot, batch))
    await events.until(lambda: events.of("call-0") and events.of("call-1"), seconds)
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    module, name = sys.argv[1].split(":")
    asyncio.run(stand(getattr(importlib.import_module(module), name)(), LIMIT))
