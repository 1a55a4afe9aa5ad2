"""The timeline holds the states of every slice and the counts of waiting tasks over time, from a journal's records.

Records are added in order and read as plain data, so that a long journal is read once and fast. Queries are answered
from memory: lanes (the states of each slice over time) and series (counts over time, as steps).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from windlass.control.record.controller_state import SETTINGS
from windlass.control.record.costs import UNBILLED
from windlass.control.record.journal_tables import IS, ORDER
from windlass.core.model.lifecycle import COSTLY, ENDED, State
from windlass.core.model.quantities import NANO
from windlass.core.model.reasons import Code
from windlass.journal import Journal, Record

from .events import passes

KINDS: Final = ("slice", "node", "demand", "request", "waiting", "settings")
"""The journal tables that a timeline reads."""
LANES: Final = "windlass.lanes/v1"
SERIES: Final = "windlass.series/v1"
MOST_STEPS: Final = 200_000
"""At most this many instants are kept; beyond, every second one of the older half is dropped."""
_HOUR: Final = 3600
_MANUAL: Final = str(Code.MANUAL)
_UNBILLED: Final = frozenset(map(str, UNBILLED))
_COSTLY: Final = frozenset(map(str, COSTLY))
_ENDED: Final = frozenset(map(str, ENDED))


@dataclass(slots=True)
class Lane:
    """One slice over time."""

    id: str
    group: str
    price: int
    started: Mapping[str, Any]
    spans: list[dict[str, Any]] = field(default_factory=list)
    use: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ended(self) -> float | None:
        """When the slice was gone; None if it still exists."""
        last = self.spans[-1]
        found: float | None = last["from"] if last["state"] in _ENDED else last["to"]
        return found

    def cost(self, until: float) -> float:
        """Returns the dollars that it cost up to an instant."""
        billed = 0.0
        for one in self.spans:
            if one["state"] not in _UNBILLED:
                end = until if one["to"] is None else min(one["to"], until)
                billed += max(0.0, end - one["from"])
        return round(self.price * billed / _HOUR / NANO, 6)

    def to_dict(self, since: float, until: float) -> dict[str, Any]:
        spans = [one for one in self.spans if one["from"] <= until and (one["to"] is None or one["to"] >= since)]
        times = [one["at"] for one in self.use]
        first, last = max(0, bisect_right(times, since) - 1), bisect_right(times, until)
        return {
            "id": self.id,
            "group": self.group,
            "price": self.price / NANO,
            "cost": self.cost(until),
            "started": dict(self.started),
            "spans": [{**one, "to": _before(one["to"], until)} for one in spans],
            "use": self.use[first:last],
        }


@dataclass(frozen=True, slots=True)
class Instant:
    """The counts after one pass."""

    at: float
    waiting: Mapping[str, int]
    states: Mapping[str, int]
    busy: int
    cost: int
    """Nanodollars per hour."""
    ceiling: int | None


class Timeline:
    """The lanes and counts of all records added so far."""

    def __init__(self) -> None:
        self.seq = 0
        self.lanes: dict[str, Lane] = {}
        self.steps: list[Instant] = []
        self._state: dict[str, str] = {}
        """The open lane of each slice that exists."""
        self._price: dict[str, int] = {}
        self._nodes: dict[str, dict[str, Mapping[str, Any]]] = {}
        self._home: dict[str, str] = {}
        """The slice of each node."""
        self._busy: set[str] = set()
        self._demand: dict[str, int] = {}
        self._code: dict[str, tuple[str, int]] = {}
        self._asked: dict[str, str] = {}
        """Who last ordered a drain of a slice, or cancelled it."""
        self._resources: dict[str, dict[str, int]] = {}
        self._ceiling: int | None = None
        # The current counts, updated per record: a pass of a large cluster changes few of its slices.
        self._waiting: Counter[str] = Counter()
        self._states: Counter[str] = Counter()
        self._cost, self._working = 0, 0

    @classmethod
    def of(cls, journal: Journal, since: float) -> Timeline:
        """Reads the timeline from an instant on, as far back as the journal reaches."""
        made = cls()
        start = journal.latest_state(since) or journal.oldest_state()
        if start is not None:
            made.seq, state = start
            tables = state["tables"]
            for kind in KINDS:
                for subject, value in tables.get(kind, {}).items():
                    made._put(kind, subject, value, float(state["at"]))
            made._note(float(state["at"]))
        made.follow(journal)
        return made

    def follow(self, journal: Journal) -> None:
        """Adds the records that were appended since the last read."""
        upto = journal.last_seq()
        if upto > self.seq:
            for together in passes(journal.read(self.seq, upto=upto, kinds=(*KINDS, ORDER))):
                self.add(together)
            self.seq = upto

    def add(self, together: Iterable[Record]) -> None:
        """Adds the records of one pass."""
        at = None
        for record in together:
            self.seq = record.seq
            if record.kind == ORDER:
                self._asked[record.subject] = str(record.data.get("by", ""))
            elif record.kind in KINDS:
                self._put(record.kind, record.subject, record.data.get(IS), record.at)
                at = record.at
        if at is not None:
            self._note(at)

    # -- what one record changes ----------------------------------------------------------------------------------

    def _put(self, kind: str, subject: str, value: Any, at: float) -> None:
        match kind:
            case "slice":
                self._put_slice(subject, value, at)
            case "node":
                self._put_node(subject, value, at)
            case "demand":
                self._put_demand(subject, value)
            case "waiting":
                self._put_waiting(subject, value)
            case "settings" if subject == SETTINGS and value is not None:
                self._put_settings(value)

    def _put_demand(self, subject: str, value: Any) -> None:
        self._count_demand(subject, -1)
        if value is None:
            self._demand.pop(subject, None)
        else:
            self._demand[subject] = sum(one.get("count", 1) for one in value["bundles"])
        self._count_demand(subject, 1)

    def _put_waiting(self, subject: str, value: Any) -> None:
        self._count_demand(subject, -1)
        if value is None:
            self._code.pop(subject, None)
        else:
            self._code[subject] = (value["reason"]["code"], value["count"])
        self._count_demand(subject, 1)

    def _count_demand(self, subject: str, sign: int) -> None:
        """Subtracts the tasks of a demand from the counts before it changes, and adds them afterwards."""
        tasks = self._demand.get(subject, 0)
        code, stuck = self._code.get(subject, ("", 0))
        stuck = min(stuck, tasks)
        self._waiting[code] += sign * stuck
        self._waiting[str(Code.LAUNCHING)] += sign * (tasks - stuck)

    def _count_slice(self, subject: str, sign: int) -> None:
        """Does the same for a slice."""
        state = self._state.get(subject)
        if state is None:
            return
        self._states[state] += sign
        if state in _COSTLY:
            self._cost += sign * self._price[subject]
        if state == State.READY and subject in self._busy:
            self._working += sign

    def _put_settings(self, value: Any) -> None:
        self._ceiling = value.get("cluster", {}).get("max_hourly_cost")
        groups = (one["group"] for one in value["groups"])
        self._resources = {one["name"]: dict(one["resources"]) for one in groups}

    def _put_slice(self, subject: str, value: Any, at: float) -> None:
        lane = self.lanes.get(subject)
        self._count_slice(subject, -1)
        if value is None:
            self._state.pop(subject, None)
            if lane is not None and lane.spans[-1]["to"] is None:
                lane.spans[-1]["to"] = at
            self._forget_nodes(subject)
            return
        state = value["state"]
        if lane is None:
            lane = self.lanes[subject] = Lane(subject, value["group"], value.get("price", 0), value["started_for"])
        since, reason = value["since"], value["reason"]
        if not lane.spans or (lane.spans[-1]["state"], lane.spans[-1]["from"]) != (state, since):
            if lane.spans and lane.spans[-1]["to"] is None:
                lane.spans[-1]["to"] = since
            by = self._asked.get(subject) if reason["code"] == _MANUAL else None
            span = {"state": state, "from": since, "to": None, "code": reason["code"], "why": reason["why"], "by": by}
            lane.spans.append(span)
        self._price[subject] = value.get("price", 0)
        if state in _ENDED:
            self._state.pop(subject, None)
            lane.spans[-1]["to"] = since
        else:
            self._state[subject] = state
        self._count_slice(subject, 1)

    def _put_node(self, node: str, value: Any, at: float) -> None:
        home = self._home.get(node)
        if value is None:
            if home is None:
                return
            self._home.pop(node)
            self._nodes.get(home, {}).pop(node, None)
        else:
            home = value["slice_id"]
            self._home[node] = home
            self._nodes.setdefault(home, {})[node] = value
        self._measure(home, at)

    def _forget_nodes(self, slice_id: str) -> None:
        for node in self._nodes.pop(slice_id, {}):
            self._home.pop(node, None)
        self._busy.discard(slice_id)

    def _measure(self, slice_id: str, at: float) -> None:
        """Returns the tasks of a slice and the share of it that they use."""
        nodes = self._nodes.get(slice_id, {}).values()
        tasks = sum(one.get("tasks", 0) for one in nodes)
        used: Counter[str] = Counter()
        for one in nodes:
            for kind, amount in one.get("used", ()):
                used[kind] += amount
        self._count_slice(slice_id, -1)
        if tasks or any(used.values()):
            self._busy.add(slice_id)
        else:
            self._busy.discard(slice_id)
        self._count_slice(slice_id, 1)
        lane = self.lanes.get(slice_id)
        if lane is None:
            return
        whole = self._resources.get(lane.group, {})
        shares = [amount / (whole[kind] * len(nodes)) for kind, amount in used.items() if whole.get(kind) and nodes]
        share = round(min(1.0, max(shares, default=0.0)), 4)
        if lane.use and lane.use[-1]["at"] == at:
            lane.use[-1] = {"at": at, "tasks": tasks, "share": share}
        elif not lane.use or (lane.use[-1]["tasks"], lane.use[-1]["share"]) != (tasks, share):
            lane.use.append({"at": at, "tasks": tasks, "share": share})

    def _note(self, at: float) -> None:
        """Stores the current counts as one instant."""
        waiting = {code: count for code, count in self._waiting.items() if count}
        states = {state: count for state, count in self._states.items() if count}
        step = Instant(at, waiting, states, self._working, self._cost, self._ceiling)
        if self.steps and at <= self.steps[-1].at:
            self.steps[-1] = step
        else:
            self.steps.append(step)
        if len(self.steps) > MOST_STEPS:
            half = len(self.steps) // 2
            self.steps[:half] = self.steps[:half:2]

    # -- what is asked for ----------------------------------------------------------------------------------------

    @property
    def since(self) -> float | None:
        """The earliest known instant."""
        return self.steps[0].at if self.steps else None

    def lanes_between(self, since: float, until: float, group: str | None = None, text: str = "") -> list[Lane]:
        """Returns the lanes of slices that existed in a period, ordered by group and age."""
        found = (
            lane
            for lane in self.lanes.values()
            if lane.spans[0]["from"] <= until
            and (lane.ended is None or lane.ended >= since)
            and (group is None or lane.group == group)
            and text.lower() in lane.id.lower()
        )
        return sorted(found, key=lambda lane: (lane.group, lane.spans[0]["from"], lane.id))

    def series(self, since: float | None, until: float, points: int) -> dict[str, Any]:
        """Returns counts over a period as steps: the value of an instant holds until the next one."""
        steps, when = self.steps, attrgetter("at")
        start = since if since is not None else steps[0].at if steps else until
        first, last = max(0, bisect_right(steps, start, key=when) - 1), bisect_right(steps, until, key=when)
        chosen = list(_thinned(steps[first:last], points))
        at = [max(start, one.at) for one in chosen]
        if chosen and at[-1] < until:
            chosen.append(chosen[-1])
            at.append(until)
        codes = sorted({code for one in chosen for code in one.waiting})
        states = sorted({state for one in chosen for state in one.states})
        return {
            "schema": SERIES,
            "since": start,
            "until": until,
            "at": at,
            "waiting": {code: [one.waiting.get(code, 0) for one in chosen] for code in codes},
            "slices": {state: [one.states.get(state, 0) for one in chosen] for state in states},
            "busy": [one.busy for one in chosen],
            "hourly_cost": [one.cost / NANO for one in chosen],
            "ceiling": [None if one.ceiling is None else one.ceiling / NANO for one in chosen],
        }


def _thinned(steps: list[Instant], points: int) -> Iterator[Instant]:
    """Reduces the steps to at most a number of points: the last step of each equal part of the time."""
    if len(steps) <= points:
        yield from steps
        return
    times = [one.at for one in steps]
    length = (times[-1] - times[0]) / points
    place = 0
    yield steps[0]
    for index in range(1, points):
        after = bisect_left(times, times[0] + index * length, place)
        if after > place:
            yield steps[after - 1] if after - 1 > 0 else steps[0]
            place = after
    yield steps[-1]


def _before(end: float | None, until: float) -> float | None:
    """Returns the end of a span as it was known at an instant."""
    return None if end is None or end > until else end
