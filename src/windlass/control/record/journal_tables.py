"""This module maps the tables of ControllerState to journal entries and back.

A table has one value per subject: the record of each slice, what waits and why, what was last observed. A pass writes
one entry for each changed value; the newest entry of a subject is its value, and an entry without data removes it. The
state of now, or of any instant in the past, is therefore the sum of the entries up to it. ``status``, ``why``,
``events`` and ``replay`` read nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, Final

from windlass._version import __version__
from windlass.control.observe.observed import Observed
from windlass.control.settings import Settings
from windlass.control.state.codec import Later, from_plain, to_plain
from windlass.control.state.diff import diff
from windlass.control.state.fast_replace import FastReplace
from windlass.control.state.fleet import Bought, Fleet, Gone, Moved, ProviderHealth, Refused, SliceRecord, seen_nodes
from windlass.core.model.plan import Plan, Waiting
from windlass.core.model.reasons import Reason
from windlass.core.model.snapshot import Demand
from windlass.journal import Entry, Journal, JournalVersion, Record
from windlass.providers.protocol import Instance
from windlass.workloads.protocol import Acknowledgement, WorkNode

from .costs import Account

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
IS: Final = "is"
"""The key of a value in an entry; an entry without it says that the subject is gone."""

LAUNCH: Final = "launch"
REFUSED: Final = "refused"
ORDER: Final = "order"
MISTAKE: Final = "mistake"
PHASE: Final = "phase"
"""Once for each phase of a machine that comes up, where its provider reports phases."""
PASS: Final = "pass"
"""Kinds of entries that are no table: events that happened once."""

VERSION: Final = "windlass"
"""The key of an entry ``pass`` that says with which version a leader decides; its first pass has it, and every saved
state."""

UNSEEN: Final = "unseen"
"""The key of a saved state for the nodes of slices of which some did not show."""

SETTINGS: Final = "cluster"
"""The one subject of the table ``settings``."""


@dataclass(frozen=True, slots=True)
class ShadowAction:
    """Something that a shadow would do."""

    verb: str
    """launch, uncordon, cancel or drain."""
    subject: str
    """A group, or a slice."""
    count: int
    reason: Reason
    hourly_cost: int = 0
    """Nanodollars per hour."""


@dataclass(frozen=True, slots=True)
class Spending:
    """Nanodollars per hour, as it is and as a plan would have it."""

    now: int
    planned: int


@dataclass(frozen=True)
class ControllerState(FastReplace):
    """Everything that is remembered."""

    fleet: Fleet = field(default_factory=Fleet)
    observed: Observed = field(default_factory=Observed)
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    stay: Mapping[str, Reason] = field(default_factory=dict)
    account: Mapping[str, Account] = field(default_factory=dict)
    settings: Mapping[str, Settings] = field(default_factory=dict)
    would: Mapping[str, ShadowAction] = field(default_factory=dict)
    """For a shadow: what it would do."""
    spending: Mapping[str, Spending] = field(default_factory=dict)
    heard: Mapping[str, int] = field(default_factory=dict)
    """Up to which number the operator's orders were heard."""
    at: float = 0
    """When it was last written to."""
    seq: int = 0
    """The number of the last record in it."""

    def tables(self) -> dict[str, Mapping[str, Any]]:
        """Every table by its name, which is the kind of its entries."""
        return dict(zip(KINDS, _TABLES(self), strict=True))


KINDS: Final[Mapping[str, Any]] = {
    "settings": Settings,
    "demand": Demand,
    "request": Demand,
    "node": WorkNode,
    "word": Acknowledgement,
    "instance": Instance,
    "trouble": str,
    "unknown": bool,
    "seller": str,
    "slice": SliceRecord,
    "luck": ProviderHealth,
    "gone": Gone,
    "frozen": str,
    "waiting": Waiting,
    "stay": Reason,
    "account": Account,
    "would": ShadowAction,
    "spending": Spending,
    "heard": int,
}
"""What a value of each table is."""

_PLACES: Final = {
    **{kind: f"observed.{kind}" for kind in KINDS if kind in {one.name for one in fields(Observed)}},
    "luck": "fleet.provider_health",
    **{kind: f"fleet.{kind}" for kind in ("gone", "frozen")},
    "slice": "fleet.slices",
}
"""Where the tables are that are not the chronicle's own."""
_TABLES: Final = attrgetter(*(_PLACES.get(kind, kind) for kind in KINDS))
"""Every table, in the order of their kinds."""


