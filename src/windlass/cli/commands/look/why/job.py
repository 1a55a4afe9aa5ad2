"""This module renders the explanation of a job: what its tasks do, how they ended, and the last output of failed
ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from windlass.cli.connection.job_progress import progress
from windlass.cli.ui.pages import clock, grid, section, span
from windlass.core.model.reasons import plural

MOST_NODES = 4


def page(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    now, job = document["at"], document["job"]
    yield Text.assemble(
        (f"Job {job['name']}", "bold"),
        f": {job['state']}; {progress(job)}; submitted at {clock(job['submitted'], now)} "
        f"({span(now - job['submitted'])} ago)",
    )
    if job["running"]:
        names = ", ".join(job["nodes"][:MOST_NODES])
        more = f" and {len(job['nodes']) - MOST_NODES} more" if len(job["nodes"]) > MOST_NODES else ""
        yield Text(f"{plural(job['running'], 'task')} running on {names}{more}")
    if job["waiting"] and document["demand"] is None:
        yield Text(_unseen(document))
    for failure in job["failures"]:
        yield section(_title(failure), *_last(failure))
    if job["failed"] > len(job["failures"]):
        yield Text(f"and {job['failed'] - len(job['failures'])} more that failed")


def _unseen(document: Mapping[str, Any]) -> str:
    waiting = plural(document["job"]["waiting"], "task")
    if document["led"]:
        return f"{waiting} waiting; the controller has not planned for them yet"
    return f"{waiting} waiting for a controller: none runs"


def _title(failure: Mapping[str, Any]) -> str:
    code = failure["exit_code"]
    killed = f" (killed by signal {code - 128})" if code is not None and code > 128 else ""
    return f"Task {failure['task']} failed with exit code {code}{killed} on {failure['node']}"


def _last(failure: Mapping[str, Any]) -> Iterator[RenderableType]:
    lines = failure["last_lines"]
    if not lines:
        yield Text(f"it has no output; its log is {failure['log']}")
        return
    table = grid("fold")
    for line in lines:
        table.add_row(Text(f"| {line}"))
    yield table
    yield Text(f"the whole log: {failure['log']}", style="dim")


def steps(document: Mapping[str, Any], _at: float | None) -> list[str]:
    job = document["job"]
    if job["failures"]:
        return [f"windlass logs {job['name']} {job['failures'][0]['task']}"]
    if job["running"]:
        return [f"windlass logs {job['name']} --follow"]
    if job["waiting"]:
        return [] if document["led"] else ["windlass run"]
    return [f"windlass logs {job['name']}"]
