"""This module turns journal entries into events: the sentences of the controller's log and of ``windlass events``.

Equal events of several slices of a group in one pass become one line. Entries that only restore the state
(observations, accounts) have no line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

from windlass.control.record.journal_tables import IS, LAUNCH, MISTAKE, ORDER, PASS, PHASE, REFUSED
from windlass.core.model.lifecycle import IN_FLIGHT, State
from windlass.core.model.plan import Plan
from windlass.core.model.quantities import NANO, format_money
from windlass.core.model.reasons import Code, plural, seconds
from windlass.core.model.snapshot import Snapshot
from windlass.journal import Entry, Journal, Record

from .history import refused_group

SHOWN_KINDS: Final = ("settings", ORDER, "frozen", "trouble", MISTAKE, REFUSED, LAUNCH, PHASE, "slice", "waiting")
"""The kinds of entries that become events."""
SCHEMA: Final = "windlass.event/v1"
QUARANTINED: Final = "quarantined"
FEW: Final = 32
"""How many records are read at once to find the end of a pass."""
NAMED: Final = 3
"""A line names at most this many slices and counts the others."""
ALARMS: Final = frozenset({State.LOST, State.LAUNCH_FAILED, State.LAUNCH_TIMEOUT, State.INIT_FAILED})


@dataclass(frozen=True, slots=True)
class EventLine:
    """One thing that happened."""

    at: float
    kind: str
    code: str
    """The reason code, if there is one."""
    text: str
    subjects: tuple[str, ...]
    alarm: bool = False
    seq: int | None = None
    """The number of the last record of its pass; None if it is not in a journal yet."""
    epoch: int | None = None
    state: str = ""
    """For an event of slices: the state that they reached, or ``quarantined``."""

    def to_dict(self) -> dict[str, Any]:
        known = {} if self.seq is None else {"seq": self.seq, "epoch": self.epoch}
        return {
            "at": self.at,
            "kind": self.kind,
            "code": self.code or None,
            "text": self.text,
            "subjects": list(self.subjects),
            "alarm": self.alarm,
            **known,
        }

    def document(self) -> dict[str, Any]:
        """Returns the event as ``windlass events --json`` prints it."""
        return {"schema": SCHEMA, **self.to_dict()}


def lines(entries: Iterable[Entry | Record]) -> Iterator[EventLine]:
    """Yields the events of the records, pass by pass."""
    for _, together in groupby((one for one in entries if one.kind in SHOWN_KINDS), key=lambda one: one.at):
        yield from _pass(list(together))


# -- events of a journal -------------------------------------------------------------------------------------------


def passes(records: Iterable[Record], *, newest_first: bool = False) -> Iterator[list[Record]]:
    """Yields the records that were appended together, in the order of their numbers; each operator's order alone."""
    together: list[Record] = []
    for record in records:
        if together and not _same_pass(*((record, together[-1]) if newest_first else (together[-1], record))):
            yield together[::-1] if newest_first else together
            together = []
        together.append(record)
    if together:
        yield together[::-1] if newest_first else together


def _same_pass(earlier: Record, later: Record) -> bool:
    alone = earlier.kind == ORDER or later.kind in (ORDER, PASS)
    return not alone and (earlier.epoch, earlier.at) == (later.epoch, later.at)


def lines_of(together: list[Record], end: int) -> list[EventLine]:
    """Returns the events of one pass whose last record has the number ``end``."""
    shown = [one for one in together if one.kind in SHOWN_KINDS]
    return [replace(line, seq=end, epoch=shown[0].epoch) for line in _pass(list(shown))] if shown else []


def last_record(journal: Journal, record: Record) -> int:
    """Returns the number of the last record that was appended together with this one."""
    while True:
        following = list(journal.read(record.seq, limit=FEW))
        for one in following:
            if not _same_pass(record, one):
                return record.seq
            record = one
        if len(following) < FEW:
            return record.seq


