"""What limits a group, and how well its launches went."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from windlass.cli.ui.pages import clock, code, grid, section, span
from windlass.config.durations import format_duration
from windlass.control.reconcile.provider_health import availability_of, boot_time, health
from windlass.control.record.journal_tables import LAUNCH
from windlass.control.report.history import refusals_of
from windlass.control.settings import SoldGroup
from windlass.control.state.fleet import EVERY_GROUP
from windlass.core.model.lifecycle import COSTLY, COUNTED, IN_FLIGHT, State
from windlass.core.model.quantities import dollars, exact_quantity, format_money, format_needs
from windlass.core.model.reasons import plural
from windlass.core.model.snapshot import Availability

from .question import Asked, Told

MOST = 5
"""Launches and refusals that are told: the last ones."""


def answer(asked: Asked) -> Told:
    sold = asked.picture.settings.by_name.get(asked.name)
    journal, until = asked.journal, asked.at
    launches = list(islice(journal.read(subject=asked.name, kinds=(LAUNCH,), until=until, newest_first=True), MOST))[
        ::-1
    ]
    refusals = refusals_of(journal, asked.name, MOST, until)[::-1]
    data = _data(asked, sold)
    data["launches"] = [
        {"at": one.at, "count": one.data["count"], "code": one.data["code"], "why": one.data["why"]} for one in launches
    ]
    data["refusals"] = [
        {"at": one.at, "slice": one.subject, "code": one.data["code"], "why": one.data["why"]} for one in refusals
    ]
    return Told(data, list(_page(asked, sold, data)), _steps(asked, data))


def _data(asked: Asked, sold: SoldGroup | None) -> dict[str, Any]:
    picture, name = asked.picture, asked.name
    luck, rules, now = picture.luck(name), picture.settings.policy.backoff, picture.now
    mine = [one for one in picture.chronicle.book.slices.values() if one.group == name]
    frozen = picture.chronicle.book.frozen
    available = availability_of(luck, rules, now)
    group = None if sold is None else sold.group
    return {
        "name": name,
        "provider": None if sold is None else sold.provider,
        "resources": {} if group is None else {kind: exact_quantity(some, kind) for kind, some in group.resources},
        "min": None if group is None else group.min,
        "max": None if group is None else group.max,
        "spare": None if group is None else group.spare,
        "price": None if group is None or group.price is None else dollars(group.price),
        "idle_timeout": None if group is None or group.scale_down is None else group.scale_down.idle_timeout,
        "slices": {
            "counted": sum(one.state in COUNTED for one in mine),
            "ready": sum(one.state == State.READY for one in mine),
            "coming": sum(one.state in IN_FLIGHT for one in mine),
            "busy": sum(any(node.busy for node in one.nodes) for one in mine),
        },
        "hourly_cost": dollars(sum(one.price for one in mine if one.state in COSTLY)),
        "frozen_by": frozen.get(name) or frozen.get(EVERY_GROUP),
        "availability": {"state": available.state, "until": available.until, "why": available.why},
        "health": round(health(luck, rules, now), 4),
        "failures": [{"at": one.at, "code": one.code} for one in luck.failures if now - one.at < rules.heal],
        "succeeded_at": luck.succeeded_at,
        "boot_seconds": boot_time(luck),
    }


def _page(asked: Asked, sold: SoldGroup | None, data: dict[str, Any]) -> Iterator[RenderableType]:
    now = asked.picture.now
    if sold is None:
        head = " is not in the settings any more: what is left of it is drained"
    else:
        group = sold.group
        hosts = f" x {plural(group.hosts, 'host')}" if group.hosts > 1 else ""
        price = f", {format_money(group.price)}/h a slice" if group.price is not None else ""
        head = f": {format_needs(group.resources)}{hosts}, from {sold.provider}{price}"
    yield Text.assemble((f"Group {asked.name}", "bold"), head)
    if data["frozen_by"]:
        yield Text(f"Frozen by {data['frozen_by']}: nothing of it is launched or released", style="bold yellow")
    yield section("Limits", _limits(sold, data))
    yield section("Luck", *_luck(asked, data))
    for title, key, style in (("Last launches", "launches", "cyan"), ("Last refusals", "refusals", "red")):
        if data[key]:
            table = grid("-", "-", "-", "fold")
            for one in data[key]:
                what = one["slice"] if key == "refusals" else plural(one["count"], "slice")
                table.add_row(clock(one["at"], now), what, Text(one["code"], style=style), one["why"])
            yield section(title, table)


def _limits(sold: SoldGroup | None, data: dict[str, Any]) -> RenderableType:
    table, counts = grid("-", "fold"), data["slices"]
    told = f"{counts['counted']} counted: {counts['ready']} ready, {counts['coming']} coming, {counts['busy']} busy"
    if sold is not None:
        group = sold.group
        told += f"; at most {group.max}"
        told += f", at least {group.min}" if group.min else ""
        told += f", {group.spare} spare" if group.spare else ""
        rules = group.scale_down
        idle = None if rules is None else rules.idle_timeout
        release = f"after {format_duration(idle)} idle" if idle is not None else "by its other rules"
        table.add_row("slices", told)
        table.add_row("release", "never by itself: it has no scale_down rule" if rules is None else release)
    else:
        table.add_row("slices", told)
    return table


def _luck(asked: Asked, data: dict[str, Any]) -> Iterator[RenderableType]:
    now, table = asked.picture.now, grid("-", "fold")
    available = Availability(**data["availability"])
    table.add_row("availability", _available(available, now))
    table.add_row("health", f"{data['health']:g} of 1, after {plural(len(data['failures']), 'failure')} lately")
    if data["failures"]:
        last = data["failures"][-1]
        table.add_row("last failure", Text.assemble(f"{clock(last['at'], now)} ", code(last["code"])))
    if data["succeeded_at"] is not None:
        table.add_row("last success", f"{clock(data['succeeded_at'], now)} ({span(now - data['succeeded_at'])} ago)")
    boot = data["boot_seconds"]
    table.add_row("boots in", "not known yet" if boot is None else f"about {span(boot)}")
    yield table


def _available(one: Availability, now: float) -> str:
    if one.state == "available":
        return "available"
    name = "quota exceeded" if one.state == "quota_exceeded" else one.state
    if one.until is None:
        return f"{name}: {one.why}"
    if one.until <= now:
        return f"{name}, one launch at a time is tried: {one.why}"
    return f"{name} until {clock(one.until, now)} (in {span(one.until - now)}): {one.why}"


def _steps(asked: Asked, data: dict[str, Any]) -> list[str]:
    found = []
    if asked.at is None:
        found.append(f"windlass resume {asked.name}" if data["frozen_by"] else f"windlass freeze {asked.name}")
    return [*found, f"windlass events --subject {asked.name}", "windlass status"]
