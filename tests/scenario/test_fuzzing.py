"""Whatever the file holds: it is read, or its mistakes are told. Nothing else."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.scenario.test_reading import EVERY_KEY
from windlass.core.model.conditions import Condition, Taint, Toleration
from windlass.core.model.lifecycle import State
from windlass.core.model.quantities import LARGEST
from windlass.core.model.snapshot import (
    Availability,
    Bundle,
    Cluster,
    Demand,
    Gang,
    Group,
    LowUtilization,
    Node,
    ScaleDown,
    Slice,
    Snapshot,
    UtilizationTarget,
    amounts,
)
from windlass.scenario import ScenarioError, read_plain, read_scenario, write_scenario
from windlass.scenario.schema import AVAILABILITY, CLUSTER, DEMAND, GROUP, NODE, SCALE_DOWN, SCENARIO, SLICE

FORMS = (SCENARIO, CLUSTER, GROUP, SCALE_DOWN, AVAILABILITY, SLICE, NODE, DEMAND)
KEYS = sorted({key for form in FORMS for key in form.known} | {"cpu", "gpu", "g", "s-1", "key", "effect", "percent"})
VALID = yaml.safe_load(EVERY_KEY)

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["ready", "500m", "16Gi", "-1", "zone == a", "NoSchedule", "Exists", "any", "1e999", "\ud800"])
    | st.sampled_from([-1, 0, 1, 0.5, 2**63, 10**400, float("nan"), float("inf"), -0.0])
)
plain = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), inner, max_size=5)
    ),
    max_leaves=25,
)


def read_or_refuse(read: Any, value: Any) -> Snapshot | None:
    try:
        return read(value)  # type: ignore[no-any-return]
    except ScenarioError as error:
        mistakes = error.mistakes
    assert mistakes
    for mistake in mistakes:
        path, colon, text = mistake.partition(": ")
        assert path, mistake
        assert colon, mistake
        assert text, mistake
        assert mistake.isprintable(), mistake
    return None


@given(plain)
def test_any_plain_data_is_read_or_refused(data):
    read_or_refuse(read_plain, data)
    read_or_refuse(read_plain, {"groups": data})
    read_or_refuse(read_plain, {"groups": {"g": data}, "slices": [data], "demands": [data, data], "requests": data})


def places(data: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [at, *(place for key, child in children for place in places(child, (*at, key)))]


PLACES = places(VALID)[1:]


def holder(data: Any, place: tuple[Any, ...]) -> Any:
    for key in place[:-1]:
        data = data[key]
    return data


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """A good scenario with one to three changes: something dropped, replaced, retyped, copied or renamed."""
    data = copy.deepcopy(VALID)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(PLACES))
        try:
            parent = holder(data, place)
            value = parent[place[-1]]
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change has taken it away
        match draw(st.sampled_from(["drop", "replace", "wrap", "text", "copy", "rename"])):
            case "drop":
                del parent[place[-1]]
            case "replace":
                parent[place[-1]] = draw(plain)
            case "wrap":
                parent[place[-1]] = draw(st.sampled_from([[value], {"id": value}, {"x": value}]))
            case "text":
                parent[place[-1]] = str(value)
            case "copy" if isinstance(parent, list):
                parent.append(copy.deepcopy(value))
            case "rename" if isinstance(parent, dict):
                parent[draw(st.sampled_from(KEYS) | st.text(max_size=5))] = parent.pop(place[-1])
    return data


@given(mutated())
def test_a_good_scenario_with_a_few_changes_is_read_or_refused(data):
    snapshot = read_or_refuse(read_plain, data)
    if snapshot is not None:
        assert read_plain(write_scenario(snapshot)) == snapshot


@given(mutated())
def test_the_same_mistakes_are_reported_for_json_and_for_yaml(data):
    text = json.dumps(data)
    as_json, as_data = read_or_refuse(read_scenario, text), read_or_refuse(read_plain, data)
    assert as_json == as_data
    try:
        dumped = yaml.safe_dump(data, allow_unicode=True)
        dumped.encode()
    except (yaml.YAMLError, UnicodeEncodeError):
        return
    assert (read_or_refuse(read_scenario, dumped) is None) == (as_data is None)


@given(st.text(max_size=60) | st.text(alphabet=":-[]{},&*!|>'\"%@`#?<\n\t ag1", max_size=40))
def test_any_text_is_read_or_refused(text):
    read_or_refuse(read_scenario, text)
    read_or_refuse(read_scenario, "groups: {}\ndemands: " + text)
    read_or_refuse(read_scenario, "{" + text)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(content):
    read_or_refuse(read_scenario, content)


@given(st.integers(0, len(EVERY_KEY)), st.integers(0, 30), st.text(max_size=3))
def test_a_good_file_with_a_piece_replaced_is_read_or_refused(start, length, piece):
    read_or_refuse(read_scenario, EVERY_KEY[:start] + piece + EVERY_KEY[start + length :])


# -- there and back ------------------------------------------------------------------------------------------------

names = st.text(alphabet="abcxyz019-_./é", min_size=1, max_size=6)
values = st.text(alphabet="abc 019'\"-_.", max_size=6)
times = st.integers(-(10**9), 10**12) | st.floats(-1e9, 1e9).map(lambda value: round(value, 3) + 0.0)
maybe_times = st.none() | times
money = st.none() | st.integers(0, 10**18)
shares = st.integers(1, 1000).map(lambda value: value / 1000)
resources = st.sampled_from(["cpu", "memory", "disk", "slot"])
needs = st.builds(
    lambda plain, devices: amounts(plain | devices),
    st.dictionaries(resources, st.integers(1, LARGEST), max_size=3),
    st.dictionaries(
        st.sampled_from(["gpu", "tpu"]), st.integers(1, 1000) | st.integers(1, 64).map(lambda n: n * 1000), max_size=2
    ),
)
holdings = st.builds(
    lambda plain, devices: amounts(plain | devices),
    st.dictionaries(resources, st.integers(1, LARGEST), max_size=3),
    st.dictionaries(st.sampled_from(["gpu", "tpu"]), st.integers(1, 1024).map(lambda n: n * 1000), max_size=2),
)
plain_values = values.map(str.strip)
conditions = st.one_of(
    st.builds(Condition, names, st.sampled_from(["==", "!="]), st.tuples(plain_values)),
    st.builds(Condition, names, st.sampled_from(["in", "not in"]), st.lists(plain_values, min_size=1).map(tuple)),
    st.builds(Condition, names, st.sampled_from(["exists", "absent"])),
    st.builds(Condition, names, st.sampled_from([">", ">=", "<", "<="]), st.tuples(st.integers().map(str))),
)
labels = st.dictionaries(names, values, max_size=2)
effects = st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"])
taints = st.builds(Taint, names, values, effects)
tolerations = st.builds(Toleration, names, st.just("Equal"), values, st.just("") | effects) | st.builds(
    Toleration, st.just("") | names, st.just("Exists"), st.just(""), st.just("") | effects
)


@st.composite
def groups(draw: st.DrawFn, name: str) -> Group:
    held = draw(holdings)
    rules = draw(
        st.builds(
            ScaleDown,
            st.none() | st.integers(0, 10**6),
            st.none() | st.builds(LowUtilization, shares.map(lambda value: _fraction(value)), st.integers(0, 5)),
            st.none()
            | st.builds(
                UtilizationTarget,
                st.integers(1, 100),
                st.integers(0, 1000),
                st.integers(0, 9),
                st.sampled_from([None, *(key for key, _ in held)]),
            ),
            st.booleans(),
        )
    )
    least = draw(st.integers(0, 10))
    return Group(
        name=name,
        resources=held,
        max=draw(st.integers(least, 20)),
        labels=draw(labels),
        taints=tuple(draw(st.lists(taints, max_size=2))),
        hosts=draw(st.integers(1, 3)),
        min=least,
        spare=draw(st.integers(0, 5)),
        rank=draw(st.integers(0, 200)),
        price=draw(money),
        preemptible=draw(st.booleans()),
        max_launching=draw(st.none() | st.integers(0, 9)),
        scale_down=None if rules == ScaleDown() else rules,
        availability=draw(
            st.just(Availability())
            | st.builds(Availability, st.sampled_from(["backoff", "quota_exceeded"]), maybe_times, values)
        ),
        protected=frozenset(draw(st.lists(names, max_size=2))),
        boot_seconds=draw(st.integers(0, 1000)),
        frozen=draw(st.booleans()),
    )


def _fraction(value: float) -> Any:
    return Fraction(str(value))


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    kinds = [draw(groups(name)) for name in draw(st.lists(names, max_size=3, unique=True))]
    slices = []
    for name in draw(st.lists(names, max_size=4, unique=True)):
        group = draw(st.sampled_from([*kinds, None]))
        hosts = group.hosts if group else draw(st.integers(1, 2))
        nodes = tuple(
            Node(
                f"{name}:{index}",
                used := ()
                if group is None
                else tuple((key, value) for key, value in group.resources if draw(st.booleans())),
                draw(st.integers(0, 3)) if used else draw(st.integers(0, 1)),
                draw(maybe_times),
                draw(labels),
                draw(st.booleans()),
            )
            for index in range(hosts)
        )
        slices.append(
            Slice(
                name,
                group.name if group else "gone",
                draw(st.sampled_from(State)),
                draw(maybe_times),
                draw(maybe_times),
                nodes,
            )
        )
    if any(group.name == "gone" for group in kinds):
        slices = []
    ids = draw(st.lists(names, max_size=5, unique=True))
    split = draw(st.integers(0, len(ids)))
    found = [draw(demands(name)) for name in ids]
    return Snapshot(
        groups=tuple(kinds),
        slices=tuple(slices),
        demands=tuple(found[:split]),
        requests=tuple(replace(request, deadline=None) for request in found[split:]),
        cluster=draw(
            st.builds(
                Cluster,
                st.none() | st.integers(0, 10**6),
                money,
                st.none() | st.integers(0, 100),
                st.sampled_from(
                    [None, "best-fit", "rank", *(["cheapest"] if all(kind.price is not None for kind in kinds) else [])]
                ),
                st.integers(1, 1000),
            )
        ),
        now=draw(times),
    )


@st.composite
def demands(draw: st.DrawFn, name: str) -> Demand:
    gang = draw(st.none() | st.sampled_from(Gang))
    counts = st.integers(1, 10**7) if gang is None else st.integers(1, 30_000)
    bundles = st.lists(st.builds(Bundle, needs, counts), min_size=1, max_size=1 if gang is None else 3)
    return Demand(
        id=name,
        bundles=tuple(draw(bundles)),
        gang=gang,
        where=tuple(draw(st.lists(conditions, max_size=2))),
        prefer=tuple(draw(st.lists(conditions, max_size=2))),
        tolerates=tuple(draw(st.lists(tolerations, max_size=2))),
        priority=draw(st.integers(-100, 100)),
        since=draw(maybe_times),
        deadline=None if gang is None else draw(maybe_times),
    )


@given(snapshots())
def test_what_is_written_is_read_back_as_the_same_snapshot(snapshot):
    written = write_scenario(snapshot)
    assert read_plain(written) == snapshot
    assert read_scenario(json.dumps(written)) == snapshot
    assert read_scenario(yaml.safe_dump(written, sort_keys=False)) == snapshot
