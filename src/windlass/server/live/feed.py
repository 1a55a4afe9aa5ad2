"""The feed is a thread that follows the journal and makes the status and its changes once for all readers.

It polls the journal several times a second. Passes that were written since the last message become one message: a
patch of the status and the events, encoded once. Messages are kept, so that a reader that reconnects continues where it
was. The thread never blocks the loop of a controller, and a slow reader never blocks the thread.
"""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from windlass._version import __version__
from windlass.control.record.controller_state import ControllerState
from windlass.control.record.costs import Account
from windlass.control.record.state_reader import StateReader, TooOld, with_nodes
from windlass.control.report.current import PlannedState, planned_state, read_state
from windlass.control.report.events import later_events, lines_of, passes
from windlass.control.report.leader import Leader, leader_of
from windlass.control.report.rows import RowCache
from windlass.control.report.status import Status, spent_since
from windlass.control.report.timeline import Timeline
from windlass.control.report.why import Question
from windlass.control.settings import Settings
from windlass.control.state.diff import full_diff
from windlass.control.state.fleet import Fleet, seen_nodes
from windlass.core.model.plan import Unblock
from windlass.core.planner import unblocks_of
from windlass.core.tables.planner_memo import PlannerMemo
from windlass.journal import Journal, JournalError, Record

from .patches import INSTANTS, TABLES, difference, merged
from .unblocks import BUSY_SHARE, UnblockSearch

PASS: Final = "windlass.pass/v1"
POLL: Final = 0.05
"""Seconds between two polls of the journal; a poll reads one row."""
PER_SECOND: Final = 5
"""At most this many messages are sent in any second."""
SLOT: Final = 1 / PER_SECOND
"""Seconds between two messages. A late message does not delay those after it, as long as it is sent in its slot."""
LATE: Final = 0.75 * SLOT
"""A message that is later than this many seconds starts a new sequence of slots."""
PASS_PATIENCE: Final = 0.1
"""Seconds that the feed waits for the end of a pass of this process before it works: both need the interpreter."""
MARGIN: Final = 0.02
"""A message is begun this many seconds earlier than the slowest of the last ones needed."""
IDLE: Final = 2.0
"""Seconds without records after which the status is rebuilt, because a lease or a back-off may have expired."""
LARGE_DECISION: Final = 50
"""A decision that names more waiting and placed demands than this is large. It is sent whole if it changed, and with
many waiting demands it would be most of every message."""
DECISION_EVERY: Final = 5.0
"""A large decision is renewed at most once in so many seconds; its ``at`` tells its time."""
MOMENTS: Final = 8
"""How many documents about the past are kept."""
SETTLED: Final = 60.0
"""Seconds after which no record of an instant is expected any more: only then its document is kept."""
FAR: Final = 20_000
"""A reader that is further behind, in records, must load the status again."""
FOLLOWED: Final = 60.0
"""A timeline that was not read for this many seconds may have missed records that were compacted."""
WEEK: Final = 7 * 86400.0


def encoded(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True)
class PassMessage:
    """What changed in one or more whole passes."""

    seq: int
    after: int
    """The number of the previous message."""
    at: float
    patch: Mapping[str, Any]
    events: tuple[Mapping[str, Any], ...]

    def body(self, topics: frozenset[str], after: int = 0) -> bytes:
        """Encodes the message. ``after``: events up to this record are left out."""
        events = [one for one in self.events if one["seq"] > after]
        document = {
            "schema": PASS,
            "seq": self.seq,
            "at": self.at,
            **({"status": self.patch} if "status" in topics else {}),
            **({"events": events} if "events" in topics else {}),
        }
        return b"id: %d\nevent: pass\ndata: %s\n\n" % (self.seq, encoded(document))

    @cached_property
    def whole(self) -> bytes:
        return self.body(frozenset({"status", "events"}))

    @cached_property
    def _parts(self) -> dict[frozenset[str], bytes]:
        return {}

    def sent(self, topics: frozenset[str]) -> bytes:
        """Returns the message encoded for these topics; encoded once for all readers."""
        if topics == {"status", "events"}:
            return self.whole
        if topics not in self._parts:
            self._parts[topics] = self.body(topics)
        return self._parts[topics]


