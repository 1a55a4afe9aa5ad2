"""Why a slice started, why it is still here or why it was removed, and who said that it was empty."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from windlass.cli.commands.status import state_text
from windlass.cli.ui.pages import clock, code, grid, section, span
from windlass.control.report.current import due
from windlass.control.report.history import Life
from windlass.control.state.fleet import SliceRecord
from windlass.core.model.lifecycle import ENDED, IN_FLIGHT, OFFERING, RECALLABLE
from windlass.core.model.quantities import dollars, format_money
from windlass.core.model.reasons import Code, plural

from .question import Asked, Told


def answer(asked: Asked) -> Told:
    assert asked.life is not None
    life = asked.life
    record = asked.picture.chronicle.book.slices.get(asked.name, life.last)
    return Told(_data(asked, life, record), list(_page(asked, life, record)), _steps(asked, record))


def _page(asked: Asked, life: Life, record: SliceRecord) -> Iterator[RenderableType]:
    now = asked.picture.now
    price = f", {format_money(record.price)}/h" if record.price else ""
    when = f"{'since' if record.state not in ENDED else 'at'} {clock(record.since, now)} ({span(now - record.since)})"
    yield Text.assemble(
        (f"Slice {record.id}", "bold"), f" of {record.group} from {record.provider}{price}: ", state_text(record.state)
    ).append(f" {when}")
    if (trouble := asked.picture.chronicle.sighted.trouble.get(f"slice {record.id}")) is not None:
        yield Text(f"! in trouble: {trouble}", style="bold red")
    yield section("Why it started", *_started(life, record, now))
    yield section("Its life", _life(life, now))
    if record.state in ENDED:
        yield section("Why it was removed", *_removed(life, record, now))
        return
    if record.state in OFFERING:
        yield section("Why it is still here", *_here(asked, record))
        return
    yield section("Why it goes", *_removed(life, record, now), *_here(asked, record))


def _started(life: Life, record: SliceRecord, now: float) -> Iterator[RenderableType]:
    table = grid("-", "-", "fold")
    table.add_row(clock(life.born, now), code(record.started_for.code), record.started_for.why)
    yield table
    if life.launch is None:
        adopted = record.started_for.code == Code.LEAKED
        yield Text("it was taken over, not launched" if adopted else "its launch is not in the journal any more")
        return
    data: Any = life.launch.data
    others = data["count"] - 1
    if others:
        yield Text(f"together with {plural(others, 'more slice')} of {record.group} for the same reason")
    if not data["passed_over"]:
        yield Text("no other group was there to choose from")
        return
    yield Text(f"Why {record.group} and not another:")
    lost = grid("-", "-", "fold")
    for name, reason in sorted(data["passed_over"].items()):
        lost.add_row(f"  {name}", code(reason["code"]), reason["why"])
    yield lost


def _life(life: Life, now: float) -> RenderableType:
    table = grid("-", "-", "-", "fold")
    told = [(step.at, state_text(step.state), step.reason.code, step.reason.why) for step in life.steps]
    for one in life.refused:
        data: Any = one.data
        told.append((one.at, Text("refused", style="red"), data["code"], data["why"]))
    if life.must_go is not None:
        at, reason = life.must_go
        told.append((at, Text("must go"), reason.code, reason.why))
    for at, state, reason_code, why in sorted(told, key=lambda item: item[0]):
        table.add_row(clock(at, now), state, code(reason_code), why)
    return table


def _here(asked: Asked, record: SliceRecord) -> Iterator[RenderableType]:
    now, (reason, why) = asked.picture.now, asked.picture.stay(record)
    table = grid("-", "fold")
    table.add_row(code(reason), why)
    yield table
    tasks = sum(node.tasks for node in record.nodes)
    if tasks:
        yield Text(
            f"{plural(tasks, 'task')} running on {plural(len(record.nodes), 'node')}: it is never ended under them"
        )
    if (until := _until(asked, record)) is not None:
        yield Text(f"until {clock(until[0], now)} (in {span(until[0] - now)}), then {until[1]}")


def _until(asked: Asked, record: SliceRecord) -> tuple[float, str] | None:
    """When the next thing happens to it by itself, and what."""
    limit = due(record, asked.picture.settings)
    if limit is not None:
        return limit[0], f"it is too late and becomes {limit[1]}"
    sold = asked.picture.settings.by_name.get(record.group)
    rules = None if sold is None else sold.group.scale_down
    reason, _ = asked.picture.stay(record)
    if reason == Code.NOT_IDLE_LONG_ENOUGH and rules is not None and rules.idle_timeout is not None:
        idle = [record.since if node.idle_since is None else node.idle_since for node in record.nodes]
        return max(idle, default=record.since) + rules.idle_timeout, "it is drained, if nothing needs it"
    if record.marked_until is not None:
        return record.marked_until, "its mark is due"
    return None


def _removed(life: Life, record: SliceRecord, now: float) -> Iterator[RenderableType]:
    table = grid("-", "-", "fold")
    cause = life.draining
    if life.must_go is not None:
        table.add_row(clock(life.must_go[0], now), code(life.must_go[1].code), life.must_go[1].why)
    elif cause is not None:
        table.add_row(clock(cause.at, now), code(cause.reason.code), cause.reason.why)
    else:
        step = next((one for one in life.steps if one.state not in OFFERING), life.steps[-1])
        table.add_row(clock(step.at, now), code(step.reason.code), step.reason.why)
    yield table
    yield Text(_certificate(life, record, now))


def _certificate(life: Life, record: SliceRecord, now: float) -> str:
    """Who said that nothing ran there."""
    if life.certified is not None:
        at, fence = life.certified
        return f"the workload acknowledged at {clock(at, now)}, under fence {fence}, that nothing ran there"
    if record.dead:
        return "a host of it was gone, so there was nothing to acknowledge"
    if record.joined_at is None:
        return "it never joined the workload, so nothing ever ran there"
    return "the workload has not acknowledged yet that nothing runs there; it is not ended before"


def _steps(asked: Asked, record: SliceRecord) -> list[str]:
    found = [f"windlass events --subject {record.id}", f"windlass why {record.group}"]
    if asked.led and asked.at is None and record.state in OFFERING | RECALLABLE:
        if record.leaving is None and record.state in OFFERING:
            found.insert(0, f"windlass drain {record.id}")
        elif record.leaving is not None and record.leaving.code == Code.MANUAL:
            found.insert(0, f"windlass drain --undo {record.id}")
    return found


def _data(asked: Asked, life: Life, record: SliceRecord) -> dict[str, Any]:
    ended = record.state in ENDED
    reason, why = (record.reason.code, record.reason.why) if ended else asked.picture.stay(record)
    launch: Any = None if life.launch is None else life.launch.data
    limit = None if ended else _until(asked, record)
    return {
        "id": record.id,
        "group": record.group,
        "provider": record.provider,
        "state": str(record.state),
        "since": record.since,
        "hourly_cost": dollars(record.price),
        "started": {
            "at": life.born,
            "code": record.started_for.code,
            "why": record.started_for.why,
            "passed_over": {} if launch is None else launch["passed_over"],
        },
        "life": [
            {"at": one.at, "state": str(one.state), "code": one.reason.code, "why": one.reason.why}
            for one in life.steps
        ],
        "now": {"code": reason, "why": why, "until": None if limit is None else limit[0]},
        "certificate": None if life.certified is None else {"at": life.certified[0], "fence": life.certified[1]},
        "tasks": 0 if ended else sum(node.tasks for node in record.nodes),
        "ready_in": None if record.state not in IN_FLIGHT else asked.picture.ready_in(record),
    }
