"""``windlass status`` shows what the cluster is doing now."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.text import Text

from windlass.cli.connection.config_option import configured
from windlass.cli.connection.job_progress import job_rows, progress
from windlass.cli.connection.open_journal import opened
from windlass.cli.connection.remote import Remote, reachable
from windlass.cli.ui.output import write
from windlass.cli.ui.pages import clock, code, coloured, grid, headed, money, next_steps, printed, section, span
from windlass.config import Config
from windlass.control.report.current import planned_state, read_state
from windlass.control.report.events import problem_name
from windlass.control.report.leader import leader_of
from windlass.control.report.status import SCHEMA, Status, spent_since
from windlass.control.state.fleet import EVERY_GROUP
from windlass.core.model.lifecycle import IN_FLIGHT, State
from windlass.core.model.reasons import Code, plural

MOST: Final = 20
"""The number of rows in a table; ``--all`` and ``--json`` show all."""


def _remotely(remote: Remote, everything: bool, as_json: bool) -> None:
    _show({"jobs": None, **remote.get("/status")}, everything, as_json)


@click.command("status", epilog="Exit status: 0 shown, 1 the configuration or the journal is wrong.")
@reachable(_remotely)
@configured
@click.option("--all", "everything", is_flag=True, help="Every machine and every job, without a limit.")
@click.option("--json", "as_json", is_flag=True, help=f"The same as JSON, for programs: {SCHEMA}.")
def command(config: Config, everything: bool, as_json: bool) -> None:
    """Show what the cluster is doing now: machines, jobs, what waits and why, problems, cost.

    It is read from the journal. If no controller runs, it shows the last known state and its age.

    \b
    Examples:
      windlass status
      windlass status --json | jq .groups
    """
    with opened(config) as journal:
        now = time.time()
        leader = leader_of(journal, now)
        planned = planned_state(read_state(journal), config.settings, leader.instant(now))
        document = Status(config.settings, leader, planned, now, spent_since(journal)).to_dict()
    document["jobs"] = job_rows(config)
    _show(document, everything, as_json)


def _show(document: Mapping[str, Any], everything: bool, as_json: bool) -> None:
    if as_json:
        write(json.dumps(document, indent=2) + "\n")
    else:
        write(printed(page(document, None if everything else MOST)))


# -- for people ----------------------------------------------------------------------------------------------------

Document = Mapping[str, Any]


def page(status: Document, most: int | None) -> Iterator[RenderableType]:
    """Render a status document with at most ``most`` rows in each table."""
    yield Text(first_sentence(status), style="bold")
    yield _header(status)
    if status["troubles"]:
        yield section(coloured("Problems", "bold red"), _problems(status, most))
    yield section("Groups", _groups(status))
    if status["slices"]:
        yield section(f"Machines: {len(status['slices'])}", *_slices(status, most))
    if jobs := [one for one in status.get("jobs") or () if one["state"] in ("running", "waiting", "failed")]:
        yield section(f"Jobs: {len(jobs)} of {len(status['jobs'])} running, waiting or failed", *_jobs(jobs, most))
    if status["demands"]:
        tasks = sum(one["tasks"] for one in status["demands"])
        yield section(f"Waiting: {plural(tasks, 'task')}", *_demands(status, most))
    yield _cost(status)
    yield next_steps(*_next(status))


def first_sentence(status: Document) -> str:
    """Summarise machines, cost, progress and waiting tasks in one sentence, with the age if no controller runs."""
    machines, waiting = status["slices"], sum(one["tasks"] for one in status["demands"])
    parts = [
        plural(len(machines), "machine") if machines else "no machines",
    ]
    if has_prices(status):
        parts.append(f"{money(status['hourly_cost']['now'])}/h")
    if jobs := status.get("jobs"):
        open_jobs = [one for one in jobs if one["state"] in ("running", "waiting")]
        counted = open_jobs or jobs
        done, tasks = sum(one["done"] for one in counted), sum(one["tasks"] for one in counted)
        of = f" of {plural(len(counted), 'open job')}" if len(counted) < len(jobs) else ""
        parts.append(f"{done} of {plural(tasks, 'task')}{of} done")
        parts += [f"{count} {key}" for key in ("failed", "cancelled") if (count := sum(one[key] for one in counted))]
    parts.append(_waiting_words(status, waiting) if waiting else "nothing waits")
    text = ", ".join(parts)
    leader = status["leader"]
    if leader["alive"]:
        return text
    if leader["seen_at"] is None:
        return f"no controller has run yet; {text}"
    ago = f"{clock(status['as_of'], status['at'])}, {span(status['at'] - status['as_of'])} ago"
    return f"no controller runs; this is what was known at {ago}: {text}"


def _waiting_words(status: Document, waiting: int) -> str:
    parts = [part for demand in status["demands"] for part in demand["parts"]]
    coming = [part for part in parts if part["code"] is not None and part["starts_in"] is not None]
    soon = sum(part["tasks"] for part in coming)
    latest = max((part["starts_in"] for part in coming), default=0)
    if soon == waiting:
        return f"{waiting} waiting for machines that start in about {span(max(1, latest))}"
    if soon:
        return f"{waiting} waiting, {soon} of them for machines that start in about {span(max(1, latest))}"
    return f"{waiting} waiting"


def leader_line(leader: Document, now: float) -> Text:
    """Tell which controller leads, or since when none does."""
    if leader["alive"]:
        return Text.assemble(("Controller: ", "bold"), str(leader["holder"]))
    gone = "none runs"
    if leader["seen_at"] is not None:
        gone += f"; last seen {span(now - leader['seen_at'])} ago"
        gone += f" as {leader['holder']}, which did not stop cleanly" if leader["holder"] else ", when it was stopped"
    return Text.assemble(("Controller: ", "bold"), (gone, "bold yellow"))


def _header(status: Document) -> RenderableType:
    lines = [leader_line(status["leader"], status["at"])]
    for subject, by in sorted(status["frozen"].items()):
        what = "everything" if subject == EVERY_GROUP else subject
        lines.append(Text.assemble(("Frozen: ", "bold yellow"), f"{what}, by {by}: nothing is bought or released"))
    if status["settings_differ"]:
        text = "the configuration file differs from the settings that the controller uses"
        if not status["leader"]["alive"]:
            text = "the configuration file has changed since the controller was last seen"
        lines.append(Text.assemble(("Note: ", "bold yellow"), text))
    return Lines(*lines)


def _problems(status: Document, most: int | None) -> RenderableType:
    table = grid("-", "fold")
    shown = list(status["troubles"].items())
    for name, text in shown[:most]:
        source = name == "workload" or name.startswith("provider ")
        more = "; nothing is released while it is unknown" if source else ""
        table.add_row(coloured(f"! {problem_name(name)}", "bold red"), f"{text}{more}")
    if most is not None and len(shown) > most:
        table.add_row(f"and {len(shown) - most} more", "")
    return table


def _groups(status: Document) -> RenderableType:
    table = headed("group", "ready>", "starting>", "leaving>", "max>", "busy>", "cost>", "starts in>", "availability*")
    for one in group_rows(status):
        table.add_row(
            one["name"],
            str(one["ready"]),
            str(one["coming"]),
            str(one["leaving"]),
            "-" if one["max"] is None else str(one["max"]),
            str(one["busy"]),
            f"{money(one['hourly_cost'])}/h" if is_priced(one) else "no price",
            "" if "groups" in one else "?" if one["boot_seconds"] is None else span(one["boot_seconds"]),
            _family_text(one) if "groups" in one else availability_text(one, status["as_of"]),
        )
    return table


def group_rows(status: Document) -> Iterator[Document]:
    """Return one row per family and its notable groups (with machines, unavailable, or frozen); then other groups."""
    families = {one["name"]: one for one in status.get("families") or ()}
    printed: set[str] = set()
    for one in status["groups"]:
        family = families.get(one.get("family") or "")
        if family is None:
            yield one
            continue
        if family["name"] not in printed:
            printed.add(family["name"])
            yield family
        in_use = one["ready"] or one["coming"] or one["leaving"]
        if in_use or one["frozen_by"] or one["availability"]["state"] in ("backoff", "quota_exceeded"):
            yield {**one, "name": f"  {one['name']}"}


def _family_text(family: Document) -> Text:
    if family["frozen_by"]:
        return coloured(f"frozen by {family['frozen_by']}", "yellow")
    return Text(f"{plural(len(family['groups']), 'offer')}: windlass why {family['name']}")


def availability_text(one: Document, now: float) -> Text:
    """Tell whether one more machine can be bought now, and if not, why and until when."""
    if one["max"] is None:
        return coloured("removed from the settings: what is left is drained", "yellow")
    if one["frozen_by"]:
        return coloured(f"frozen by {one['frozen_by']}", "yellow")
    state, until, why = (one["availability"][key] for key in ("state", "until", "why"))
    if state in ("backoff", "quota_exceeded"):
        name = "quota" if state == "quota_exceeded" else state
        left = "" if until is None else f" until {clock(until, now)} ({span(until - now)})"
        if until is not None and until <= now:
            left = ", one launch at a time is tried"
        return coloured(f"{name}{left}: {why}", "red")
    match one["next"]["code"]:
        case None:
            return coloured("available", "green")
        case Code.AT_MAX:
            return coloured("at its max", "yellow")
        case _:
            return coloured(one["next"]["why"].removeprefix(f"{one['name']}: "), "yellow")


_STYLES: Final = {State.READY: "green", State.LOST: "red", State.TERMINATE_FAILED: "red", State.LAUNCH_TIMEOUT: "red"}


def state_text(state: str) -> Text:
    known = State(state)
    return coloured(known, _STYLES.get(known, "yellow" if known in IN_FLIGHT else "magenta"))


def _slices(status: Document, most: int | None) -> Iterator[RenderableType]:
    table, rows = headed("machine", "group", "state", "for>", "tasks>", "code", "why*"), status["slices"]
    for one in rows[:most]:
        quarantined = f"slice {one['id']}" in status["troubles"] and one["code"] is None
        table.add_row(
            one["id"],
            one["group"],
            state_text(one["state"]),
            span(status["as_of"] - one["since"]),
            str(one["tasks"]),
            code(one["code"]),
            coloured(one["why"], "red") if quarantined else one["phase"] or one["why"],
        )
    yield table
    if most is not None and len(rows) > most:
        yield Text(f"and {len(rows) - most} more: windlass status --all", style="dim")


def _jobs(jobs: list[Any], most: int | None) -> Iterator[RenderableType]:
    table, styles = headed("job", "state", "progress*"), {"failed": "red", "running": "green"}
    for one in jobs if most is None else jobs[-most:]:
        table.add_row(one["name"], coloured(one["state"], styles.get(one["state"], "yellow")), progress(one))
    yield table
    if most is not None and len(jobs) > most:
        yield Text(f"and {len(jobs) - most} more: windlass jobs", style="dim")


def _demands(status: Document, most: int | None) -> Iterator[RenderableType]:
    table = headed("job", "tasks>", "since", "code", "why*")
    rows = [(demand, part) for demand in status["demands"] for part in demand["parts"]]
    for demand, part in rows[:most]:
        since = "?" if demand["since"] is None else clock(demand["since"], status["at"])
        table.add_row(demand["id"], str(part["tasks"]), since, code(part["code"]), part["why"])
    yield table
    if most is not None and len(rows) > most:
        yield Text(f"and {len(rows) - most} more: windlass status --all", style="dim")


def is_priced(one: Document) -> bool:
    """Whether the cost of a group or a family is known: it has a price, or machines with one."""
    return "groups" in one or one["price"] is not None or bool(one["hourly_cost"])


def has_prices(status: Document) -> bool:
    """Whether any cost is known."""
    return bool(status["hourly_cost"]["now"]) or any(is_priced(one) for one in status["groups"])


def _cost(status: Document) -> Text:
    cost, bill = status["hourly_cost"], dict(status["bill"])
    if not has_prices(status):
        return Text.assemble(("\nCost: ", "bold"), "no group has a price")
    line = Text.assemble(("\nCost: ", "bold"), f"{money(cost['now'])}/h now, {money(cost['planned'])}/h planned")
    total = bill.pop("total")
    if total:
        parts = ", ".join(f"{kind} {money(part)}" for kind, part in bill.items() if part)
        line.append(f"; spent so far {money(total)}: {parts}")
    return line


def _next(status: Document) -> list[str]:
    """Return the most useful next commands, at most three."""
    found, alive, slices = [], status["leader"]["alive"], status["slices"]
    if not alive:
        found.append("windlass doctor")
    stuck = [one for one in status["demands"] if one["groups"]]
    if stuck:
        found.append(f"windlass why {stuck[0]['id']}")
    with_problems = {name.removeprefix("slice ") for name in status["troubles"]}
    usual = IN_FLIGHT | {State.READY}
    odd = [one for one in slices if State(one["state"]) not in usual or one["id"] in with_problems]
    if odd or slices:
        found.append(f"windlass why {(odd or slices)[0]['id']}")
    if status["frozen"]:
        found.append("windlass resume")
    elif status["troubles"] and alive:
        found.append("windlass doctor")
    found.append("windlass events --follow" if alive else "windlass events")
    return found[:3]
