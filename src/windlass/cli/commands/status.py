"""``windlass status``: what the cluster is doing now."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import click
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.text import Text

from windlass.cli.connection.config_option import configured
from windlass.cli.connection.open_journal import Leader, leader_of, opened
from windlass.cli.ui.output import write
from windlass.cli.ui.pages import clock, code, coloured, grid, headed, next_steps, printed, section, span
from windlass.config import Config
from windlass.control.reconcile.provider_health import boot_time
from windlass.control.record.costs import KINDS, Account, charged
from windlass.control.record.journal_tables import SETTINGS
from windlass.control.report.current import Part, Picture, chronicle_of, pictured
from windlass.control.state.fleet import EVERY_GROUP, SliceRecord
from windlass.core.model.lifecycle import COSTLY, IN_FLIGHT, State
from windlass.core.model.quantities import dollars, format_money
from windlass.core.model.reasons import plural
from windlass.core.model.snapshot import Availability, Demand

SCHEMA: Final = "windlass.status/v1"
MOST: Final = 20
"""Lines of a table; more is read with ``--all``, or by programs."""


@click.command("status", epilog="Exit status: 0 told, 1 the configuration or the journal is wrong.")
@configured
@click.option("--all", "everything", is_flag=True, help="Every slice and every demand, however many.")
@click.option("--json", "as_json", is_flag=True, help=f"The same as JSON, for programs: {SCHEMA}.")
def command(config: Config, everything: bool, as_json: bool) -> None:
    """Show what the cluster is doing now: who leads, what is in trouble, groups, slices, demand, cost.

    All of it is read from the journal: it works when no controller runs, too, and shows what was last known then.

    \b
    Examples:
      windlass status
      windlass status --json | jq .groups
    """
    with opened(config) as journal:
        now = time.time()
        leader = leader_of(journal, now)
        chronicle = chronicle_of(journal)
    # Without a controller nothing goes on: the countdowns stand where they stood when it was last seen.
    instant = now if leader.alive or leader.seen_at is None else leader.seen_at
    status = Status(config, leader, pictured(chronicle, config.settings, instant), now)
    if as_json:
        write(json.dumps(status.to_dict(), indent=2) + "\n")
    else:
        write(printed(_page(status, None if everything else MOST)))


# -- what there is to tell -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group and its slices."""

    name: str
    ready: int
    coming: int
    leaving: int
    busy: int
    max: int | None
    """None: the group is not in the settings any more."""
    hourly_cost: int
    availability: Availability
    frozen: str
    boot: float | None