def earlier_events(
    journal: Journal,
    upto: int,
    *,
    since: float | None = None,
    until: float | None = None,
    subject: str | None = None,
    wanted: Callable[[EventLine], bool] = lambda _: True,
) -> Iterator[tuple[int, list[EventLine]]]:
    """Yields the events up to a record, pass by pass, newest first, each pass with its first record."""
    records = journal.read(upto=upto, kinds=(PASS, *SHOWN_KINDS), since=since, until=until, newest_first=True)
    for together in passes(records, newest_first=True):
        mine = [one for one in together if one.kind in SHOWN_KINDS and is_about(one, subject)]
        if mine:
            found = [line for line in lines_of(mine, last_record(journal, together[-1])) if wanted(line)]
            if found:
                yield mine[0].seq, found


def later_events(
    journal: Journal,
    after: int,
    upto: int | None = None,
    *,
    since: float | None = None,
    until: float | None = None,
    subject: str | None = None,
    wanted: Callable[[EventLine], bool] = lambda _: True,
) -> Iterator[list[EventLine]]:
    """Yields the events after a record, pass by pass, oldest first."""
    for together in passes(journal.read(after, upto=upto, kinds=(PASS, *SHOWN_KINDS), since=since, until=until)):
        mine = [one for one in together if one.kind in SHOWN_KINDS and is_about(one, subject)]
        if mine:
            found = [line for line in lines_of(mine, last_record(journal, together[-1])) if wanted(line)]
            if found:
                yield found


def is_about(record: Record, name: str | None) -> bool:
    """Whether a record is about a slice, a demand or a group; a record about a slice is also about its group."""
    return name is None or record.subject == name or name in _concerned(record)


def _concerned(record: Record) -> Iterable[str]:
    data: Any = record.data
    match record.kind:
        case "launch":
            return (*data.get("slices", ()), *data.get("demands", ()))
        case "slice" if IS in data:
            return (data[IS]["group"],)
        case "refused":
            return (refused_group(record),)
        case "phase":
            return (data["group"],)
        case "trouble":
            return (record.subject.partition(" ")[2],)
        case _:
            return ()


# -- sentences -----------------------------------------------------------------------------------------------------


def _pass(entries: list[Entry | Record]) -> Iterator[EventLine]:
    moves: dict[tuple[str, str, str, str], list[str]] = {}
    others = []
    for one in entries:
        if one.kind == "slice":
            _collect(one, moves)
        elif (line := _line(one)) is not None:
            others.append(line)
    yield from (line for line in others if line.kind != "waiting")
    for (group, state, code, why), names in moves.items():
        alarm = state in ALARMS or state == State.TERMINATE_FAILED
        text = f"{_named(group, names)} {state}: {why}"
        yield EventLine(entries[0].at, "slice", code, text, tuple(names), alarm, state=state)
    yield from (line for line in others if line.kind == "waiting")


def _collect(one: Entry | Record, moves: dict[tuple[str, str, str, str], list[str]]) -> None:
    record: Any = one.data.get(IS)
    if not record:
        return
    if record.get("quarantine"):
        moves.setdefault((record["group"], QUARANTINED, "", record["quarantine"]), []).append(one.subject)
    elif record["since"] == one.at and record["state"] != State.QUEUED:  # the launch reports queued ones
        key = (record["group"], record["state"], record["reason"]["code"], record["reason"]["why"])
        moves.setdefault(key, []).append(one.subject)


