"""``windlass run --shadow`` observes and plans while another autoscaler runs the cluster, and changes nothing."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

from windlass.config import Config
from windlass.config.build import build_components
from windlass.control.report.events import EventLine, lines
from windlass.control.shadow import Shadow
from windlass.core.model.reasons import plural
from windlass.journal import open_journal
from windlass.workloads.protocol import ElectedWorkload, Workload

from . import RunLog, steady
from .stop_signals import stop_signals

NAME = "shadow.db"


def journal_of_shadow(config: Config, file: str) -> str:
    """Return a path next to the controller's journal, or next to the configuration if the journal is in a database."""
    location = config.journal.location
    home = Path(file).absolute().parent / ".windlass" if "://" in location or location == ":memory:" else Path(location)
    return str(home / NAME if home.name == ".windlass" else home.with_name(NAME))


async def run_shadow(file: str, config: Config, log: RunLog) -> int:
    """Run until Ctrl-C or SIGTERM."""
    components = build_components(config, read_only=True)
    stop = asyncio.Event()
    location = journal_of_shadow(config, file)
    with (
        open_journal(location) as journal,
        stop_signals(stop.set, lambda: log.message("stopped before every call had ended")),
    ):
        shadow = Shadow(
            config.settings,
            components.providers,
            components.workload,
            journal,
            now=time.time,
            steady=steady,
            leadership=config.leader,
        )
        log.message(f"shadow mode: nothing is changed; what it would do is recorded in {location}")
        interval = config.settings.policy.evaluation_interval
        try:
            if isinstance(components.workload, ElectedWorkload) and components.workload.health is not None:
                await components.workload.health.start()
            while not stop.is_set():
                for line in lines(await shadow.tick()):
                    log.write(line)
                for name, would in shadow.controller_state.would.items():
                    what = f"{plural(would.count, 'machine')} of {would.subject}" if would.count > 1 else would.subject
                    code = str(would.reason.code)
                    log.write(
                        EventLine(time.time(), "would", code, f"would {would.verb} {what}: {would.reason.why}", (name,))
                    )
                await _pause(stop, components.workload, interval.min, interval.max)
        finally:
            await shadow.stop()
            await components.close()
            log.close()
    log.message("stopped; next: windlass shadow report")
    return 0


async def _pause(stop: asyncio.Event, workload: Workload, least: float, most: float) -> None:
    """Wait for news of the workload, at least the shortest and at most the longest interval."""
    began = steady()
    waits = {asyncio.create_task(stop.wait()), asyncio.create_task(workload.changed())}
    await asyncio.wait(waits, timeout=most, return_when=asyncio.FIRST_COMPLETED)
    for one in waits:
        one.cancel()
    await asyncio.gather(*waits, return_exceptions=True)
    left = began + least - steady()
    if left > 0:
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                await stop.wait()
