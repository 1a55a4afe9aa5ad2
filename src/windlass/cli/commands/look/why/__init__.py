"""``windlass why`` explains the state of a job, a machine or a group, now or at an earlier time."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import click
from rich.console import RenderableType

from windlass.cli.connection.config_option import configured
from windlass.cli.connection.job_progress import job_report
from windlass.cli.connection.kubernetes_names import kubernetes_names, unknown_object
from windlass.cli.connection.open_journal import config_file, is_missing, opened, stop
from windlass.cli.connection.remote import Remote, reachable
from windlass.cli.ui.instants import read_instant
from windlass.cli.ui.output import write
from windlass.cli.ui.pages import clock, next_steps, printed
from windlass.config import Config
from windlass.control.record.state_reader import TooOld
from windlass.control.report.current import planned_state, read_state
from windlass.control.report.leader import leader_of
from windlass.control.report.why import SCHEMA, Question
from windlass.journal import Journal

from . import demand as demand_page
from . import family as family_page
from . import group as group_page
from . import job as job_page
from . import slice as slice_page


def _remotely(remote: Remote, name: str, at: float | None, as_json: bool) -> None:
    _show(remote.get("/why", name=name, at=at), at, as_json)


@click.command(
    "why", epilog="Exit status: 0 shown, 1 there is no such name, or the journal does not reach back to that time."
)
@reachable(_remotely)
@configured
@click.argument("name", metavar="NAME")
@click.option(
    "--at",
    callback=read_instant,
    metavar="TIME",
    help="Explain the state at this time: 14:02, 2026-03-01T14:02 or '10m ago'.  [default: now]",
)
@click.option("--json", "as_json", is_flag=True, help=f"The same as JSON, for programs: {SCHEMA}.")
def command(config: Config, name: str, at: float | None, as_json: bool) -> None:
    """Explain the state of the job, machine or group NAME.

    For a job: what it waits for in each group and what would help, where it runs, or how it failed. For a machine: why
    it was started and why in this group, its states so far, and why it is kept or was released. For a group: its
    limits and the results of its launches. Jobs and machines that no longer exist are read from the journal. On
    Kubernetes also pod/NAMESPACE/NAME, node/NAME and nodeprovisioner/NAME.

    \b
    Examples:
      windlass why job-1
      windlass why gpu-3-17 --at '10m ago'
      windlass why gpu --json | jq .group.availability
      windlass why pod/default/train-0
      windlass why node/a100-7 --at '1h ago'
    """
    job = job_report(config, name) if at is None else None
    if job is not None and is_missing(config):
        document = _never_led(name, job)
    else:
        with opened(config) as journal:
            questions = [_asked(config, journal, one, at) for one in kubernetes_names(config, name)]
            asked = next((one for one in questions if one.kinds), questions[0])
            if not asked.kinds and job is None:
                stop(unknown_object(config, name) or _unknown(asked))
            document = asked.to_dict() | {"job": job}
    _show(document, at, as_json)


def _show(document: Mapping[str, Any], at: float | None, as_json: bool) -> None:
    if as_json:
        write(json.dumps(document, indent=2) + "\n")
    else:
        write(printed(page(document, at)))


def page(document: Mapping[str, Any], at: float | None) -> list[RenderableType]:
    """Render a why document."""
    parts: list[RenderableType] = [] if at is None else [f"As of {clock(at, time.time())}"]
    steps: list[str] = []
    for kind, (make_page, next_of) in _ANSWERS.items():
        if document.get(kind) is not None:
            parts += make_page(document)
            steps += next_of(document, at)
    return [*parts, next_steps(*list(dict.fromkeys(steps))[:3])]


def _never_led(name: str, job: Mapping[str, Any]) -> dict[str, Any]:
    """Answer about a job for which no controller has run yet."""
    known = {"schema": SCHEMA, "name": name, "at": time.time(), "led": False}
    return {**known, **dict.fromkeys(("slice", "demand", "group", "family")), "job": job}


def _asked(config: Config, journal: Journal, name: str, at: float | None) -> Question:
    """Return the state at the instant, and the question about it."""
    now = time.time()
    leader = leader_of(journal, now)
    try:
        controller_state = read_state(journal, at)
    except TooOld as error:
        stop(
            f"--at: {error}, but to {clock(error.since, now)}. "
            f"journal.retention in {config_file()} says for how long it keeps what happened."
        )
    planned = planned_state(controller_state, config.settings, leader.instant(now) if at is None else at)
    return Question(name, at, planned, journal, leader.alive)


def _unknown(asked: Question) -> str:
    near = asked.near_names()
    if asked.at is not None and asked.name in near:
        then = clock(asked.at, time.time())
        return f"there was no {asked.name} at {then}; leave --at out, or give a later time: windlass why {asked.name}"
    if near:
        return f"there is no job, machine or group {asked.name}; did you mean {' or '.join(near)}?"
    groups = sorted(asked.planned.settings.by_name)[:8]
    known = f"; groups: {', '.join(groups)}" if groups else ""
    return f"there is no job, machine or group {asked.name}{known}; all names: windlass status"


_ANSWERS = {
    "job": (job_page.page, job_page.steps),
    "slice": (slice_page.page, slice_page.steps),
    "demand": (demand_page.page, demand_page.steps),
    "group": (group_page.page, group_page.steps),
    "family": (family_page.page, family_page.steps),
}