def _named(group: str, names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{len(names)} of {group} ({', '.join(names[:NAMED])}{more})"


def _line(one: Entry | Record) -> EventLine | None:
    data: Any = one.data
    match one.kind:
        case "launch":
            cost = f", {format_money(round(data['hourly_cost'] * NANO))}/h" if data["hourly_cost"] else ""
            text = f"launch {plural(data['count'], 'machine')} of {one.subject}{cost}: {data['why']}"
            return EventLine(one.at, one.kind, data["code"], text, tuple(data["slices"]))
        case "refused":
            return EventLine(
                one.at, one.kind, data["code"], f"{one.subject} refused: {data['why']}", (one.subject,), True
            )
        case "phase":
            return EventLine(one.at, one.kind, "", f"{one.subject} initializing: {data['phase']}", (one.subject,))
        case "waiting":
            return _waits(one, data.get(IS))
        case "trouble":
            name = problem_name(one.subject)
            text = f"{name} has a problem: {data[IS]}" if IS in data else f"{name}: the problem is over"
            return EventLine(one.at, one.kind, "", text, (one.subject,), IS in data)
        case "frozen":
            who = "everything" if one.subject == "*" else one.subject
            text = f"{who} is frozen by {data[IS]}" if IS in data else f"{who} is resumed"
            return EventLine(one.at, one.kind, "FROZEN", text, (one.subject,))
        case "order":
            comment = f" ({data['comment']})" if data.get("comment") else ""
            text = f"{data.get('by')} asks: {data.get('what')} {one.subject}{comment}"
            return EventLine(one.at, one.kind, "MANUAL", text, (one.subject,))
        case "mistake":
            return EventLine(one.at, one.kind, "INVALID_DEMAND", f"ignored: {data['why']}", (one.subject,), True)
        case "settings" if IS in data:
            names = [one["group"]["name"] for one in data[IS]["groups"]]
            text = f"settings in use: {plural(len(names), 'group')}{_starts(data[IS].get('starting') or {})}"
            return EventLine(one.at, one.kind, "", text, tuple(names))
        case _:
            return None


def _starts(starting: Mapping[str, int]) -> str:
    """Name the providers on whose machine only so many hosts may start at the same time: it changes while they run."""
    limits = (f"at most {plural(most, 'host')} of {name} may start at once" for name, most in sorted(starting.items()))
    return "".join(f"; {limit}" for limit in limits)


def _waits(one: Entry | Record, data: Mapping[str, Any] | None) -> EventLine:
    if data is None:
        return EventLine(one.at, "waiting", "", f"{one.subject} waits no more", (one.subject,))
    tasks = f" ({plural(data['count'], 'task')})" if data["count"] > 1 else ""
    reason = data["reason"]
    waited = f" {seconds(data['waited'])}" if data.get("waited", 0.0) >= 1 else ""
    text = f"{one.subject}{tasks} waits{waited}: {reason['why']}"
    return EventLine(one.at, "waiting", reason["code"], text, (one.subject,))


class AssignmentLog:
    """Reports each demand once for every machine in flight that it is assigned to."""

    def __init__(self) -> None:
        self._known: dict[str, frozenset[str]] = {}

    def lines(self, snapshot: Snapshot | None, plan: Plan | None) -> Iterator[EventLine]:
        """Returns an event for each demand that this plan assigns to a machine in flight for the first time."""
        if snapshot is None or plan is None:
            return
        coming = {one.id for one in snapshot.slices if one.state in IN_FLIGHT}
        tasks: dict[str, dict[str, int]] = {}
        for one in plan.placements if coming else ():
            if one.on in coming:
                tasks.setdefault(one.demand, {})[one.on] = tasks.get(one.demand, {}).get(one.on, 0) + one.count
        for demand, on in sorted(tasks.items()):
            fresh = sorted(on.keys() - self._known.get(demand, frozenset()))
            if fresh:
                more = f" and {len(fresh) - NAMED} more" if len(fresh) > NAMED else ""
                count = plural(sum(on[name] for name in fresh), "task")
                text = f"{demand}: {count} assigned to {', '.join(fresh[:NAMED])}{more}, still starting"
                yield EventLine(snapshot.now, "assigned", Code.LAUNCHING, text, (demand, *fresh))
        self._known = {demand: frozenset(on) for demand, on in tasks.items()}


def problem_name(source: str) -> str:
    """Return the name of a source of problems for people: a slice is a machine, a node is a host."""
    kind, space, name = source.partition(" ")
    return f"{_NOUNS.get(kind, kind)}{space}{name}"


_NOUNS: Final = {"slice": "machine", "node": "host"}
