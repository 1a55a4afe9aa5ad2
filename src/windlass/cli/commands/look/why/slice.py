"""This module renders the explanation of a machine: why it started, why it is kept or was released, who confirmed its
drain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from signal import Signals
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from windlass.cli.commands.look.status import state_text
from windlass.cli.ui.pages import clock, code, grid, money, section, span
from windlass.core.model.lifecycle import ENDED, OFFERING, RECALLABLE, State
from windlass.core.model.reasons import Code, plural

Answer = Mapping[str, Any]

SHOWN_LINES = 10
"""The number of output lines of a dead host that are shown; ``--json`` has all that are stored."""


def page(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    now, one = document["at"], document["slice"]
    state = State(one["state"])
    price = f", {money(one['hourly_cost'])}/h" if one["hourly_cost"] else ""
    if state in ENDED:
        when = f"at {clock(one['since'], now)}, {span(one['since'] - one['started']['at'])} after its start"
    else:
        when = f"since {clock(one['since'], now)} ({span(now - one['since'])})"
    yield Text.assemble(
        (f"Machine {one['id']}", "bold"), f" of {one['group']} from {one['provider']}{price}: ", state_text(state)
    ).append(f" {when}")
    if one["trouble"] is not None:
        yield Text(f"! problem: {one['trouble']}", style="bold red")
    yield section("Why it started", *_started(one, now))
    yield section("Its life", _life(one, now))
    if one["dead_hosts"]:
        yield section("Last output of its dead hosts", *_dead_hosts(one))
    if state in ENDED:
        yield section("Why it was released", *_removed(one, now))
    elif state in OFFERING:
        yield section("Why it is kept", *_here(one, now))
    else:
        yield section("Why it is being released", *_removed(one, now), *_here(one, now))


def _started(one: Answer, now: float) -> Iterator[RenderableType]:
    table, started = grid("-", "-", "fold"), one["started"]
    table.add_row(clock(started["at"], now), code(started["code"]), started["why"])
    yield table
    if started["count"] is None:
        adopted = started["code"] == Code.LEAKED
        yield Text(
            "it was adopted: this journal did not start it" if adopted else "its start is no longer in the journal"
        )
        return
    others = started["count"] - 1
    if others:
        yield Text(f"together with {plural(others, 'more machine')} of {one['group']} for the same reason")
    if not started["passed_over"]:
        yield Text("there was no other group to choose from")
        return
    yield Text(f"Why {one['group']} and not another:")
    lost = grid("-", "-", "fold")
    for name, reason in sorted(started["passed_over"].items()):
        lost.add_row(f"  {name}", code(reason["code"]), reason["why"])
    yield lost


def _life(one: Answer, now: float) -> RenderableType:
    table = grid("-", "-", "-", "fold")
    steps_of = [(step["at"], state_text(step["state"]), step["code"], step["why"]) for step in one["life"]]
    steps_of += [(each["at"], Text("refused", style="red"), each["code"], each["why"]) for each in one["refused"]]
    if (must := one["must_go"]) is not None:
        steps_of.append((must["at"], Text("must go"), must["code"], must["why"]))
    for at, state, reason_code, why in sorted(steps_of, key=lambda item: item[0]):
        table.add_row(clock(at, now), state, code(reason_code), why)
    return table


def _dead_hosts(one: Answer) -> Iterator[RenderableType]:
    for host in one["dead_hosts"]:
        yield Text(f"{host['host']} {_ended(host['exit_code'])}")
        for line in host["last_lines"][-SHOWN_LINES:]:
            yield Text(f"  {line}", style="dim")


def _ended(exit_code: int | None) -> str:
    """Describe how a program ended, from its exit code."""
    if exit_code is None:
        return "ended; its exit code is not known"
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        return f"was killed by {Signals(-exit_code).name}"
    except ValueError:
        return f"was killed by signal {-exit_code}"


def _here(one: Answer, now: float) -> Iterator[RenderableType]:
    table, here = grid("-", "fold"), one["now"]
    table.add_row(code(here["code"]), here["why"])
    yield table
    if one["tasks"]:
        running = f"{plural(one['tasks'], 'task')} running on {plural(one['nodes'], 'host')}"
        yield Text(f"{running}: the machine is never ended while they run")
    if here["until"] is not None:
        yield Text(f"until {clock(here['until'], now)} (in {span(here['until'] - now)}), then {here['then']}")


def _removed(one: Answer, now: float) -> Iterator[RenderableType]:
    table = grid("-", "-", "fold")
    cause = one["must_go"] or one["cordoned"]
    if cause is None:
        cause = next((step for step in one["life"] if State(step["state"]) not in OFFERING), one["life"][-1])
    table.add_row(clock(cause["at"], now), code(cause["code"]), cause["why"])
    yield table
    yield Text(_certificate(one, now))


def _certificate(one: Answer, now: float) -> str:
    """Tell who confirmed that nothing ran there."""
    if (word := one["certificate"]) is not None:
        when = clock(word["at"], now)
        return f"the workload confirmed at {when} that nothing ran there and nothing would start"
    if one["dead"]:
        return "one of its hosts was gone, so there was nothing to confirm"
    if not one["joined"]:
        return "it never joined the workload, so nothing ever ran there"
    return "the workload has not confirmed yet that nothing runs there; the machine is not ended before"


def steps(document: Mapping[str, Any], at: float | None) -> list[str]:
    one = document["slice"]
    state, found = State(one["state"]), [f"windlass events --subject {one['id']}", f"windlass why {one['group']}"]
    if document["led"] and at is None and state in OFFERING | RECALLABLE:
        if one["leaving"] is None and state in OFFERING:
            found.insert(0, f"windlass drain {one['id']}")
        elif one["leaving"] == Code.MANUAL and not one["final"]:
            found.insert(0, f"windlass drain --undo {one['id']}")
    return found
