"""The feed: one thread that follows the journal and makes, once for all readers, the status and what changed in it.

The journal is looked at several times a second. Passes that were written since the last message become one message: a
patch of the status and the events, encoded once. Messages are kept, so that a reader that comes back goes on where it
was. The thread never touches the loop of a controller; a slow reader never touches the thread.
"""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from windlass._version import __version__
from windlass.control.record.controller_state import ControllerState
from windlass.control.record.costs import Account
from windlass.control.record.state_reader import StateReader, TooOld, with_nodes
from windlass.control.report.current import Picture, pictured, read_state
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
from windlass.core.tables.planner_memo import PlannerMemo
from windlass.journal import Journal, JournalError, Record

from .patches import INSTANTS, TABLES, difference

PASS: Final = "windlass.pass/v1"
LOOK: Final = 0.05
"""Seconds between two looks at the journal: one row is read."""
PAUSE: Final = 0.2
"""Seconds between two messages at least."""
IDLE: Final = 2.0
"""Seconds after which the status is made again although nothing was written: a lease or a back-off may have run out."""
WAYS_FOR: Final = 30.0
"""Seconds for which ways out are good while nothing about the waiting demand changes."""
FEW: Final = 50
"""Demands whose ways out are waited for, for a moment, so that they come with the same message."""
SOON: Final = 0.1
BUSY_SHARE: Final = 10
"""The status is made again without news, and ways out are sought, at most for one part in so many of the time."""
MOMENTS: Final = 8
"""Instants of the past that are kept."""
FAR: Final = 20_000
"""Records that a reader may be behind without loading everything again."""
WEEK: Final = 7 * 86400.0


def encoded(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True)
class PassMessage:
    """What changed in one or more whole passes."""

    seq: int
    after: int
    """The number that the message before went up to."""
    at: float
    patch: Mapping[str, Any]
    events: tuple[Mapping[str, Any], ...]

    def body(self, topics: frozenset[str], after: int = 0) -> bytes:
        """As it goes out. ``after``: events up to this record are left out."""
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
        """The same, encoded once for all readers of these topics."""
        if topics == {"status", "events"}:
            return self.whole
        if topics not in self._parts:
            self._parts[topics] = self.body(topics)
        return self._parts[topics]


class EncodedRows:
    """Encodes a status. A row that was encoded before and is the same object is not encoded again."""

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
    """The status after the last message, and what it was made of."""

    document: dict[str, Any]
    picture: Picture
    leader: Leader
    ways: Mapping[str, tuple[Unblock, ...]]
    accounts: Mapping[str, Account] = field(default_factory=dict)

    rows: EncodedRows | None = None
    """Rows that were encoded before."""

    @property
    def seq(self) -> int:
        return int(self.document["seq"])

    @cached_property
    def body(self) -> bytes:
        return encoded(self.document) if self.rows is None else self.rows.body(self.document)

    @cached_property
    def gzipped(self) -> bytes:
        return gzip.compress(self.body, 5, mtime=0)


class _Ways:
    """Ways out of waiting. They cost many plans, so they are not sought at every pass, and never in the way of one."""

    def __init__(self, on_found: Callable[[], None]) -> None:
        self.found: Mapping[str, tuple[Unblock, ...]] = {}
        self._on_found = on_found
        self._key: object = None
        self._at, self._took = -1e9, 0.0
        self._search: threading.Thread | None = None

    def of(self, picture: Picture, *, wait: bool) -> Mapping[str, tuple[Unblock, ...]]:
        """What is known; a search for more is begun if it is time. ``wait``: until it is over."""
        waiting = picture.plan.waiting
        if not waiting:
            return {}
        codes = tuple((w.demand, w.count, tuple((name, r.code) for name, r in w.groups.items())) for w in waiting)
        key, age = (codes, id(picture.settings)), time.monotonic() - self._at
        if self._search is None and age > BUSY_SHARE * self._took and (key != self._key or age > WAYS_FOR):
            self._key = key
            search = threading.Thread(target=self._seek, args=(picture,), name="windlass-ways", daemon=True)
            self._search = search
            search.start()
            if wait or len(waiting) <= FEW:
                search.join(None if wait else SOON)
        known = {one.demand for one in waiting}
        return {name: ways for name, ways in self.found.items() if name in known}

    def _seek(self, picture: Picture) -> None:
        began = time.monotonic()
        try:
            self.found = picture.plan.unblocks
        finally:
            self._at = time.monotonic()
            self._took = self._at - began
            self._search = None
        if self._took > SOON:
            self._on_found()