class EncodedRows:
    """Encodes a status, and reuses the encoding of every row that is the same object as before."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, tuple[Any, bytes]]] = {table: {} for table in TABLES}
        self._turn = threading.Lock()

    def body(self, document: Mapping[str, Any]) -> bytes:
        with self._turn:
            parts = [
                b"%s:%s" % (encoded(key), self._table(key, value) if key in TABLES else encoded(value))
                for key, value in document.items()
            ]
        return b"{%s}" % b",".join(parts)

    def _table(self, table: str, rows: Iterable[Mapping[str, Any]]) -> bytes:
        name, before, after = TABLES[table], self._known[table], {}
        for row in rows:
            known = before.get(row[name])
            after[row[name]] = known if known is not None and known[0] is row else (row, encoded(row))
        self._known[table] = after
        return b"[%s]" % b",".join([one for _, one in after.values()])


@dataclass(frozen=True)
class Current:
    """The status after the last message, and what it was made from."""

    document: dict[str, Any]
    planned: PlannedState
    leader: Leader
    unblocks: Mapping[str, tuple[Unblock, ...]]
    accounts: Mapping[str, Account] = field(default_factory=dict)

    rows: EncodedRows | None = None
    """The encoded rows of earlier documents."""

    @property
    def seq(self) -> int:
        return int(self.document["seq"])

    @cached_property
    def body(self) -> bytes:
        return encoded(self.document) if self.rows is None else self.rows.body(self.document)

    @cached_property
    def gzipped(self) -> bytes:
        return gzip.compress(self.body, 5, mtime=0)


class Feed:
    """Follows one journal. ``start`` makes the first status and starts the thread that makes the others."""

    def __init__(
        self,
        journal: Journal,
        settings: Callable[[], Settings],
        *,
        keep: int = 1000,
        now: Callable[[], float] = time.time,
        more: Callable[[], Mapping[str, Any]] = dict,
        on_message: Callable[[PassMessage], None] = lambda _: None,
        on_records: Callable[[list[Record]], None] = lambda _: None,
    ) -> None:
        self.journal, self._settings, self._now = journal, settings, now
        self._more, self._on_message, self._on_records = more, on_message, on_records
        self.messages: deque[PassMessage] = deque(maxlen=keep)
        self.problem: str | None = None
        """Why the journal cannot be read; None if it can."""
        self._current: Current | None = None
        self._reader: StateReader | None = None
        self._unblocks = UnblockSearch(self._again)
        self._stale = False
        """Whether the status must be rebuilt although nothing was written."""
        self._began: float | None = None
        self._took, self._made_at, self._decided_at = 0.0, -1e9, -1e9
        self._sent: deque[float] = deque(maxlen=PER_SECOND)
        self._slot = 0.0
        """When the next message is due, by the monotonic clock."""
        self._lately: deque[float] = deque(maxlen=PER_SECOND)
        """How many seconds it took to make each of the last messages."""
        self._wake, self._stop, self._no_pass = (threading.Event() for _ in range(3))
        self._no_pass.set()
        self._thread: threading.Thread | None = None
        self._moments: OrderedDict[float, Current] = OrderedDict()
        self._rows, self._joined, self._memo = RowCache(), _JoinedSlices(), PlannerMemo()
        self._encoded = EncodedRows()
        self._timeline: Timeline | None = None
        self._followed_at = 0.0
        self._poll_lock, self._timeline_lock, self._moments_lock = (threading.Lock() for _ in range(3))

    # -- the thread -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.poll(force=True)
        self._thread = threading.Thread(target=self._run, name="windlass-feed", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=1)  # a journal that hangs must not hold up the end of the program

    def wake(self) -> None:
        """Polls the journal at once: there is a new record."""
        self._wake.set()

    def pass_begins(self) -> None:
        """A controller of this process begins a pass: until it ends, the feed waits, so that the pass is not slowed."""
        self._no_pass.clear()

    def pass_ends(self) -> None:
        self._no_pass.set()
        self.wake()

    def _again(self) -> None:
        self._stale = True
        self._wake.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(POLL)
            self._wake.clear()
            if self._stop.is_set():
                return
            self._no_pass.wait(PASS_PATIENCE)
            self.poll()
            # The next message is begun so early that it is ready when it may be sent.
            self._stop.wait(self._pause() - min(SLOT, max(self._lately, default=0.0) + MARGIN))

    def _pause(self) -> float:
        """Returns the seconds until the next message may be sent."""
        full = self._sent[0] + 1.0 if len(self._sent) == PER_SECOND else 0.0
        return max(full, self._slot) - time.monotonic()

    def _note_sent(self) -> None:
        sent = time.monotonic()
        self._slot = (self._slot if sent - self._slot < LATE else sent) + SLOT
        self._sent.append(sent)

    def poll(self, *, force: bool = False) -> bool:
        """Reads new records and makes a message of them; returns whether there was one."""
        with self._poll_lock:
            return self._polled(force)

    def _polled(self, force: bool) -> bool:
        try:
            records = self._read()
            idle = time.monotonic() - self._made_at > max(IDLE, BUSY_SHARE * self._took)
            if not records and not force and not idle and not self._stale and self.problem is None:
                return False
            self._stale = False
            return self._make(records)
        except JournalError as error:
            self.problem = str(error)
        except Exception as error:  # noqa: BLE001  # the thread must live on: the next read may succeed
            self.problem = f"{type(error).__name__}: {error}"
        return False

    def _read(self) -> list[Record]:
        if self._reader is None:
            reader = StateReader(self.journal.latest_state())
            records = list(self.journal.read(reader.seq))
            reader.add_all(records)
            self._reader = reader
            return records
        upto = self.journal.last_seq()
        if upto <= self._reader.seq:
            return []
        records = list(self.journal.read(self._reader.seq, upto=upto))
        # Numbers have no gaps, so a missing record was compacted: the state is then read from a newer checkpoint.
        if len(records) < upto - self._reader.seq and self._is_compacted(self._reader.seq):
            self._reader = None
            self.messages.clear()
            return self._read()
        self._reader.add_all(records)
        return records

    def _is_compacted(self, seq: int) -> bool:
        """Whether records after this one may be missing."""
        start = self.journal.oldest_state()
        return start is not None and start[0] > seq

    def _make(self, records: list[Record]) -> bool:
        assert self._reader is not None
        began = time.monotonic()
        now = self._now()
        leader = leader_of(self.journal, now)
        controller_state = self._joined.of(_copied(self._reader).controller_state())
        planned = planned_state(controller_state, self._settings(), leader.instant(now), self._memo)
        unblocks = self._unblocks.of(planned, wait=self._current is None)
        if self._began is None:
            self._began = spent_since(self.journal)
        before, message = self._current, None
        decision = self._known_decision(before, planned)
        status = Status(self._settings(), leader, planned, now, self._began, unblocks, self._rows, decision)
        document = {**status.to_dict(), **self._more()}
        self._rows.keep(controller_state.observed.demand)
        if before is not None:
            patch, kept = difference(before.document, document)
            events = tuple(line.document() for one in passes(records) for line in lines_of(one, one[-1].seq))
            document = kept
            if records or patch["set"] or patch["gone"]:
                message = PassMessage(document["seq"], before.seq, now, patch, events)
        self._made_at, self._took = time.monotonic(), time.monotonic() - began
        if message is not None:
            self._lately.append(self._took)
            if threading.current_thread() is self._thread:
                self._stop.wait(self._pause())
                self._no_pass.wait(PASS_PATIENCE)
            self._note_sent()
            self._keep(message)
        self._current = Current(document, planned, leader, unblocks, status.accounts, self._encoded)
        self.problem = None
        if records:
            self._on_records(records)
        if message is not None:
            self._on_message(message)
        return message is not None

    def _keep(self, message: PassMessage) -> None:
        """Keeps a message for readers that reconnect. Messages about changes by time alone are kept as one: a quiet
        cluster makes one every few seconds, and a reader needs only their sum."""
        last = self.messages[-1] if self.messages else None
        if last is not None and last.after == last.seq == message.after == message.seq:
            self.messages[-1] = replace(message, patch=merged(last.patch, message.patch))
        else:
            self.messages.append(message)

    def _known_decision(self, before: Current | None, planned: PlannedState) -> dict[str, Any] | None:
        """Returns the decision of the last document if it is still to be sent; None: a new one is made."""
        large = len(planned.plan.waiting) + len(planned.plan.placements) > LARGE_DECISION
        if before is not None and large and time.monotonic() - self._decided_at < DECISION_EVERY:
            known: dict[str, Any] = before.document["decision"]
            return known
        self._decided_at = time.monotonic()
        return None

    # -- queries --------------------------------------------------------------------------------------------------

    @property
    def current(self) -> Current | None:
        """The newest status; None if the journal could not be read yet."""
        return self._current

    @property
    def seq(self) -> int:
        return 0 if self._current is None else self._current.seq

    def at(self, instant: float) -> Current:
        """Returns the status of an instant; raises ``TooOld`` if the journal does not reach back so far."""
        with self._moments_lock:
            if (known := self._moments.get(instant)) is not None:
                self._moments.move_to_end(instant)
                return known
        controller_state = read_state(self.journal, instant)
        first = next(self.journal.read(limit=1), None)
        if not controller_state.seq and first is not None and first.at > instant:
            raise TooOld(first.at)
        now = self._now()
        leader = leader_of(self.journal, now)
        planned = planned_state(controller_state, self._settings(), instant)
        status = Status(self._settings(), leader, planned, instant, spent_since(self.journal))
        made = Current(status.to_dict(), planned, leader, planned.plan.unblocks)
        if instant > now - SETTLED:
            return made
        with self._moments_lock:
            self._moments[instant] = made
            while len(self._moments) > MOMENTS:
                self._moments.popitem(last=False)
        return made

    def question(self, name: str, instant: float | None) -> Question:
        """Returns the input of the why document; all questions about now share the plan of the last pass."""
        known = self._current if instant is None else self.at(instant)
        if known is None:
            raise JournalError(self.problem or "the journal was not read yet")
        search = unblocks_of if instant is not None else self._unblocks.of_one
        return Question(name, instant, known.planned, self.journal, known.leader.alive, known.unblocks, search)

    def timeline(self) -> Timeline:
        """Returns the timeline of the last week; the journal is read once, then followed."""
        with self._timeline_lock:
            known, asked = self._timeline, time.monotonic()
            behind = known is not None and asked - self._followed_at > FOLLOWED and self._is_compacted(known.seq)
            if known is None or behind:
                known = self._timeline = Timeline.of(self.journal, self._now() - WEEK)
            known.follow(self.journal)
            self._followed_at = asked
            return known

    def after(self, seq: int) -> list[PassMessage] | None:
        """Returns the messages after a record; None if they are not kept and a reader must load the status again."""
        current = self._current
        if current is None or seq > current.seq:
            return None
        kept = list(self.messages)
        if seq == current.seq:
            # Messages about changes by time alone have the same number.
            return [one for one in kept if one.seq == seq and one.after == seq]
        if kept and kept[0].after <= seq:
            return [one for one in kept if one.seq > seq]
        return self._caught_up(seq, current)

    def _caught_up(self, seq: int, current: Current) -> list[PassMessage] | None:
        """Makes one message from the journal for a record that is older than the kept messages."""
        record = next(self.journal.read(seq - 1, limit=1), None)
        if seq < 1 or current.seq - seq > FAR or record is None or record.seq != seq:
            return None
        start = self.journal.latest_state(record.at)
        if start is None and self.journal.oldest_state() is not None:
            return None
        reader = StateReader(start if start is None or start[0] <= seq else None)
        if start is not None and start[0] > seq:
            return None
        reader.add_all(self.journal.read(reader.seq, upto=seq))
        planned = planned_state(with_nodes(reader.controller_state()), self._settings(), record.at)
        status = Status(self._settings(), current.leader, planned, record.at, self._began, {})
        patch, _ = difference(status.to_dict(), current.document)
        # The leader and the known unblocks are not recorded, so all parts but groups and slices are sent whole.
        parts = {key: one for key, one in current.document.items() if key not in TABLES and key not in INSTANTS}
        patch["set"] |= {**parts, "demands": {row["id"]: row for row in current.document["demands"]}}
        found = later_events(self.journal, seq, current.seq)
        events = tuple(line.document() for together in found for line in together if (line.seq or 0) > seq)
        return [PassMessage(current.seq, seq, self._now(), patch, events)]

    def hello(self, role: str) -> bytes:
        document = {
            "schema": "windlass.hello/v1",
            "seq": self.seq,
            "version": __version__,
            "role": role,
            "at": self._now(),
        }
        return b"event: hello\ndata: %s\n\n" % encoded(document)


class _JoinedSlices:
    """Joins slices with their nodes; an unchanged slice stays the same object.

    Values derived from a slice are cached in it, and the counts of the fleet are updated incrementally, so the cost
    depends on what has changed and not on the size of the fleet.
    """

    def __init__(self) -> None:
        self._before: ControllerState | None = None
        """The state that was joined last."""
        self._fleet = Fleet()
        """The fleet of that state, joined with its nodes."""

    def of(self, controller_state: ControllerState) -> ControllerState:
        fleet, observed = controller_state.fleet, controller_state.observed
        before = self._before or ControllerState()
        news = full_diff(before.fleet.slices, fleet.slices)
        observed.carry_on(before.observed)
        touched = {*news.changed, *observed.touched_since(before.observed)}
        joined = {
            name: fleet.slices[name].replace(nodes=seen_nodes(observed.nodes_of.get(name, ())))
            for name in touched
            if name in fleet.slices
        }
        self._before = controller_state
        self._fleet = self._fleet.after(
            joined, news.gone, provider_health=fleet.provider_health, gone=fleet.gone, frozen=fleet.frozen
        )
        _ = self._fleet.activity, self._fleet.planned_with
        return controller_state.replace(fleet=self._fleet)


def _copied(reader: StateReader) -> StateReader:
    """Copies a reader with its tables, so that records read later do not change the state that it returns."""
    copy = StateReader()
    copy.seq, copy.at = reader.seq, reader.at
    copy.tables = {kind: dict(table) for kind, table in reader.tables.items()}
    return copy


def resync(seq: int, why: str) -> bytes:
    """Tells a reader to load the status again."""
    return b"event: resync\ndata: %s\n\n" % encoded({"seq": seq, "why": why})
