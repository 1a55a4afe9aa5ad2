"""Replay runs every recorded pass again with the code of today and compares what it would write, byte for byte.

The inputs of a pass are read from the journal, ``reconcile`` decides again, and its entries are compared with the
recorded ones. Nothing else is read, and nothing is written.

A pass is the set of records that were appended together: they have one epoch and one time, and a ``pass`` entry
separates passes where these are equal. The first pass of every leader has one. Leaders of older versions did not record
everything a pass depends on; theirs are only counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from typing import Any, Final

from windlass.control.reconcile.cycle import (
    CALLING,
    JUMP,
    LAST_PASS,
    ORDERS,
    STEP,
    UNOBSERVED,
    Inputs,
    ReconcileResult,
    reconcile,
)
from windlass.control.reconcile.operator_orders import Order, order_in
from windlass.control.record.controller_state import KINDS, SETTINGS, TABLES, ControllerState
from windlass.control.record.journal_tables import IS, LAUNCH, MISTAKE, ORDER, PASS, REFUSED, VERSION
from windlass.control.record.state_reader import UNSEEN, StateReader, with_nodes
from windlass.control.state.codec import from_plain
from windlass.control.state.fleet import Refused, SliceRecord
from windlass.core.model.plan import Plan
from windlass.core.model.reasons import Code
from windlass.core.model.snapshot import Node, Snapshot
from windlass.core.planner import plan
from windlass.core.tables.planner_memo import PlannerMemo
from windlass.journal import Entry, Journal, Record
from windlass.journal.encoding import encode

from .settings import Settings

DECIDED: Final = frozenset({"slice", LAUNCH, "waiting", "stay"})
"""Kinds of entries that count as decisions. All kinds are compared."""
OBSERVED: Final = {
    kind: attribute.removeprefix("observed.")
    for kind, (attribute, _) in TABLES.items()
    if attribute.startswith("observed.")
}
"""Tables of observations, each with its attribute in ``Observed``."""


class Unreadable(Exception):
    """A record is malformed or missing; the message has its number."""


@dataclass(frozen=True, slots=True)
class ReplayMismatch:
    """The first entry of a pass that differs from its record."""

    number: int
    """Number of the pass, from 1."""
    at: float
    seq: int
    """Number of the record; where nothing was recorded, of the last one of the pass."""
    recorded: str
    """Kind, subject and data of the record; empty: there is none."""
    again: str
    """The entry that the code of today writes; empty: none."""


@dataclass
class Replay:
    """The result of a replay."""

    passes: int = 0
    """Passes that were replayed."""
    decisions: int = 0
    """Transitions, launches and reasons in these passes."""
    differing: int = 0
    """Passes that differ from their records."""
    first: ReplayMismatch | None = None
    unmarked: int = 0
    """Passes of older versions, which did not record all inputs and cannot be replayed."""
    began_at: int = 0
    """The number of the last record that is covered by the checkpoint at the start; 0: the replay starts with record 1.
    """
    since: float | None = None
    until: float | None = None
    """Times of the first and the last replayed pass."""
    versions: list[str] = field(default_factory=list)
    """Versions that recorded the passes, in order."""


@dataclass(frozen=True, slots=True)
class RecordedPass:
    """The records of one pass."""

    records: tuple[Record, ...]

    @property
    def epoch(self) -> int:
        return self.records[0].epoch

    @property
    def at(self) -> float:
        return self.records[0].at

    @property
    def mark(self) -> Mapping[str, Any] | None:
        """The data of its ``pass`` entry; None: it has none."""
        return self.records[0].data if self.records[0].kind == PASS else None


def passes_of(records: Iterable[Record], orders: list[tuple[int, Order]]) -> Iterator[RecordedPass]:
    """Yield the passes in order. Operators' orders between them are appended to ``orders``."""
    together: list[Record] = []
    for record in records:
        if record.kind == ORDER:
            if (order := order_in(record)) is not None:
                orders.append((record.seq, order))
            continue
        begun = together and (record.kind == PASS or (record.epoch, record.at) != (together[0].epoch, together[0].at))
        if begun:
            yield RecordedPass(tuple(together))
            together = []
        together.append(record)
    if together:
        yield RecordedPass(tuple(together))


def beginning(journal: Journal, since: float | None = None) -> tuple[ControllerState, bool, int]:
    """Return the state with which the journal begins, whether the passes after it can be replayed, and the number of
    the last record in it. ``since``: start with the newest checkpoint before that time, if there is one.
    """
    start = (None if since is None else journal.latest_state(since)) or journal.oldest_state()
    if start is None:
        return ControllerState(), False, 0
    seq, state = start
    controller_state = with_nodes(StateReader(start).controller_state())
    unseen = state.get(UNSEEN, {})
    slices = {
        name: replace(record, nodes=from_plain(tuple[Node, ...], unseen[name])) if name in unseen else record
        for name, record in controller_state.fleet.slices.items()
    }
    return replace(controller_state, fleet=replace(controller_state.fleet, slices=slices)), VERSION in state, seq


