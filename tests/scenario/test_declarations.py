"""A key is declared once: from the declaration it is read, written, described and offered as a keyword."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import pytest

import windlass as wl
from windlass.config import read_config
from windlass.config.from_journal import as_configured
from windlass.scenario.declarations import Declared, Form
from windlass.scenario.reader import DataReader, ScenarioError
from windlass.scenario.schema import CLUSTER, DEMAND, GROUP, NODE, SLICE
from windlass.scenario.value_types import FLAG, NAME, object_schema, whole


@dataclass(frozen=True)
class Shelf:
    name: str
    boards: int = 3
    open: bool = False


SHELF = Form.of(
    "a shelf",
    Shelf,
    {
        "name": Declared(NAME, "Its name."),
        "boards": Declared(whole(10, low=1), "Boards.", "boards", old_name="planks"),
        "open": Declared(FLAG, "Whether it has no back."),
    },
)


def read(data: object) -> Shelf:
    reader = DataReader()
    found = Shelf(**{"name": "", **reader.values(("shelf",), reader.fields(("shelf",), data, SHELF), SHELF)})
    reader.finish()
    return found


def test_values_are_read_and_written_by_their_declaration():
    assert read({"name": "a"}) == Shelf("a")
    assert read({"name": "a", "boards": 5, "open": True}) == Shelf("a", 5, True)
    assert SHELF.write(Shelf("a", 5)) == {"name": "a", "boards": 5}
    assert SHELF.write(Shelf("a")) == {"name": "a"}


def test_an_old_name_is_read_and_mistakes_name_the_key_that_was_written():
    assert read({"name": "a", "planks": 4}).boards == 4
    with pytest.raises(ScenarioError, match=r"shelf\.planks: must be at most 10, is 11"):
        read({"name": "a", "planks": 11})
    with pytest.raises(ScenarioError, match=r"shelf\.planks: is the old name of boards; keep one of them"):
        read({"name": "a", "planks": 4, "boards": 4})


def test_the_default_in_the_docs_is_that_of_the_dataclass():
    assert {name: key.default for name, key in SHELF.keys.items()} == {
        "name": "required",
        "boards": "3",
        "open": "false",
    }


def test_editors_get_the_type_and_the_bounds():
    schema = object_schema(SHELF)
    assert schema["required"] == ["name"]
    assert schema["properties"]["boards"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 10,
        "description": "Boards. Default: 3.",
    }


@pytest.mark.parametrize(
    ("builder", "form", "without"),
    [
        (wl.group, GROUP, set()),
        (wl.node, NODE, set()),
        (wl.slice_, SLICE, set()),
        (wl.demand, DEMAND, {"gang", "bundles", "deadline"}),
        (wl.snapshot, CLUSTER, set()),
    ],
)
def test_every_key_is_a_keyword_of_its_builder(builder, form, without):
    assert set(form.keys) - without <= set(inspect.signature(builder).parameters)


def test_an_unknown_keyword_is_refused():
    with pytest.raises(TypeError, match="cout"):
        wl.demand("train", {"cpu": 1}, cout=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="max"):
        wl.family("gpu")  # type: ignore[call-arg]


def test_a_recorded_configuration_keeps_every_key_of_a_group_and_of_the_cluster():
    text = """
    cluster: {max_concurrent_launches: 7}
    groups: {g: {resources: {cpu: 4}, max: 3, upscaling_speed: 2.0, boot_seconds: 1m, settings: {kind: big}}}
    providers: {cloud: {type: simulated}}
    workload: {type: simulated}
    """
    settings = read_config(text, path="windlass.yaml").settings
    written = as_configured(settings)
    assert written["cluster"] == {"max_concurrent_launches": 7}
    assert written["groups"]["g"] == {
        "resources": {"cpu": 4},
        "max": 3,
        "boot_seconds": 60,
        "provider": "cloud",
        "upscaling_speed": 2.0,
        "settings": {"kind": "big"},
    }