class Feed:
    """Follows one journal. ``start`` makes the first status, and then a thread does."""

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
        """Why the journal cannot be read; None: it can."""
        self._current: Current | None = None
        self._reader: StateReader | None = None
        self._ways = _Ways(self._again)
        self._stale = False
        """Whether the status must be made again although nothing was written."""
        self._began: float | None = None
        self._took, self._made_at = 0.0, -1e9
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._moments: OrderedDict[float, Current] = OrderedDict()
        self._rows, self._joined, self._memo = RowCache(), _JoinedSlices(), PlannerMemo()
        self._encoded = EncodedRows()
        self._timeline: Timeline | None = None
        self._timeline_lock, self._moments_lock = threading.Lock(), threading.Lock()

    # -- the thread -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._look(force=True)
        self._thread = threading.Thread(target=self._run, name="windlass-feed", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=1)  # a journal that hangs must not hold up the end of the program

    def wake(self) -> None:
        """Look at the journal at once: there is something new in it."""
        self._wake.set()

    def _again(self) -> None:
        self._stale = True
        self._wake.set()

    def _run(self) -> None:
        last = 0.0
        while not self._stop.is_set():
            self._wake.wait(LOOK)
            self._wake.clear()
            if self._stop.is_set():
                return
            if self._look():
                last = time.monotonic()
            self._stop.wait(max(0.0, last + PAUSE - time.monotonic()))

    def _look(self, *, force: bool = False) -> bool:
        """Read what is new and make a message of it; whether there was one."""
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
        if not records or (records[0].seq > self._reader.seq + 1 and self._compacted(self._reader.seq)):
            self._reader = None
            self.messages.clear()
            return self._read()
        self._reader.add_all(records)
        return records

    def _compacted(self, seq: int) -> bool:
        """Whether records after this one may be gone: then the state is read again from a newer checkpoint."""
        start = self.journal.latest_state()
        return start is not None and start[0] > seq

    def _make(self, records: list[Record]) -> bool:
        assert self._reader is not None
        began = time.monotonic()
        now = self._now()
        leader = leader_of(self.journal, now)
        controller_state = self._joined.of(_copied(self._reader).controller_state())
        picture = pictured(controller_state, self._settings(), leader.instant(now), self._memo)
        ways = self._ways.of(picture, wait=self._current is None)
        if self._began is None:
            self._began = spent_since(self.journal)
        status = Status(self._settings(), leader, picture, now, self._began, ways, self._rows)
        document = {**status.to_dict(), **self._more()}
        self._rows.keep(controller_state.fleet.slices, controller_state.observed.demand)
        before, message = self._current, None
        if before is not None:
            patch, kept = difference(before.document, document)
            events = tuple(line.document() for one in passes(records) for line in lines_of(one, one[-1].seq))
            document = kept
            if records or patch["set"] or patch["gone"]:
                message = PassMessage(document["seq"], before.seq, now, patch, events)
                self.messages.append(message)
        self._current = Current(document, picture, leader, ways, status.accounts, self._encoded)
        self.problem = None
        self._made_at, self._took = time.monotonic(), time.monotonic() - began
        if records:
            self._on_records(records)
        if message is not None:
            self._on_message(message)
        return message is not None

    # -- what is asked for ----------------------------------------------------------------------------------------

    @property
    def current(self) -> Current | None:
        """The newest status; None: the journal could not be read yet."""
        return self._current

    @property
    def seq(self) -> int:
        return 0 if self._current is None else self._current.seq

    def at(self, instant: float) -> Current:
        """The status as it was at an instant; ``TooOld`` when the journal does not reach back so far."""
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
        picture = pictured(controller_state, self._settings(), instant)
        status = Status(self._settings(), leader, picture, instant, spent_since(self.journal))
        made = Current(status.to_dict(), picture, leader, picture.plan.unblocks)
        with self._moments_lock:
            self._moments[instant] = made
            while len(self._moments) > MOMENTS:
                self._moments.popitem(last=False)
        return made

    def question(self, name: str, instant: float | None) -> Question:
        """What ``why`` is asked; the plan of the last pass serves all questions about now."""
        known = self._current if instant is None else self.at(instant)
        if known is None:
            raise JournalError(self.problem or "the journal was not read yet")
        return Question(name, instant, known.picture, self.journal, known.leader.alive, known.ways)

    def timeline(self) -> Timeline:
        """Lanes and series of the last week; read once, then followed."""
        with self._timeline_lock:
            if self._timeline is None:
                self._timeline = Timeline.of(self.journal, self._now() - WEEK)
            self._timeline.follow(self.journal)
            return self._timeline

    def after(self, seq: int) -> list[PassMessage] | None:
        """The messages after a record; None: they are not kept, and a reader must load the status again."""
        current = self._current
        if current is None or seq > current.seq:
            return None
        kept = list(self.messages)
        if seq == current.seq:
            # Time alone may have changed something since: those messages have the same number.
            return [one for one in kept if one.seq == seq and one.after == seq]
        if kept and kept[0].after <= seq:
            return [one for one in kept if one.seq > seq]
        return self._caught_up(seq, current)

    def _caught_up(self, seq: int, current: Current) -> list[PassMessage] | None:
        """One message from a record that is older than what is kept, made from the journal."""
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
        picture = pictured(with_nodes(reader.controller_state()), self._settings(), record.at)
        status = Status(self._settings(), current.leader, picture, record.at, self._began, {})
        patch, _ = difference(status.to_dict(), current.document)
        # Who led and which ways out were known is not recorded, so all parts but groups and slices are sent whole.
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
    """Slices with the nodes that have joined; one that did not change is the same object as at the last observation.

    What follows from a slice alone is kept with it, and the counts of a fleet are carried on from the one before, so an
    observation costs by what has changed and not by how much there is.
    """

    def __init__(self) -> None:
        self._before: ControllerState | None = None
        """As it was read last."""
        self._fleet = Fleet()
        """The fleet of then, joined with its nodes."""

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
    """A reader with tables of its own: the state that it gives is not changed by what is read later."""
    copy = StateReader()
    copy.seq, copy.at = reader.seq, reader.at
    copy.tables = {kind: dict(table) for kind, table in reader.tables.items()}
    return copy


def resync(seq: int, why: str) -> bytes:
    """Tells a reader to load the status again."""
    return b"event: resync\ndata: %s\n\n" % encoded({"seq": seq, "why": why})


def newest(messages: Iterable[PassMessage]) -> int:
    return max((one.seq for one in messages), default=0)
