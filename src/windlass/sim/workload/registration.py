"""This module declares the workload type ``simulated``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from windlass.core.model.snapshot import Demand, Snapshot
from windlass.scenario import ScenarioError
from windlass.scenario.parser import plain_data
from windlass.scenario.reader import shown
from windlass.scenario.scenario import read_plain
from windlass.scenario.writer import write_scenario
from windlass.setting_types import YEARS, BadSettings, Duration, Place, Section, Setting
from windlass.sim.cloud.registration import SEED
from windlass.workloads.protocol import Workload
from windlass.workloads.registry import WorkloadContext, WorkloadType


def _build(settings: Mapping[str, Any], context: WorkloadContext) -> Workload:
    from windlass.sim.cloud.provider import SimulatedProvider

    from .jobs import Job
    from .workload import SimulatedWorkload

    clouds = [provider for provider in context.providers.values() if isinstance(provider, SimulatedProvider)]
    demands, requests = _demands(settings["demands"], context.snapshot)
    return SimulatedWorkload(
        (),
        lambda: [host for cloud in clouds for host in cloud.live_hosts()],
        now=context.now,
        jobs=[Job(demand, context.now(), settings["duration"]) for demand in demands],
        requests=requests,
        seed=settings["seed"],
    )


def _demands(file: str | None, snapshot: Snapshot) -> tuple[tuple[Demand, ...], tuple[Demand, ...]]:
    """Read the demands and standing requests of a file; errors name the setting that names the file."""
    if file is None:
        return (), ()
    try:
        data = plain_data(Path(file).read_bytes())
        groups = write_scenario(snapshot)["groups"]
        read = read_plain({**data, "groups": groups} if isinstance(data, Mapping) else data)
    except OSError as error:
        raise BadSettings([f"workload.demands: {shown(file)} cannot be read: {error.strerror}"]) from None
    except ScenarioError as error:
        raise BadSettings([f"workload.demands: {file}: {mistake}" for mistake in error.mistakes]) from None
    return read.demands, read.requests


SIMULATED: Final = WorkloadType(
    summary="simulated jobs, for tests and demos.",
    section=Section(
        "a simulated workload",
        (
            SEED,
            Setting(
                "demands",
                Place(),
                None,
                "",
                "A file with `demands` and `requests` as in a scenario: they arrive when the controller starts.",
                absent="none",
            ),
            Setting("duration", Duration(high=YEARS), "5m", "s", "How long one task runs."),
        ),
    ),
    build=_build,
    runs_on=frozenset({"simulated"}),
)
