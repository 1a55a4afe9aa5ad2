"""A wrong file gives every mistake with its path, and never another exception."""

from __future__ import annotations

import pytest

from tests.scenario.malformed import MALFORMED, G
from windlass.scenario import ScenarioError, read_plain, read_scenario
from windlass.scenario.parser import LARGE


@pytest.mark.parametrize(("text", "parts"), MALFORMED.items(), ids=range(len(MALFORMED)))
def test_a_wrong_file_gives_errors_with_their_places(text, parts):
    with pytest.raises(ScenarioError) as raised:
        read_scenario(text)
    mistakes = raised.value.mistakes
    assert any(all(part in mistake for part in parts) for mistake in mistakes), mistakes
    assert all(mistake.isprintable() and ": " in mistake for mistake in mistakes)


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file():
    text = """
        cluster: {max_nods: 5}
        groups:
          a: {resources: {cpu: 4}, min: 3, max: 1}
          b: {resources: {cpu: -2}, max: 1}
        demands:
          - {id: x, needs: {cpu: 1}, count: -1}
          - {id: y, needs: {cpu: none}}
    """
    with pytest.raises(ScenarioError) as raised:
        read_scenario(text)
    assert [mistake.partition(":")[0] for mistake in raised.value.mistakes] == [
        "cluster.max_nods",
        "groups.a.max",
        "groups.b.resources.cpu",
        "demands.x.count",
        "demands.y.needs.cpu",
    ]


def test_a_message_says_path_then_what_then_remedy():
    with pytest.raises(ScenarioError) as raised:
        read_scenario("groups: {gpu-a: {resources: {gpu: 4}, min: 4, max: 2, prise: 3}}")
    assert raised.value.mistakes == (
        "groups.gpu-a.prise: unknown key; did you mean price?",
        "groups.gpu-a.max: must be at least min (4), is 2",
    )
    assert str(raised.value) == "\n".join(raised.value.mistakes)


def test_a_mistake_in_a_group_is_not_reported_again_for_each_of_its_slices():
    text = """
        groups: {g: {resources: {cpu: many}, max: 5}}
        slices: [{id: s, group: g, state: ready, nodes: [{used: {cpu: 1}}]}]
    """
    with pytest.raises(ScenarioError) as raised:
        read_scenario(text)
    assert len(raised.value.mistakes) == 1


def test_the_hundred_thousandth_demand_is_checked_like_the_first():
    good = ", ".join(f'{{"id": "d{index}", "needs": {{"gpu": 1}}, "count": 2}}' for index in range(50))
    wrong = '{"id": "x", "needs": {"gpu": true}}, {"id": "d3", "needs": {"gpu": 1}}, {"id": "", "needs": {"gpu": 1}}'
    wrong += ', {"id": "y", "needs": {"gpu": 1}, "count": 2.5}, {"id": "z", "needs": {"gpu": 1}, "since": "x"}'
    wrong += ', {"id": "w", "needs": {"gpu": 1}, "count": true}, {"id": "v", "needs": {"gpu": 1, "gpu": 1}}'
    with pytest.raises(ScenarioError) as raised:
        read_scenario(f'{{"groups": {{}}, "demands": [{good}, {wrong}]}}')
    assert [mistake.partition(": ")[0] for mistake in raised.value.mistakes] == [
        "demands.x.needs.gpu",
        "demands.d3",
        "demands[52].id",
        "demands.y.count",
        "demands.z.since",
        "demands.w.count",
        "demands.v.needs.gpu",
    ]


@pytest.mark.parametrize("text", [b"\xff\xfe\x00", b"\x80\x81", bytes(range(256)), b"\x89PNG\r\n\x1a\n\x00\x00"])
def test_bytes_that_are_no_text_are_reported_as_such(text):
    with pytest.raises(ScenarioError, match="scenario: is not"):
        read_scenario(text)


def test_half_a_character_is_reported_as_such():
    with pytest.raises(ScenarioError, match="half a character in line 1, column 9"):
        read_scenario("groups: \ud800")
    with pytest.raises(ScenarioError, match=r"slices\[0\].id: must be visible text"):
        read_scenario('{"groups": {}, "slices": [{"id": "\\ud800", "group": "g", "state": "ready"}]}')


def test_large_broken_json_is_reported_at_once_and_small_broken_json_may_be_yaml():
    assert read_scenario('{"groups": {},}').groups == ()
    with pytest.raises(ScenarioError, match=r"is not JSON: .* line 1, column"):
        read_scenario('{"groups": {}, "now": 5' + " " * LARGE)


STRANGE = {
    "object": object(),
    "number as key": {1: 2},
    "list": [{}],
    "bytes": b"bytes",
    "huge number": 10**5000,
    "complex": 1j,
    "tuple as key": {("a",): 1},
}


@pytest.mark.parametrize("value", STRANGE.values(), ids=STRANGE)
def test_plain_data_of_any_type_is_reported_and_never_breaks(value):
    for data in (value, {"groups": value}, {"groups": {}, "demands": [{"id": value, "needs": {"cpu": value}}]}):
        with pytest.raises(ScenarioError):
            read_plain(data)


def test_there_are_many_wrong_files_here():
    assert len(MALFORMED) >= 200
    assert read_scenario(G).groups[0].name == "g"
