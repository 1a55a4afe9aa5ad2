"""Whatever a file holds: it is read or imported, or its mistakes are told. Nothing else."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from windlass.config import Config, ConfigError, read_config
from windlass.config.importers.base import Imported, import_config
from windlass.config.reference import pages
from windlass.core.planner import plan

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "config"
TEXT = (EXAMPLES / "windlass.yaml").read_text(encoding="utf-8") + "\nleader: {lease: 20, holder: me}\n"
KEYS = sorted({key for page in pages() for key in page.form.known} | {"cpu", "gpu", "cloud", "zones", "CPU", "sizes"})

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        ["10m", "30d", "local", "postgresql://[", "sqlite:///", "~", "~x/y", "16GB", "-1", "\ud800", "\0"]
    )
    | st.sampled_from([-1, 0, 1, 0.5, 2**63, 10**400, float("nan"), float("inf")])
)
plain = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), inner, max_size=5)
    ),
    max_leaves=20,
)


def read_or_refuse(read: Callable[[str | bytes], object], text: str | bytes) -> object:
    try:
        return read(text)
    except ConfigError as error:
        mistakes = error.mistakes
    assert mistakes
    for mistake in mistakes:
        path, colon, words = mistake.partition(": ")
        assert path, mistake
        assert colon, mistake
        assert words, mistake
        assert mistake.isprintable(), mistake
    return None


def read(text: str | bytes) -> object:
    return read_config(text, path="windlass.yaml")


def places(data: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [at, *(place for key, child in children for place in places(child, (*at, key)))]


@st.composite
def mutated(draw: st.DrawFn, good: Any) -> str:
    """A good file with one to three changes, as JSON."""
    data = copy.deepcopy(good)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(places(data)[1:] or [()]))
        if not place:
            break
        parent = data
        for key in place[:-1]:
            parent = parent[key]
        value = parent[place[-1]]
        match draw(st.sampled_from(["drop", "replace", "wrap", "text", "rename"])):
            case "drop":
                del parent[place[-1]]
            case "replace":
                parent[place[-1]] = draw(plain)
            case "wrap":
                parent[place[-1]] = draw(st.sampled_from([[value], {"x": value}]))
            case "text":
                parent[place[-1]] = str(value)
            case "rename" if isinstance(parent, dict):
                parent[draw(st.sampled_from(KEYS) | st.text(max_size=5))] = parent.pop(place[-1])
    return json.dumps(data)


@given(plain, mutated(yaml.safe_load(TEXT)))
def test_any_data_is_read_or_refused(data, changed):
    parts = {"groups": {"g": data}, "providers": {"p": data}, "workload": data, "policy": data}
    for text in (json.dumps(data), json.dumps(parts), changed):
        assert isinstance(read_or_refuse(read, text), Config | None)


@given(st.text(max_size=60) | st.text(alphabet=":-[]{},&*!|>'\"%@`#?<\n\t ag1", max_size=40), st.binary(max_size=60))
def test_any_text_is_read_or_refused(text, content):
    for words in (text, TEXT + text, content):
        assert isinstance(read_or_refuse(read, words), Config | None)
    for words in (text, content):
        assert isinstance(read_or_refuse(import_config, words), Imported | None)


@given(st.integers(0, len(TEXT)), st.integers(0, 30), st.text(max_size=3))
def test_a_good_file_with_a_piece_replaced_is_read_or_refused(start, length, piece):
    config = read_or_refuse(read, TEXT[:start] + piece + TEXT[start + length :])
    if isinstance(config, Config):  # what was read can be planned
        assert plan(config.empty_snapshot()).waiting == ()


@pytest.mark.parametrize(("kind", "name"), [("ray", "ray-cluster.yaml"), ("iris", "iris.yaml")])
def test_a_file_to_import_with_a_few_changes_is_imported_or_refused(kind, name):
    good = json.loads(json.dumps(yaml.safe_load((EXAMPLES / name).read_text(encoding="utf-8"))))
    assert import_config(json.dumps(good)).text

    @given(mutated(good), plain)
    def check(changed, data):
        imported = read_or_refuse(lambda text: import_config(text, kind=kind), changed)
        if imported is not None:
            read_config(imported.text, path="windlass.yaml")  # type: ignore[attr-defined]
        read_or_refuse(lambda text: import_config(text, kind=kind), json.dumps(data))
        top = {"available_node_types": {"t": data}, "scale_groups": {"t": data}, "tpu_pools": {"t": data}}
        read_or_refuse(lambda text: import_config(text, kind=kind), json.dumps(top | {"defaults": data}))

    check()
