"""StateReader adds up the records of a journal to the state of a controller, of now or of an instant in the past.

``saved`` writes a checkpoint; ``recovered`` reads the newest one and the records after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from windlass._version import __version__
from windlass.control.observe.observed import Observed
from windlass.control.state.codec import Later, from_plain, to_plain
from windlass.control.state.fleet import Fleet, seen_nodes
from windlass.journal import Journal, JournalVersion, Record

from .controller_state import KINDS, ControllerState
from .journal_tables import IS, ORDER, VERSION

UNSEEN: Final = "unseen"
"""The key of a saved state for the nodes of slices of which some did not show."""


def saved(controller_state: ControllerState) -> Mapping[str, Any]:
    """The whole state as one checkpoint."""
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
    """The state with the nodes of every slice, as the workload last reported them; nothing else changes."""
    nodes = controller_state.observed.nodes_of
    slices = {
        name: record.replace(nodes=seen_nodes(nodes.get(name, ())))
        for name, record in controller_state.fleet.slices.items()
    }
    return controller_state.replace(fleet=replace(controller_state.fleet, slices=slices))


class StateReader:
    """Adds up records to a state. ``JournalVersion``: a record holds something that this version cannot read."""

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
            self.seq = record.seq
            if record.kind != ORDER:  # the last one, not the latest: the clock may have been set back since
                self.at = record.at
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
            clock=tables["clock"],
            at=self.at,
            seq=self.seq,
        )


class TooOld(Exception):
    """The journal does not reach back so far any more; ``since``: from when on it has records."""

    def __init__(self, since: float) -> None:
        super().__init__("the journal does not reach back so far any more")
        self.since = since


def recovered(journal: Journal, until: float | None = None) -> ControllerState:
    """The state as it was committed last, or as it was at an instant.

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