def without_gaps(records: Iterable[Record], after: int) -> Iterator[Record]:
    """Yield the records; raise ``Unreadable`` where one is missing."""
    for record in records:
        if record.seq != after + 1:
            raise Unreadable(f"record {after + 1} is missing: the journal is not whole")
        after = record.seq
        yield record


def replayed(
    journal: Journal, *, settings: Callable[[Settings], Settings] | None = None, since: float | None = None
) -> Replay:
    """Replay every pass, and report those from ``since`` on. ``settings`` maps the recorded settings to others: the
    report then has the passes that would have decided differently, each from its recorded inputs.
    """
    controller_state, marked, seq = beginning(journal, since)
    report, planner = Replay(began_at=seq), partial(plan, memo=PlannerMemo())
    applied = controller_state.applied_orders.get(ORDERS, 0)
    early = journal.read(applied, kinds=(ORDER,), upto=seq)
    orders = [(record.seq, order) for record in early if (order := order_in(record)) is not None]
    epoch: int | None = None
    for recorded in passes_of(without_gaps(journal.read(seq), seq), orders):
        # The passes between the checkpoint and `since` are replayed too: they give the state at `since`.
        counts = report if since is None or recorded.at >= since else Replay()
        begins = VERSION in (recorded.mark or {})
        if begins or (recorded.epoch != epoch and (epoch is not None or not seq)):
            controller_state = with_nodes(controller_state)  # a new leader knows only what is in the journal
            marked = begins
        epoch = recorded.epoch
        if marked:
            controller_state = _again(counts, controller_state, recorded, orders, settings, planner)
        else:
            counts.unmarked += 1
            controller_state = _applied(controller_state, recorded, controller_state)
        orders[:] = [each for each in orders if each[0] > controller_state.applied_orders.get(ORDERS, 0)]
    return report


def _again(
    report: Replay,
    before: ControllerState,
    recorded: RecordedPass,
    orders: Sequence[tuple[int, Order]],
    change: Callable[[Settings], Settings] | None,
    planner: Callable[[Snapshot], Plan],
) -> ControllerState:
    """Replay one pass and add the result to the report; return the recorded state after the pass."""
    report.passes += 1
    number = report.passes + report.unmarked
    report.decisions += sum(record.kind in DECIDED for record in recorded.records)
    report.since, report.until = recorded.at if report.since is None else report.since, recorded.at
    if recorded.mark is not None and (version := recorded.mark.get(VERSION)) and version not in report.versions:
        report.versions.append(str(version))
    inputs = recorded_inputs(before, recorded, orders)
    if change is not None:
        inputs = replace(inputs, settings=change(inputs.settings))
    made: ReconcileResult | None = None
    try:
        made = reconcile(before, inputs, _ids_of(recorded), planner)
    except Exception as error:  # noqa: BLE001  # no recorded pass raised: what raises now is a difference like any other
        difference: ReplayMismatch | None = ReplayMismatch(
            number, recorded.at, recorded.records[-1].seq, "", f"raises {type(error).__name__}: {error}"
        )
    else:
        if change is None:
            difference = _first_difference(number, recorded, made.entries)
        else:
            difference = _other_actions(number, recorded, made.entries, before)
    if difference is None and change is None and made is not None:
        return replace(made.after, seq=recorded.records[-1].seq)
    report.differing += difference is not None
    report.first = report.first or difference
    return _applied(before, recorded, before if made is None else made.after)


def _first_difference(number: int, recorded: RecordedPass, again: Sequence[Entry]) -> ReplayMismatch | None:
    """Return the first entry that differs, byte for byte."""
    for record, entry in zip_longest(recorded.records, again):
        was, now = _line(record) if record is not None else "", _line(entry) if entry is not None else ""
        if record is not None and entry is not None and record.kind == entry.kind and was != now:
            now = _line(_as_recorded(entry, record))
        if was != now:
            return ReplayMismatch(
                number, recorded.at, recorded.records[-1].seq if record is None else record.seq, was, now
            )
    return None


def _other_actions(
    number: int, recorded: RecordedPass, again: Sequence[Entry], before: ControllerState
) -> ReplayMismatch | None:
    """Return how the actions of a pass differ under other settings. Reasons whose numbers differ are not counted."""
    was, now = _actions(recorded.records, before), _actions(again, before)
    if was.keys() == now.keys():
        return None
    left, more = ("; ".join(x[key] for key in x if key not in y) for x, y in ((was, now), (now, was)))
    return ReplayMismatch(number, recorded.at, recorded.records[-1].seq, left, more)