# -- what a pass adds ----------------------------------------------------------------------------------------------


def waiting_after(before: Mapping[str, Waiting], plan: Plan) -> Mapping[str, Waiting]:
    """Who waits and why. A reason is news when it changes, not when only its numbers do."""
    if not before and not plan.waiting:
        return before
    after = {
        one.demand: old if (old := before.get(one.demand)) is not None and _alike(old, one) else one
        for one in plan.waiting
    }
    return before if before == after else after


def _alike(old: Waiting, new: Waiting) -> bool:
    return old.reason.code == new.reason.code and {name: reason.code for name, reason in old.groups.items()} == {
        name: reason.code for name, reason in new.groups.items()
    }


def stays_after(before: Mapping[str, Reason], plan: Plan) -> Mapping[str, Reason]:
    """Why each slice is kept that is not plainly busy; written again when the code changes."""
    after = {
        one.slice: old if (old := before.get(one.slice)) is not None and old.code == one.reason.code else one.reason
        for one in plan.stays
    }
    return before if before == after else after


def entries_between(before: ControllerState, after: ControllerState, at: float) -> list[Entry]:
    """What must be written so that the later chronicle is read back."""
    found: list[Entry] = []
    for kind, old, new in zip(KINDS, _TABLES(before), _TABLES(after), strict=True):
        if new is not old:
            found += entries_of(kind, old, new, at)
    return found


def entries_of(kind: str, before: Mapping[str, Any], after: Mapping[str, Any], at: float) -> list[Entry]:
    """The same for one table."""
    changed, gone = diff(before, after)
    found = [
        Entry(kind, subject, at, _is(value))
        for subject in sorted(changed)
        if (value := after[subject]) != before.get(subject)
    ]
    return found + [Entry(kind, subject, at, {}) for subject in sorted(gone)] if gone else found


def _is(value: Any) -> Mapping[str, Any]:
    return Later(lambda: {IS: to_plain(value)})


def passed_through(moves: Iterable[Moved], fleet: Fleet) -> Iterator[Entry]:
    """The states that slices only passed through, for their history: a table keeps only the last one."""
    last: dict[str, Moved] = {}
    for move in moves:
        earlier = last.get(move.slice_id)
        if earlier is not None and move.slice_id in fleet.slices:
            record = fleet.slices[move.slice_id].replace(state=earlier.target, since=earlier.at, reason=earlier.reason)
            yield Entry("slice", move.slice_id, earlier.at, _is(record))
        last[move.slice_id] = move


def happened_once(
    bought: Iterable[Bought], refused: Iterable[Refused], mistakes: Iterable[str], fleet: Fleet, at: float
) -> Iterator[Entry]:
    """Return what happened once, as entries. ``fleet``: with the slices that were refused."""
    for mistake in mistakes:
        yield Entry(MISTAKE, "workload", at, {"why": mistake})
    for one in refused:
        more: dict[str, Any] = {} if one.certain else {"certain": False}
        more |= {"retry_after": one.retry_after} if one.retry_after else {}
        more |= {"group": fleet.slices[one.slice_id].group} if one.slice_id in fleet.slices else {}
        yield Entry(REFUSED, one.slice_id, at, {"code": str(one.code), "why": one.why, **more})
    for purchase in bought:
        yield Entry(LAUNCH, purchase.launch.group, at, {**purchase.launch.to_dict(), "slices": list(purchase.ids)})


def phases_between(before: Mapping[str, Instance], after: Mapping[str, Instance], at: float) -> Iterator[Entry]:
    """The phases that machines have begun before they join, such as ``installing torch``."""
    if before is after:
        return
    for name in sorted(diff(before, after).changed):
        old, new = before.get(name), after[name]
        if new.phase and (old is None or old.phase != new.phase):
            yield Entry(PHASE, name, at, {"phase": new.phase, "group": new.group})


def new_slice_id(group: str, stamp: str, number: int) -> str:
    """An id of a slice: ``GROUP-STAMP-NUMBER``, of characters that every provider takes in names, tags and tokens."""
    return f"{_UNSAFE.sub('-', group).strip('-') or 'slice'}-{stamp}-{number}"


# -- what the journal says -----------------------------------------------------------------------------------------


def saved(controller_state: ControllerState) -> Mapping[str, Any]:
    """The whole chronicle as one saved state."""
    return Later(lambda: _saved(controller_state))


