"""What a scenario is made of: plain data in, ``Snapshot`` out.

Each part has a ``Form`` (its keys) and a function that reads it. Rules that tie parts together (a floor above its
limit, more in use than a node has, the same id twice) are checked where the second part is read. What is repeated a
hundred thousand times (needs, conditions, tolerations) is read once per different value.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, cast

from windlass._gc_pause import uncollected
from windlass.core.model.conditions import EFFECTS, Condition, Effect, Toleration
from windlass.core.model.lifecycle import RECALLABLE, State
from windlass.core.model.quantities import ACCELERATORS, DEVICE, format_quantity
from windlass.core.model.reasons import nearest_name, plural
from windlass.core.model.snapshot import Amounts, Bundle, Demand, Gang, Group, Node, Slice, Snapshot

from .constraints import ConstraintReader
from .parser import plain_data
from .reader import Form, Path, is_name, path_text, shown
from .schema import (
    BUNDLE,
    DEMAND,
    GANGS,
    MOST,
    MOST_GANG,
    MOST_HOSTS,
    MOST_TASKS,
    NODE,
    REQUEST,
    SCENARIO,
    SLICE,
    STATES,
    TOLERATION,
)

T = TypeVar("T")


def read_scenario(text: str | bytes) -> Snapshot:
    """The snapshot that a scenario file holds (YAML or JSON); ``ScenarioError`` names every mistake with its path."""
    with uncollected():  # nothing here is cyclic, and a collector that walks 300,000 new mappings doubles the time
        return read_plain(plain_data(text))


def read_plain(data: object) -> Snapshot:
    """The same from data that is already plain: mappings, lists, text and numbers."""
    return _ScenarioReader().scenario(data)


class _ScenarioReader(ConstraintReader):
    """Reads the parts of one scenario; remembers what later parts are checked against."""

    def __init__(self) -> None:
        super().__init__()
        self._groups: dict[str, Group] = {}
        self._needs: dict[bytes, Amounts] = {}
        self._plain_amounts: dict[bytes, Amounts] = {}
        self._conditions: dict[bytes, tuple[Condition, ...]] = {}
        self._tolerations: dict[bytes, tuple[Toleration, ...]] = {}
        self._bundles: dict[tuple[Amounts, int], tuple[Bundle, ...]] = {}
        self._shapes: dict[bytes, Demand] = {}

    def scenario(self, data: object) -> Snapshot:
        fields = self.fields((), data, SCENARIO)
        now = self.number(("now",), fields.get("now"), 0)
        cluster = self.cluster(("cluster",), fields.get("cluster"))
        self._groups = self.groups(fields.get("groups"), cluster)
        ids: dict[str, Path] = {}  # of demands and requests together: both wait under their id
        snapshot = Snapshot(
            groups=tuple(self._groups.values()),
            slices=self.slices(fields.get("slices")),
            demands=self.demands("demands", fields.get("demands"), DEMAND, ids),
            requests=self.demands("requests", fields.get("requests"), REQUEST, ids),
            cluster=cluster,
            now=now,
        )
        self.finish()
        return snapshot

    def _remembered(self, memory: dict[bytes, T], at: Path, value: Any, read: Callable[[Path, Any], T]) -> T:
        """What ``read`` gave for an equal value. The key is the value's bytes, because 1, 1.0 and true are equal as
        values and must not be as amounts; what cannot be a key (a doubled mapping, a strange type) is read anew."""
        try:
            key = marshal.dumps(value, 2)
        except ValueError:
            return read(at, value)
        found = memory.get(key)
        if found is None:
            before = len(self.mistakes)
            found = read(at, value)
            if len(self.mistakes) == before:
                memory[key] = found
        return found

    # -- slices ------------------------------------------------------------------------------------------------------

    def slices(self, value: object) -> tuple[Slice, ...]:
        ids: dict[str, Path] = {}
        nodes: dict[str, Path] = {}
        found = []
        for index, entry in enumerate(self.items(("slices",), value, "slices")):
            one = self.slice_(self._place("slices", index, entry), entry, nodes)
            self._unique(ids, one.id, ("slices", index), ("slices", one.id))
            found.append(one)
        return tuple(found)

    def slice_(self, at: Path, value: object, node_ids: dict[str, Path]) -> Slice:
        fields = self.fields(at, value, SLICE)
        name = self._id(at, fields)
        if name.startswith("new:"):
            self.wrong((*at, "id"), f"must not start with 'new:', which names slices of a plan, is {shown(name)}")
        group = self.name((*at, "group"), fields["group"]) if fields.get("group") is not None else ""
        state = fields.get("state")
        if isinstance(state, str) and state.isupper():
            state = state.lower()  # the names as the table of states writes them
        state = State(self.choice((*at, "state"), state, STATES, "ready"))
        for key in ("hosts", "price"):
            if fields.get(key) is not None and group in self._groups:
                self.wrong((*at, key), f"is told by its group {shown(group)}; leave it out here")
        final = self.boolean((*at, "final"), fields.get("final"), False)
        if final and state not in RECALLABLE and not (state is State.READY and fields.get("marked_until") is not None):
            self.wrong((*at, "final"), f"is for a slice that is cordoned, draining or marked; this one is {state}")
        return Slice(
            final=final,
            id=name,
            group=group,
            state=state,
            since=self.number((*at, "since"), fields.get("since"), None),
            marked_until=self.number((*at, "marked_until"), fields.get("marked_until"), None),
            nodes=self.nodes((*at, "nodes"), fields.get("nodes"), name, group, state, node_ids),
            hosts=self.integer((*at, "hosts"), fields.get("hosts"), 0, low=0, high=MOST_HOSTS),
            price=self.money((*at, "price"), fields.get("price")) or 0,
        )

    def nodes(
        self, at: Path, value: object, name: str, group_name: str, state: State, ids: dict[str, Path]
    ) -> tuple[Node, ...]:
        """The nodes that are given, filled up to the group's ``hosts`` where some may not have joined yet."""
        group = None if group_name in self.doubtful else self._groups.get(group_name)
        entries = self.items(at, value, "nodes")
        found = []
        for index, entry in enumerate(entries):
            here = self._place(at, index, entry)
            node = self.node(here, entry, f"{name}/{index}")
            self._unique(ids, node.id, (*at, index), (*at, node.id))
            if group is not None:
                self._check_used((*here, "used"), node, group)
            found.append(node)
        hosts = group.hosts if group is not None else 1
        if group is not None and isinstance(value, list | tuple):
            joined = state in RECALLABLE or state is State.READY
            if len(entries) > hosts or (joined and len(entries) < hosts):
                has = f"a slice of {group_name} has hosts: {hosts}"
                remedy = "; list the missing ones with healthy: false" if len(entries) < hosts else ""
                self.wrong(at, f"must be {plural(hosts, 'node')}, because {has}; are {len(entries)}{remedy}")
        for index in range(len(found), hosts):
            node = Node(f"{name}/{index}")
            self._unique(ids, node.id, (*at, index), (*at, node.id))
            found.append(node)
        return tuple(found)

    def node(self, at: Path, value: object, default_id: str) -> Node:
        fields = self.fields(at, value, NODE)
        used: Amounts = ()
        if (given := fields.get("used")) is not None:
            used = self._remembered(self._plain_amounts, (*at, "used"), given, self.plain_amounts)
        return Node(
            id=self._id(at, fields) or default_id,
            used=used,
            tasks=self.integer((*at, "tasks"), fields.get("tasks"), 1 if used else 0, high=MOST_TASKS),
            idle_since=self.number((*at, "idle_since"), fields.get("idle_since"), None),
            labels=self.labels((*at, "labels"), fields.get("labels")),
            healthy=self.boolean((*at, "healthy"), fields.get("healthy"), True),
            classes=self.class_counts((*at, "classes"), fields.get("classes")),
        )

    def _check_used(self, at: Path, node: Node, group: Group) -> None:
        if not node.used:
            return
        has = dict(group.resources)
        for resource, amount in node.used:
            used = format_quantity(amount, resource)
            if resource not in has:
                meant = nearest_name(resource[:80], has)
                hint = f"; did you mean {meant}?" if meant else ""
                self.wrong((*at, resource), f"uses {used}, but a node of {group.name} has no {resource}{hint}")
            elif amount > has[resource]:
                total = format_quantity(has[resource], resource)
                self.wrong((*at, resource), f"uses {used}, more than the {total} that a node of {group.name} has")

    # -- demands -----------------------------------------------------------------------------------------------------

    def demands(self, section: str, value: object, form: Form, ids: dict[str, Path]) -> tuple[Demand, ...]:
        """Demands or standing requests. One with a count of 0 is the same as none."""
        found = []
        for index, entry in enumerate(self.items((section,), value, section)):
            demand = self._like_another(entry) or self.demand(self._place(section, index, entry), entry, form)
            if demand.id in ids:
                self._unique(ids, demand.id, (section, index), (section, demand.id))
            elif demand.id:
                ids[demand.id] = (section, index)
            if demand.bundles:
                found.append(demand)
        return tuple(found)

    def _like_another(self, entry: object) -> Demand | None:
        """The short way for a single demand that differs from one read before in id, count and time only."""
        if type(entry) is not dict:
            return None
        rest = entry.copy()
        name, count, since = rest.pop("id", None), rest.pop("count", 1), rest.pop("since", None)
        try:
            like = self._shapes.get(marshal.dumps(rest, 2))
        except ValueError:
            return None
        if like is None or type(name) is not str or not is_name(name) or type(count) is not int:
            return None
        if since is not None and (type(since) is not int or not -MOST <= since <= MOST):
            return None
        bundles = self._bundles.get((like.bundles[0].needs, count))
        if bundles is None:
            return None
        return Demand(
            name,
            bundles,
            None,
            like.where,
            like.prefer,
            like.tolerates,
            like.priority,
            since,
            any_of=like.any_of,
            classes=like.classes,
            apart=like.apart,
            spread=like.spread,
            together=like.together,
        )

    def demand(self, at: Path, value: object, form: Form) -> Demand:
        before = len(self.mistakes)
        fields = self.fields(at, value, form)
        gang = self.choice((*at, "gang"), fields.get("gang"), GANGS, None)
        single = fields.get("gang") is None and fields.get("bundles") is None
        deadline = self.number((*at, "deadline"), fields.get("deadline"), None)
        if deadline is not None and single:
            self.wrong((*at, "deadline"), "is for a gang only; leave it out, or add gang and bundles")
        demand = Demand(
            id=self._id(at, fields),
            bundles=self._single(at, fields, form) if single else self._members(at, fields, form),
            gang=None if single else Gang(gang or Gang.ANY),  # a request with bundles is met whole, wherever it goes
            where=self._remembered(self._conditions, (*at, "where"), fields.get("where"), self.conditions),
            prefer=self._remembered(self._conditions, (*at, "prefer"), fields.get("prefer"), self.conditions),
            tolerates=self._remembered(
                self._tolerations, (*at, "tolerates"), fields.get("tolerates"), self.tolerations
            ),
            priority=self.integer((*at, "priority"), fields.get("priority"), 0, low=-MOST * 10, high=MOST * 10),
            since=self.number((*at, "since"), fields.get("since"), None),
            deadline=deadline,
            any_of=self.alternatives((*at, "any_of"), fields.get("any_of")),
            classes=self.classes((*at, "classes"), fields.get("classes")),
            apart=self.apart((*at, "apart"), fields.get("apart")),
            spread=self.spread((*at, "spread"), fields.get("spread")),
            together=self.together((*at, "together"), fields.get("together")),
        )
        if single and demand.bundles and type(value) is dict and len(self.mistakes) == before:
            rest = {key: one for key, one in value.items() if key not in ("id", "count", "since")}
            self._shapes[marshal.dumps(rest, 2)] = demand
        return demand

    def _single(self, at: Path, fields: Mapping[str, Any], form: Form) -> tuple[Bundle, ...]:
        count = fields.get("count", 1)
        if type(count) is not int or not 0 < count <= MOST_TASKS:
            count = self.integer((*at, "count"), count, 1, high=MOST_TASKS)
        given = fields.get("needs")
        if given is None:
            if fields:
                self.wrong((*at, "needs"), f"is required in {form.noun} without bundles, and is missing")
            return ()
        needs = self._remembered(self._needs, (*at, "needs"), given, self.needs)
        found = self._bundles.get((needs, count))
        if found is None:
            found = self._bundles[needs, count] = (Bundle(needs, count),) if count else ()
        return found

    def _members(self, at: Path, fields: Mapping[str, Any], form: Form) -> tuple[Bundle, ...]:
        if fields.get("gang") is None and form is DEMAND:
            self.wrong((*at, "gang"), f"is required beside bundles: one of {', '.join(GANGS)}; or give needs and count")
        for key in ("needs", "count"):
            if fields.get(key) is not None:
                self.wrong((*at, key), f"must be inside bundles: a gang is written bundles: [{{{key}: ...}}]")
        given = fields.get("bundles")
        if given is None or given == []:
            self.wrong((*at, "bundles"), "is required for a gang, such as bundles: [{needs: {gpu: 1}, count: 8}]")
        found = []
        for index, entry in enumerate(self.items((*at, "bundles"), given, "bundles")):
            here = (*at, "bundles", index)
            bundle = self.fields(here, entry, BUNDLE)
            count = self.integer((*here, "count"), bundle.get("count"), 1, high=MOST_TASKS)
            if bundle.get("needs") is not None:
                needs = self._remembered(self._needs, (*here, "needs"), bundle["needs"], self.needs)
                if count:
                    found.append(
                        Bundle(
                            needs,
                            count,
                            self.conditions((*here, "where"), bundle.get("where")),
                            self.conditions((*here, "prefer"), bundle.get("prefer")),
                            self.tolerations((*here, "tolerates"), bundle.get("tolerates")),
                            self.alternatives((*here, "any_of"), bundle.get("any_of")),
                            self.classes((*here, "classes"), bundle.get("classes")),
                            self.apart((*here, "apart"), bundle.get("apart")),
                            self.spread((*here, "spread"), bundle.get("spread")),
                            self.together((*here, "together"), bundle.get("together")),
                        )
                    )
        size = sum(bundle.count for bundle in found)
        if size > MOST_GANG:
            self.wrong((*at, "bundles"), f"must be at most {MOST_GANG:,} tasks that start together, are {size:,}")
        return tuple(found)

    def needs(self, at: Path, value: object) -> Amounts:
        found = self.plain_amounts(at, value)
        for name, amount in found:
            if name in ACCELERATORS and amount > DEVICE and amount % DEVICE:
                devices = format_quantity(amount, name)
                self.wrong((*at, name), f"must be below 1 (a share of one device) or a whole number, is {devices}")
        return found

    def tolerations(self, at: Path, value: object) -> tuple[Toleration, ...]:
        return tuple(
            self.toleration((*at, index), one) for index, one in enumerate(self.items(at, value, "tolerations"))
        )

    def toleration(self, at: Path, value: object) -> Toleration:
        fields = self.fields(at, value, TOLERATION)
        operator = self.choice((*at, "operator"), fields.get("operator"), ("Equal", "Exists"), "Equal")
        key = self.text((*at, "key"), fields.get("key"))
        if not key and operator == "Equal" and isinstance(value, Mapping):
            self.wrong((*at, "key"), "is required unless operator is Exists, which without a key tolerates every taint")
        if operator == "Exists" and fields.get("value") not in (None, ""):
            self.wrong((*at, "value"), "has no effect with operator Exists; leave it out, or use operator: Equal")
        effect = fields.get("effect")
        return Toleration(
            key=key,
            operator=cast('Literal["Equal", "Exists"]', operator),
            value=self.text((*at, "value"), fields.get("value")),
            effect="" if effect in (None, "") else cast("Effect", self.choice((*at, "effect"), effect, EFFECTS, "")),
        )

    # -- shared by the parts -----------------------------------------------------------------------------------------

    def _id(self, at: Path, fields: Mapping[str, Any]) -> str:
        """The id, or empty when there is none to speak of (which ``fields`` has told if it is required)."""
        value = fields.get("id")
        return "" if value is None else self.name((*at, "id"), value)

    def _place(self, section: str | Path, index: int, entry: object) -> Path:
        """Where an entry of a list is, by its id if it has one."""
        base = (section,) if isinstance(section, str) else section
        name = entry.get("id") if isinstance(entry, dict) else None
        if type(name) is int and name.bit_length() < 200:
            name = str(name)
        return (*base, name if isinstance(name, str) and is_name(name) else index)

    def _unique(self, ids: dict[str, Path], name: str, here: Path, named: Path) -> None:
        if not name:
            return
        if name in ids:
            places = f"{path_text(ids[name])} and {path_text(here)}"
            self.wrong(named, f"the id stands twice, in {places}; each needs its own")
        else:
            ids[name] = here
