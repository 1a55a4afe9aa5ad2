"""``windlass why``: why a slice, a demand or a group is as it is, now or at an earlier time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

import click

from windlass.cli.connection.config_option import configured
from windlass.cli.connection.open_journal import config_file, leader_of, opened, stop
from windlass.cli.ui.instants import read_instant
from windlass.cli.ui.output import write
from windlass.cli.ui.pages import clock, next_steps, printed
from windlass.config import Config
from windlass.control.record.journal_tables import TooOld
from windlass.control.report.current import Picture, chronicle_of, pictured
from windlass.control.report.history import life_of, wait_of
from windlass.core.model.reasons import nearest_names
from windlass.journal import Journal

from . import demand as why_demand
from . import group as why_group
from . import slice as why_slice
from .question import Asked

SCHEMA = "windlass.why/v1"
LOOKED_BACK = 5000
"""Records that are looked through for names like the one that is not known."""


@click.command("why", epilog="Exit status: 0 told, 1 there is no such name, or the journal does not reach back so far.")
@configured
@click.argument("name", metavar="NAME")
@click.option(
    "--at",
    callback=read_instant,
    metavar="TIME",
    help="The answer as of then: 14:02, 2026-03-01T14:02 or '10m ago'.  [default: now]",
)
@click.option("--json", "as_json", is_flag=True, help=f"The same as JSON, for programs: {SCHEMA}.")
def command(config: Config, name: str, at: float | None, as_json: bool) -> None:
    """Tell why the slice, demand or group NAME is as it is.

    For a demand: what hinders it in each group, what would help, what is on its way. For a slice: why it started and
    why in this group, its life so far, why it is still here, or who said that it was empty before it ended. For a
    group: what limits it and how well its launches went. What is gone is found in the journal.

    \b
    Examples:
      windlass why job-1
      windlass why gpu-3-17 --at '10m ago'
      windlass why gpu --json | jq .group.availability
    """
    with opened(config) as journal:
        asked = _asked(config, journal, name, at)
        if not asked.kinds:
            stop(_nobody(name, asked.picture, journal))
        answer: dict[str, Any] = {
            "schema": SCHEMA,
            "name": name,
            "at": asked.picture.now,
            **dict.fromkeys(("slice", "demand", "group")),
        }
        parts, steps = [], []
        for kind in asked.kinds:
            told = _ANSWERS[kind](asked)
            answer[kind] = told.data
            parts += told.parts
            steps += told.steps
    if as_json:
        write(json.dumps(answer, indent=2) + "\n")
        return
    if at is not None:
        parts.insert(0, f"As of {clock(at, time.time())}")
    write(printed([*parts, next_steps(*list(dict.fromkeys(steps))[:3])]))


def _asked(config: Config, journal: Journal, name: str, at: float | None) -> Asked:
    """The picture at the instant, and what the journal knows under the name."""
    now = time.time()
    leader = leader_of(journal, now)
    try:
        chronicle = chronicle_of(journal, at)
    except TooOld as error:
        stop(
            f"--at: {error}, but to {clock(error.since, now)}. "
            f"journal.retention in {config_file()} says for how long it keeps what happened."
        )
    instant = at if at is not None else now if leader.alive or leader.seen_at is None else leader.seen_at
    picture = pictured(chronicle, config.settings, instant)
    return Asked(name, at, picture, journal, leader.alive, life_of(journal, name, at), wait_of(journal, name, at))


def _nobody(name: str, picture: Picture, journal: Journal) -> str:
    chronicle = picture.chronicle
    known = {*picture.settings.by_name, *chronicle.book.slices, *chronicle.sighted.demand, *chronicle.sighted.request}
    past = {one.subject for one in journal.read(kinds=("slice", "demand"), newest_first=True, limit=LOOKED_BACK)}
    near = nearest_names(name, known | past)
    if near:
        return f"there is no slice, demand or group {name}; did you mean {' or '.join(near)}?"
    return f"there is no slice, demand or group {name}; {_listed('groups', picture.settings.by_name)}windlass status"


def _listed(what: str, names: Iterable[str]) -> str:
    some = sorted(names)[:8]
    return f"{what} are {', '.join(some)}; all names: " if some else "all names: "


_ANSWERS = {"slice": why_slice.answer, "demand": why_demand.answer, "group": why_group.answer}
