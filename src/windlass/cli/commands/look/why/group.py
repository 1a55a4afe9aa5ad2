"""This module renders the explanation of a group: its limits, and the results of its launches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from windlass.cli.ui.pages import clock, code, grid, money, section, span
from windlass.core.model.reasons import plural


def page(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    now, one = document["at"], document["group"]
    if one["max"] is None:
        head = " is no longer in the settings: its remaining machines are drained"
    else:
        hosts = f" x {plural(one['hosts'], 'host')}" if one["hosts"] > 1 else ""
        price = f", {money(one['price'])}/h each" if one["price"] is not None else ""
        needs = ", ".join(f"{amount} {name}" for name, amount in one["resources"].items())
        head = f": {needs}{hosts}, from {one['provider']}{price}"
    yield Text.assemble((f"Group {document['name']}", "bold"), head)
    if one["frozen_by"]:
        yield Text(f"Frozen by {one['frozen_by']}: no machine of it is bought or released", style="bold yellow")
    yield section("Limits", _limits(one))
    yield section("Provider", *_provider_health(one, now))
    for title, key, style in (("Last launches", "launches", "cyan"), ("Last refusals", "refusals", "red")):
        if one[key]:
            table = grid("-", "-", "-", "fold")
            for item in one[key]:
                what = item["slice"] if key == "refusals" else plural(item["count"], "machine")
                table.add_row(clock(item["at"], now), what, Text(item["code"], style=style), item["why"])
            yield section(title, table)


def _limits(one: Mapping[str, Any]) -> RenderableType:
    table, counts = grid("-", "fold"), one["slices"]
    text = f"{counts['counted']} counted: {counts['ready']} ready, {counts['coming']} starting, {counts['busy']} busy"
    if one["max"] is None:
        table.add_row("machines", text)
        return table
    text += f"; at most {one['max']}"
    text += f", at least {one['min']}" if one["min"] else ""
    text += f", {one['spare']} spare" if one["spare"] else ""
    table.add_row("machines", text)
    if one["next"]["code"] is not None:
        table.add_row("one more", Text.assemble(code(one["next"]["code"]), f" {one['next']['why']}"))
    table.add_row("release", "\n".join(one["release"]) or "never: it has no rule to scale down")
    return table


def _provider_health(one: Mapping[str, Any], now: float) -> Iterator[RenderableType]:
    table = grid("-", "fold")
    table.add_row("availability", available_text(one["availability"], now))
    table.add_row("health", f"{one['health']:g} of 1, after {plural(len(one['failures']), 'recent failure')}")
    if one["failures"]:
        last = one["failures"][-1]
        table.add_row("last failure", Text.assemble(f"{clock(last['at'], now)} ", code(last["code"])))
    if one["succeeded_at"] is not None:
        table.add_row("last success", f"{clock(one['succeeded_at'], now)} ({span(now - one['succeeded_at'])} ago)")
    boot = one["boot_seconds"]
    table.add_row("starts in", "not known yet" if boot is None else f"about {span(boot)}")
    yield table


def available_text(one: Mapping[str, Any], now: float) -> str:
    """Tell whether the provider can be expected to give one more machine, and if not, why and until when."""
    if one["state"] not in ("backoff", "quota_exceeded"):
        return {"requesting": "a launch is under way", "at_max": "at its max"}.get(one["state"], "available")
    name = "quota exceeded" if one["state"] == "quota_exceeded" else one["state"]
    if one["until"] is None:
        return f"{name}: {one['why']}"
    if one["until"] <= now:
        return f"{name}, one launch at a time is tried: {one['why']}"
    return f"{name} until {clock(one['until'], now)} (in {span(one['until'] - now)}): {one['why']}"


def steps(document: Mapping[str, Any], at: float | None) -> list[str]:
    found, name = [], document["name"]
    if at is None:
        found.append(f"windlass resume {name}" if document["group"]["frozen_by"] else f"windlass freeze {name}")
    return [*found, f"windlass events --subject {name}", "windlass status"]
