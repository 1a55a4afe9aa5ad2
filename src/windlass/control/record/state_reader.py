"""StateReader applies the records of a journal to get the state of a controller, now or at a time in the past.

``saved`` writes a checkpoint; ``recovered`` reads the newest one and the records after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from windlass._version import __version__
from windlass.control.state.codec import Later, from_plain, to_plain
from windlass.control.state.fleet import seen_nodes
from windlass.journal import Journal, JournalVersion, Record

from .controller_state import KINDS, ControllerState
from .journal_tables import IS, ORDER, VERSION

UNSEEN: Final = "unseen"
"""The checkpoint key for the nodes of slices some of whose nodes were not visible."""


def saved(controller_state: ControllerState) -> Mapping[str, Any]:
    """Encode the whole state as a checkpoint."""
    return Later(lambda: _saved(controller_state))


def _saved(controller_state: ControllerState) -> dict[str, Any]:
    tables = {
        kind: {subject: to_plain(value) for subject, value in sorted(table.items())}
        for kind, table in controller_state.tables().items()
    }
    return {"at": controller_state.at, "tables": tables, VERSION: __version__, **_unseen(controller_state)}


def _unseen(controller_state: ControllerState) -> dict[str, Any]:
    """Return the nodes of slices some of whose nodes were not visible last. A restart observes all nodes, but a replay
    from this checkpoint needs what the controller knew then.
    """
    shown, active = (
        controller_state.observed.nodes_of,
        controller_state.fleet.activity.active,
    )  # steady slices are complete in the observation
    here = {name: one.nodes for name, one in active.items() if one.nodes != seen_nodes(shown.get(name, ()))}
    return {UNSEEN: {name: to_plain(nodes) for name, nodes in sorted(here.items())}} if here else {}


def with_nodes(controller_state: ControllerState) -> ControllerState:
    """Return the state with the nodes of every slice as the workload last reported them."""
    nodes = controller_state.observed.nodes_of
    slices = {
        name: record.replace(nodes=seen_nodes(nodes.get(name, ())))
        for name, record in controller_state.fleet.slices.items()
    }
    return controller_state.replace(fleet=replace(controller_state.fleet, slices=slices))


class StateReader:
    """Applies records to a state. ``JournalVersion``: this version cannot read a record."""

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
        """Apply many records at once; of each subject only the newest is decoded."""
        newest: dict[tuple[str, str], Record] = {}
        for record in records:
            self.seq = record.seq
            if record.kind != ORDER:  # the last one, not the latest: clocks are set back
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
        return ControllerState.of(self.tables, self.at, self.seq)


class TooOld(Exception):
    """The journal no longer reaches back so far; ``since``: the time of its first record."""

    def __init__(self, since: float) -> None:
        super().__init__("the journal does not reach back so far any more")
        self.since = since


def recovered(journal: Journal, until: float | None = None) -> ControllerState:
    """Return the last committed state, or the state at a time. ``TooOld``: its records were compacted."""
    return _recovered(journal, until)[0]


def recovered_with_checkpoint(journal: Journal) -> tuple[ControllerState, int]:
    """Return the last committed state, and the number of the checkpoint it was read from; 0: none."""
    return _recovered(journal, None)


def _recovered(journal: Journal, until: float | None) -> tuple[ControllerState, int]:
    start = journal.latest_state(until)
    # Records without their beginning would give a state that never existed.
    if start is None and until is not None and (whole := journal.oldest_state()) is not None:
        raise TooOld(whole[1]["at"])
    reader = StateReader(start)
    checkpoint = reader.seq
    reader.add_all(journal.read(after=checkpoint, until=until))
    return reader.controller_state(), checkpoint