@dataclass(frozen=True)
class Status:
    """All that ``windlass status`` tells."""

    config: Config
    leader: Leader
    picture: Picture
    now: float

    @cached_property
    def records(self) -> list[SliceRecord]:
        """By group, in the order of their lives."""
        order = {state: index for index, state in enumerate(State)}
        slices = self.picture.chronicle.book.slices.values()
        return sorted(slices, key=lambda one: (one.group, order[one.state], one.since, one.id))

    @cached_property
    def groups(self) -> list[GroupLine]:
        return [
            self._group(name) for name in sorted({*self.picture.settings.by_name, *(r.group for r in self.records)})
        ]

    def _group(self, name: str) -> GroupLine:
        mine = [record for record in self.records if record.group == name]
        sold = self.picture.settings.by_name.get(name)
        planned = {group.name: group for group in self.picture.snapshot.groups}
        frozen = self.picture.chronicle.book.frozen
        ready = [one for one in mine if one.state == State.READY]
        coming = [one for one in mine if one.state in IN_FLIGHT]
        return GroupLine(
            name,
            len(ready),
            len(coming),
            len(mine) - len(ready) - len(coming),
            sum(any(node.busy for node in one.nodes) for one in mine),
            None if sold is None else sold.group.max,
            sum(one.price for one in mine if one.state in COSTLY),
            planned[name].availability if name in planned else Availability(),
            frozen.get(name) or frozen.get(EVERY_GROUP, ""),
            boot_time(self.picture.luck(name)),
        )

    @cached_property
    def demands(self) -> list[tuple[Demand, tuple[Part, ...]]]:
        """What waits, the largest first; standing requests only while they are not met."""
        sighted, waits = self.picture.chronicle.sighted, {one.demand for one in self.picture.plan.waiting}
        found = [*sighted.demand.values(), *(one for one in sighted.request.values() if one.id in waits)]
        return [(one, self.picture.parts(one)) for one in sorted(found, key=lambda one: (-one.count, one.id))]

    @cached_property
    def troubles(self) -> dict[str, str]:
        """What is in trouble, by name: sources, calls, slices that nobody touches any more."""
        held = {f"slice {one.id}": f"quarantined: {one.quarantine}" for one in self.records if one.quarantine}
        stuck = {
            f"slice {one.id}": f"cannot be ended: {one.reason.why}"
            for one in self.records
            if one.state == State.TERMINATE_FAILED
        }
        found = {**held, **stuck, **self.picture.chronicle.sighted.trouble}
        return dict(sorted(found.items(), key=lambda item: (item[0].startswith("slice "), item[0])))

    @cached_property
    def accounts(self) -> Mapping[str, Account]:
        chronicle = self.picture.chronicle
        return charged(chronicle.account, chronicle.book, chronicle.stay, self.now)

    @cached_property
    def bill(self) -> dict[str, int]:
        """What was spent so far, in nanodollars, by what for."""
        return {kind: round(sum(one.dollars(kind) for one in self.accounts.values()) * 10**9) for kind in KINDS}

    @property
    def hourly_cost(self) -> tuple[int, int]:
        """Now and planned; slices of groups that are gone from the settings cost as well."""
        cost, known = self.picture.plan.hourly_cost, self.picture.settings.by_name
        removed = sum(one.price for one in self.records if one.group not in known and one.state in COSTLY)
        return cost.now + removed, cost.planned + removed

    @property
    def other_settings(self) -> bool:
        """Whether the file says something else than what the controller goes by."""
        running = self.picture.chronicle.settings.get(SETTINGS)
        return running is not None and running != self.config.settings

    def to_dict(self) -> dict[str, Any]:
        now, planned = self.hourly_cost
        return {
            "schema": SCHEMA,
            "at": self.now,
            "as_of": self.picture.now,
            "leader": {
                "holder": self.leader.holder,
                "epoch": self.leader.epoch,
                "alive": self.leader.alive,
                "seen_at": self.leader.seen_at,
            },
            "troubles": self.troubles,
            "frozen": dict(sorted(self.picture.chronicle.book.frozen.items())),
            "settings_differ": self.other_settings,
            "groups": [_group_dict(one) for one in self.groups],
            "slices": [self._slice_dict(one) for one in self.records],
            "demands": [_demand_dict(one, parts) for one, parts in self.demands],
            "hourly_cost": {"now": dollars(now), "planned": dollars(planned)},
            "bill": {"total": dollars(sum(self.bill.values())), **{k: dollars(v) for k, v in self.bill.items()}},
        }

    def _slice_dict(self, record: SliceRecord) -> dict[str, Any]:
        reason, why = self.picture.stay(record)
        return {
            "id": record.id,
            "group": record.group,
            "provider": record.provider,
            "state": str(record.state),
            "since": record.since,
            "tasks": sum(node.tasks for node in record.nodes),
            "code": reason,
            "why": why,
            "ready_in": self.picture.ready_in(record),
            "hourly_cost": dollars(record.price),
        }


def _group_dict(one: GroupLine) -> dict[str, Any]:
    return {
        "name": one.name,
        "ready": one.ready,
        "coming": one.coming,
        "leaving": one.leaving,
        "busy": one.busy,
        "max": one.max,
        "hourly_cost": dollars(one.hourly_cost),
        "availability": {
            "state": one.availability.state,
            "until": one.availability.until,
            "why": one.availability.why,
        },
        "frozen_by": one.frozen or None,
        "boot_seconds": one.boot,
    }


def _demand_dict(demand: Demand, parts: Iterable[Part]) -> dict[str, Any]:
    return {
        "id": demand.id,
        "tasks": demand.count,
        "since": demand.since,
        "parts": [part_dict(part) for part in parts],
    }


def part_dict(part: Part) -> dict[str, Any]:
    return {
        "tasks": part.count,
        "code": part.code,
        "why": part.why,
        "slices": list(part.slices),
        "starts_in": part.starts_in,
    }


# -- for people ----------------------------------------------------------------------------------------------------


def _page(status: Status, most: int | None) -> Iterator[RenderableType]:
    yield _header(status)
    if status.troubles:
        yield section(coloured("In trouble", "bold red"), _troubles(status, most))
    yield section("Groups", _groups(status))
    if status.records:
        yield section(f"Slices: {len(status.records)}", *_slices(status, most))
    if status.demands:
        yield section(f"Demand: {plural(sum(one.count for one, _ in status.demands), 'task')}", *_demands(status, most))
    yield _cost(status)
    yield next_steps(*_next(status))


def leader_line(leader: Leader, now: float) -> Text:
    """Who leads, or that nobody does."""
    if leader.alive:
        return Text.assemble(("Leader: ", "bold"), f"{leader.holder}, epoch {leader.epoch}")
    gone = "no controller runs"
    if leader.seen_at is not None:
        gone += f"; last seen {span(now - leader.seen_at)} ago"
        gone += f" as {leader.holder}, which did not say good-bye" if leader.holder else ", when it was stopped"
    return Text.assemble(("Leader: ", "bold"), (gone, "bold yellow"))