def _actions(entries: Iterable[Entry | Record], before: ControllerState) -> dict[tuple[str, str], str]:
    """Return the changes of state in a pass, each as a sentence."""
    actions: dict[tuple[str, str], str] = {}
    for entry in entries:
        if entry.kind == "slice" and IS in entry.data:
            record, old = from_plain(SliceRecord, entry.data[IS]), before.fleet.slices.get(entry.subject)
            if old is None or old.state != record.state:
                actions[entry.subject, record.state] = f"{entry.subject} {record.state}: {record.reason.why}"
    return actions


_ADDED: Final = {LAUNCH: ("demands",), REFUSED: ("group",)}
"""Keys that older versions did not write."""


def _as_recorded(entry: Entry, record: Record) -> Entry:
    """Return an entry without the keys that the recording version did not know."""
    unknown = {key for key in _ADDED.get(entry.kind, ()) if key not in record.data}
    return (
        replace(entry, data={key: one for key, one in entry.data.items() if key not in unknown}) if unknown else entry
    )


def _line(entry: Entry | Record) -> str:
    """Return an entry as it is stored: canonical JSON."""
    return f"{entry.kind} {entry.subject} {float(entry.at)!r} {encode(entry.data, entry.kind)}"


def recorded_inputs(before: ControllerState, recorded: RecordedPass, orders: Sequence[tuple[int, Order]]) -> Inputs:
    """Return the inputs of a pass from its records; ``Unreadable`` names a malformed record."""
    mark = dict(recorded.mark or {})
    news: dict[str, dict[str, Any]] = {}
    refused: list[Refused] = []
    mistakes: list[str] = []
    settings, clock = before.settings.get(SETTINGS), dict(before.clock)
    applied = before.applied_orders.get(ORDERS, 0)
    for record in recorded.records:
        with _reading(record):
            data: Any = record.data
            if record.kind in OBSERVED:
                attribute = OBSERVED[record.kind]
                table = news.setdefault(attribute, dict(getattr(before.observed, attribute)))
                _put(table, record)
            elif record.kind == "settings":
                settings = from_plain(Settings, data[IS])
            elif record.kind == "clock":
                _put(clock, record)
            elif record.kind == "heard":
                applied = int(data[IS])
            elif record.kind == MISTAKE:
                mistakes.append(data["why"])
            elif record.kind == REFUSED:
                more = {key: data[key] for key in ("retry_after", "certain") if key in data}
                refused.append(Refused(record.subject, Code(data["code"]), data["why"], **more))
    if settings is None:
        raise Unreadable(f"record {recorded.records[0].seq}: no settings are recorded before it")
    return Inputs(
        now=recorded.at,
        settings=settings,
        observed=replace(before.observed, **news),
        jump=mark.pop(JUMP, 0.0),
        unobserved=mark.pop(UNOBSERVED, 0.0),
        orders=[each for each in orders if each[0] <= applied],
        refused=tuple(refused),
        calling=frozenset(mark.pop(CALLING, ())),
        mistakes=tuple(mistakes),
        takeover_step=mark.pop(STEP, 0.0),
        last_pass=mark.pop(LAST_PASS, None),
        clock=before.clock if clock == before.clock else clock,
        mark=mark,
    )


def _ids_of(recorded: RecordedPass) -> Callable[[str], str]:
    """Return a function that gives new slices their recorded ids; a slice that was not recorded gets an unused name."""
    ids: dict[str, deque[str]] = {}
    for record in recorded.records:
        if record.kind == LAUNCH:
            with _reading(record):
                ids.setdefault(record.subject, deque()).extend(record.data["slices"])
    more = iter(range(1, 10**9))

    def new_id(group: str) -> str:
        left = ids.get(group)
        return left.popleft() if left else f"{group}-not-recorded-{next(more)}"

    return new_id


def _applied(before: ControllerState, recorded: RecordedPass, nodes: ControllerState) -> ControllerState:
    """Return the recorded state after a pass, with the nodes from ``nodes``, which are not recorded."""
    reader = StateReader()
    reader.tables = {kind: dict(table) for kind, table in before.tables().items()}
    for record in recorded.records:
        with _reading(record):
            reader.add(record)
    after = replace(reader.controller_state(), at=recorded.at)
    here = nodes.fleet.slices
    slices = {
        name: replace(record, nodes=here[name].nodes) if name in here else record
        for name, record in after.fleet.slices.items()
    }
    return replace(after, fleet=replace(after.fleet, slices=slices))


def _put(table: dict[str, Any], record: Record) -> None:
    if IS in record.data:
        table[record.subject] = from_plain(KINDS[record.kind], record.data[IS])
    else:
        table.pop(record.subject, None)


@contextmanager
def _reading(record: Record) -> Iterator[None]:
    """A context for reading one record: turns any error into ``Unreadable`` with the number of the record."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        what = f"record {record.seq} ({record.kind} of {record.subject})"
        raise Unreadable(f"{what} is malformed: {error!r}") from error
