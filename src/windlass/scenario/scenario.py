"""This module turns plain data into a ``Snapshot``.

Each part has a ``Form`` (its keys) and a function that reads it. Rules that concern several parts (a minimum above its
limit, more in use than a node has, the same id twice) are checked where the second part is read. Values that repeat
many times (needs, conditions, tolerations) are read once per different value.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from windlass._gc_pause import uncollected
from windlass.core.model.conditions import Condition, Toleration
from windlass.core.model.lifecycle import RECALLABLE, State
from windlass.core.model.quantities import ACCELERATORS, DEVICE, format_quantity
from windlass.core.model.reasons import nearest_name, plural
from windlass.core.model.snapshot import Amounts, Bundle, Demand, Gang, Group, Node, Slice, Snapshot

from .constraints import ConstraintReader
from .declarations import Form
from .parser import plain_data
from .reader import Path, is_name, path_text, shown
from .schema import (
    BUNDLE,
    DEMAND,
    GANGS,
    MOST,
    MOST_GANG,
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
    """Returns the snapshot of a scenario file (YAML or JSON); raises ``ScenarioError`` with every mistake and its
    path."""
    with uncollected():  # no cycles here, and collecting 300,000 new mappings would double the time
        return read_plain(plain_data(text))


def read_plain(data: object) -> Snapshot:
    """Returns the snapshot of data that is already plain: mappings, lists, text and numbers."""
    return _ScenarioReader().scenario(data)


class _ScenarioReader(ConstraintReader):
    """Reads the parts of one scenario; keeps what later parts are checked against."""

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
        now = self.values((), fields, SCENARIO).get("now", 0)
        cluster = self.cluster(("cluster",), fields.get("cluster"))
        cluster = replace(cluster, families=self.families(fields.get("families")))
        self._groups = self.groups(fields.get("groups"), cluster)
        ids: dict[str, Path] = {}  # of demands and requests together: both are identified by their id
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
        """Returns the cached result of ``read`` for an equal value.

        The key is the value's bytes, because 1, 1.0 and true are equal as values and must differ as amounts. A value
        that cannot be a key (a duplicate key, a strange type) is read again.
        """
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
        found = {"id": "", "group": "", **self.values(at, fields, SLICE)}
        name, group = found["id"], found["group"]
        if name.startswith("new:"):
            self.wrong((*at, "id"), f"must not start with 'new:', which names slices of a plan, is {shown(name)}")
        state = fields.get("state")
        if isinstance(state, str) and state.isupper():
            state = state.lower()  # the names as the table of states writes them
        state = State(self.choice((*at, "state"), state, STATES, "ready"))
        for key in ("hosts", "price"):
            if fields.get(key) is not None and group in self._groups:
                self.wrong((*at, key), f"is given by its group {shown(group)}; leave it out here")
        marked = state is State.READY and fields.get("marked_until") is not None
        if found.get("final") and state not in RECALLABLE and not marked:
            self.wrong((*at, "final"), f"is for a slice that is cordoned, draining or marked; this one is {state}")
        nodes = self.nodes((*at, "nodes"), fields.get("nodes"), name, group, state, node_ids)
        return Slice(**found, state=state, nodes=nodes)

    def nodes(
        self, at: Path, value: object, name: str, group_name: str, state: State, ids: dict[str, Path]
    ) -> tuple[Node, ...]:
        """Reads the given nodes, and adds missing ones up to the group's ``hosts`` where some may not have joined
        yet."""
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
        found = self.values(at, self.fields(at, value, NODE), NODE)
        found["id"] = found.get("id") or default_id
        return Node(**{"tasks": 1 if found.get("used") else 0, **found})

    def used(self, at: Path, value: object) -> Amounts:
        """Reads the use of a node."""
        return self._remembered(self._plain_amounts, at, value, self.plain_amounts)

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
        """Reads demands or standing requests. One with a count of 0 is the same as none."""
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
        """Reads a single demand quickly if it differs from an earlier one in id, count and time only."""
        if type(entry) is not dict:
            return None
        rest = entry.copy()
        name, count, since = rest.pop("id", None), rest.pop("count", 1), rest.pop("since", None)
        try:
            alike = self._shapes.get(marshal.dumps(rest, 2))
        except ValueError:
            return None
        if alike is None or type(name) is not str or not is_name(name) or type(count) is not int:
            return None
        if since is not None and (type(since) is not int or not -MOST <= since <= MOST):
            return None
        bundles = self._bundles.get((alike.bundles[0].needs, count))
        return None if bundles is None else alike.like(name, bundles, since)

    def demand(self, at: Path, value: object, form: Form) -> Demand:
        before = len(self.mistakes)
        fields = self.fields(at, value, form)
        gang = self.choice((*at, "gang"), fields.get("gang"), GANGS, None)
        single = fields.get("gang") is None and fields.get("bundles") is None
        found = {"id": "", **self.values(at, fields, form)}
        if found.get("deadline") is not None and single:
            self.wrong((*at, "deadline"), "is for a gang only; leave it out, or add gang and bundles")
        demand = Demand(
            bundles=self._single(at, fields, form) if single else self._members(at, fields, form),
            gang=None if single else Gang(gang or Gang.ANY),  # a request with bundles is met whole, wherever it goes
            **found,
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
        needs = self.needs((*at, "needs"), given)
        found = self._bundles.get((needs, count))
        if found is None:
            found = self._bundles[needs, count] = (Bundle(needs, count),) if count else ()
        return found

    def _members(self, at: Path, fields: Mapping[str, Any], form: Form) -> tuple[Bundle, ...]:
        if fields.get("gang") is None and form is DEMAND:
            self.wrong((*at, "gang"), f"is required with bundles: one of {', '.join(GANGS)}; or give needs and count")
        for key in ("needs", "count"):
            if fields.get(key) is not None:
                self.wrong((*at, key), f"must be inside bundles: a gang is written bundles: [{{{key}: ...}}]")
        given = fields.get("bundles")
        if given is None or given == []:
            self.wrong((*at, "bundles"), "is required for a gang, such as bundles: [{needs: {gpu: 1}, count: 8}]")
        found = []
        for index, entry in enumerate(self.items((*at, "bundles"), given, "bundles")):
            here = (*at, "bundles", index)
            bundle = self.values(here, self.fields(here, entry, BUNDLE), BUNDLE)
            if bundle.get("needs") is not None and bundle.get("count", 1):
                found.append(Bundle(**bundle))
        size = sum(bundle.count for bundle in found)
        if size > MOST_GANG:
            self.wrong((*at, "bundles"), f"must be at most {MOST_GANG:,} tasks that start together, are {size:,}")
        return tuple(found)

    def needs(self, at: Path, value: object) -> Amounts:
        return self._remembered(self._needs, at, value, self._read_needs)

    def remembered_conditions(self, at: Path, value: object) -> tuple[Condition, ...]:
        return self._remembered(self._conditions, at, value, self.conditions)

    def tolerations(self, at: Path, value: object) -> tuple[Toleration, ...]:
        return self._remembered(self._tolerations, at, value, self._read_tolerations)

    def _read_needs(self, at: Path, value: object) -> Amounts:
        found = self.plain_amounts(at, value)
        for name, amount in found:
            if name in ACCELERATORS and amount > DEVICE and amount % DEVICE:
                devices = format_quantity(amount, name)
                self.wrong((*at, name), f"must be below 1 (a share of one device) or a whole number, is {devices}")
        return found

    def _read_tolerations(self, at: Path, value: object) -> tuple[Toleration, ...]:
        return tuple(
            self._toleration((*at, index), one) for index, one in enumerate(self.items(at, value, "tolerations"))
        )

    def _toleration(self, at: Path, value: object) -> Toleration:
        fields = self.fields(at, value, TOLERATION)
        if fields.get("effect") == "":
            fields = {name: one for name, one in fields.items() if name != "effect"}
        found = Toleration(**self.values(at, fields, TOLERATION))
        if not found.key and found.operator == "Equal" and isinstance(value, Mapping):
            self.wrong((*at, "key"), "is required unless operator is Exists, which without a key tolerates every taint")
        if found.operator == "Exists" and fields.get("value") not in (None, ""):
            self.wrong((*at, "value"), "has no effect with operator Exists; leave it out, or use operator: Equal")
        return found

    # -- shared by the parts -----------------------------------------------------------------------------------------

    def _place(self, section: str | Path, index: int, entry: object) -> Path:
        """Returns the path of an entry of a list, by its id if it has one."""
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
            self.wrong(named, f"the id is used twice, in {places}; each needs its own")
        else:
            ids[name] = here