def _header(status: Status) -> RenderableType:
    lines = [leader_line(status.leader, status.now)]
    for subject, by in sorted(status.picture.chronicle.book.frozen.items()):
        what = "everything" if subject == EVERY_GROUP else subject
        lines.append(Text.assemble(("Frozen: ", "bold yellow"), f"{what}, by {by}: nothing is launched or released"))
    if status.other_settings:
        text = "the configuration file says something else than what the controller goes by"
        if not status.leader.alive:
            text = "the configuration file was changed since the controller was last seen"
        lines.append(Text.assemble(("Note: ", "bold yellow"), text))
    return Lines(*lines)


def _troubles(status: Status, most: int | None) -> RenderableType:
    table = grid("-", "fold")
    shown = list(status.troubles.items())
    for name, text in shown[:most]:
        source = name == "workload" or name.startswith("provider ")
        more = "; nothing is released while it is unknown" if source else ""
        table.add_row(coloured(f"! {name}", "bold red"), f"{text}{more}")
    if most is not None and len(shown) > most:
        table.add_row(f"and {len(shown) - most} more", "")
    return table


def _groups(status: Status) -> RenderableType:
    table = headed("group", "ready>", "coming>", "leaving>", "max>", "busy>", "$/h>", "boots in>", "availability*")
    for one in status.groups:
        table.add_row(
            one.name,
            str(one.ready),
            str(one.coming),
            str(one.leaving),
            "-" if one.max is None else str(one.max),
            str(one.busy),
            format_money(one.hourly_cost),
            "?" if one.boot is None else span(one.boot),
            availability_text(one, status.picture.now),
        )
    return table


def availability_text(one: GroupLine, now: float) -> Text:
    """Whether the group can be had, and if not until when and why."""
    if one.max is None:
        return coloured("removed from the settings: what is left is drained", "yellow")
    if one.frozen:
        return coloured(f"frozen by {one.frozen}", "yellow")
    state, until = one.availability.state, one.availability.until
    if state != "available":
        name = "quota" if state == "quota_exceeded" else state
        left = "" if until is None else f" until {clock(until, now)} ({span(until - now)})"
        if until is not None and until <= now:
            left = ", one launch at a time is tried"
        return coloured(f"{name}{left}: {one.availability.why}", "red")
    if one.ready + one.coming + one.leaving >= one.max:
        return coloured("at its max", "yellow")
    return coloured("available", "green")


_STYLES: Final = {State.READY: "green", State.LOST: "red", State.TERMINATE_FAILED: "red", State.LAUNCH_TIMEOUT: "red"}


def state_text(state: State) -> Text:
    return coloured(state, _STYLES.get(state, "yellow" if state in IN_FLIGHT else "magenta"))


def _slices(status: Status, most: int | None) -> Iterator[RenderableType]:
    table = headed("slice", "group", "state", "for>", "tasks>", "code", "why*")
    for record in status.records[:most]:
        reason, why = status.picture.stay(record)
        table.add_row(
            record.id,
            record.group,
            state_text(record.state),
            span(status.picture.now - record.since),
            str(sum(node.tasks for node in record.nodes)),
            code(reason),
            coloured(why, "red") if record.quarantine else why,
        )
    yield table
    if most is not None and len(status.records) > most:
        yield Text(f"and {len(status.records) - most} more: windlass status --all", style="dim")


def _demands(status: Status, most: int | None) -> Iterator[RenderableType]:
    table = headed("job", "tasks>", "since", "code", "why*")
    rows = [(demand, part) for demand, parts in status.demands for part in parts]
    for demand, part in rows[:most]:
        since = "?" if demand.since is None else clock(demand.since, status.now)
        table.add_row(demand.id, str(part.count), since, code(part.code), part.why)
    yield table
    if most is not None and len(rows) > most:
        yield Text(f"and {len(rows) - most} more: windlass status --all", style="dim")


def _cost(status: Status) -> Text:
    now, planned = status.hourly_cost
    line = Text.assemble(("\nCost: ", "bold"), f"{format_money(now)}/h now, {format_money(planned)}/h planned")
    total = sum(status.bill.values())
    if total:
        parts = ", ".join(f"{kind} {format_money(part)}" for kind, part in status.bill.items() if part)
        line.append(f"; spent so far {format_money(total)}: {parts}")
    return line


def _next(status: Status) -> list[str]:
    """What is most useful now: three at the most."""
    found = []
    if not status.leader.alive:
        found.append("windlass doctor")
    stuck = [one for one, parts in status.demands if any(part.waiting for part in parts)]
    if stuck:
        found.append(f"windlass why {stuck[0].id}")
    odd = [one for one in status.records if one.state not in IN_FLIGHT | {State.READY} or one.quarantine]
    if odd or status.records:
        found.append(f"windlass why {(odd or status.records)[0].id}")
    if status.picture.chronicle.book.frozen:
        found.append("windlass resume")
    elif status.troubles and status.leader.alive:
        found.append("windlass doctor")
    found.append("windlass events --follow" if status.leader.alive else "windlass events")
    return found[:3]