def _saved(controller_state: ControllerState) -> dict[str, Any]:
    tables = {
        kind: {subject: to_plain(value) for subject, value in sorted(table.items())}
        for kind, table in controller_state.tables().items()
    }
    return {"at": controller_state.at, "tables": tables, VERSION: __version__, **_unseen(controller_state)}


def _unseen(controller_state: ControllerState) -> dict[str, Any]:
    """The nodes of slices of which some did not show last. A restart goes by what shows; one who reads on from this
    state what was decided after it must know what the controller still knew."""
    shown, active = (
        controller_state.observed.nodes_of,
        controller_state.fleet.activity.active,
    )  # steady slices are complete in the observation
    here = {name: one.nodes for name, one in active.items() if one.nodes != seen_nodes(shown.get(name, ()))}
    return {UNSEEN: {name: to_plain(nodes) for name, nodes in sorted(here.items())}} if here else {}


def with_nodes(controller_state: ControllerState) -> ControllerState:
    """The chronicle with the nodes of every slice, as the workload showed them last; nothing else is changed."""
    nodes = controller_state.observed.nodes_of
    slices = {
        name: record.replace(nodes=seen_nodes(nodes.get(name, ())))
        for name, record in controller_state.fleet.slices.items()
    }
    return controller_state.replace(fleet=replace(controller_state.fleet, slices=slices))


class StateReader:
    """Adds up records to a chronicle. ``JournalVersion``: one of them says what this version has no word for."""

    def __init__(self, start: tuple[int, Mapping[str, Any]] | None = None) -> None:
        self.seq, self.at = 0, 0.0
        self.tables: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
        if start is not None:
            self.seq, state = start
            self.at = state["at"]
            for kind, table in state["tables"].items():
                if kind in KINDS:
                    self.tables[kind] = {
                        subject: self._value(kind, subject, data, self.seq) for subject, data in table.items()
                    }

    def add(self, record: Record) -> None:
        self.add_all((record,))

    def add_all(self, records: Iterable[Record]) -> None:
        """Many at once: of each subject only the newest is read, and the others are over."""
        newest: dict[tuple[str, str], Record] = {}
        for record in records:
            self.seq, self.at = record.seq, max(self.at, record.at)
            if record.kind in KINDS:
                newest[record.kind, record.subject] = record
        for (kind, subject), record in newest.items():
            if IS in record.data:
                self.tables[kind][subject] = self._value(kind, subject, record.data[IS], record.seq)
            else:
                self.tables[kind].pop(subject, None)

    def _value(self, kind: str, subject: str, data: Any, seq: int) -> Any:
        try:
            return from_plain(KINDS[kind], data)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise JournalVersion(
                f"Windlass {__version__} cannot read what the journal says of {kind} {subject} at record {seq} "
                f"({error}): a newer one has written it. Install that one again, or give this one a journal of its own."
            ) from error

    def controller_state(self) -> ControllerState:
        tables = self.tables
        return ControllerState(
            fleet=Fleet(tables["slice"], tables["luck"], tables["gone"], tables["frozen"]),
            observed=Observed(**{one.name: tables[one.name] for one in fields(Observed)}),
            waiting=tables["waiting"],
            stay=tables["stay"],
            account=tables["account"],
            settings=tables["settings"],
            would=tables["would"],
            spending=tables["spending"],
            heard=tables["heard"],
            at=self.at,
            seq=self.seq,
        )


class TooOld(Exception):
    """The journal does not reach back so far any more; ``since``: from when on it has records."""

    def __init__(self, since: float) -> None:
        super().__init__("the journal does not reach back so far any more")
        self.since = since


def recovered(journal: Journal, until: float | None = None) -> ControllerState:
    """The chronicle as it was committed last, or as it was at an instant.

    ``TooOld``: what happened before that instant has been compacted away.
    """
    return _recovered(journal, until)[0]


def recovered_with_checkpoint(journal: Journal) -> tuple[ControllerState, int]:
    """The state as it was committed last, and the number of the checkpoint that it was read from; 0: there is none."""
    return _recovered(journal, None)


def _recovered(journal: Journal, until: float | None) -> tuple[ControllerState, int]:
    start = journal.latest_state(until)
    # Only a part of the history adds up to a state that never existed.
    if start is None and until is not None and (whole := journal.oldest_state()) is not None:
        raise TooOld(whole[1]["at"])
    reader = StateReader(start)
    checkpoint = reader.seq
    reader.add_all(journal.read(after=checkpoint, until=until))
    return reader.controller_state(), checkpoint
