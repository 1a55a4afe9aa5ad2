"""A family of groups: one row with its groups inside, frozen and resumed by its name, over HTTP and by command."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the server is an extra: pip install '.[server]'")
pytest.importorskip("prometheus_client", reason="the server is an extra: pip install '.[server]'")

from rich.console import Console

from tests.cli.clusters import Cluster, one_waits, ticks
from tests.server.served import Served, served
from windlass.cli.commands.look.top import page
from windlass.config import read_config

CONFIG = """
families: {gpu: {max: 5}}
groups:
  gpu-spot: {family: gpu, resources: {gpu: 8}, price: 2.0, scale_down: {idle_timeout: 60}}
  gpu-steady: {family: gpu, resources: {gpu: 8}, price: 9.0, scale_down: {idle_timeout: 60}}
  cpu: {resources: {cpu: 8}, max: 3, price: 1.0, scale_down: {idle_timeout: 60}}
providers: {cloud: {type: simulated}}
workload: {type: simulated}
journal: journal.db
policy: {vanish_timeout: 1s}
"""


@pytest.fixture
def api(tmp_path):
    cluster = Cluster(tmp_path, CONFIG)
    cluster.live(one_waits)
    with served(cluster, tmp_path) as found:
        yield found


def after_a_pass(api: Served) -> Any:
    """The status after a controller has made a pass."""
    api.cluster.live(lambda world, controller: ticks(world, controller, 1))
    api.server.feed.poll(force=True)
    return api.get("/status").data


def test_the_status_has_the_family_with_its_limits_and_counts(api):
    [family] = api.get("/status").data["families"]
    groups = [one for one in api.get("/status").data["groups"] if one["family"] == "gpu"]
    assert (family["name"], family["max"], family["groups"]) == ("gpu", 5, ["gpu-spot", "gpu-steady"])
    for count in ("ready", "coming", "leaving", "busy"):
        assert family[count] == sum(one[count] for one in groups)
    assert family["frozen_by"] is None


def test_an_operator_freezes_and_resumes_a_family_by_its_name_over_http(api):
    given = api.post("/orders", {"what": "freeze", "subject": "gpu"})
    assert (given.status, given.data["subject"]) == (202, "gpu")
    status = after_a_pass(api)
    by = "operator (operator) over http from 127.0.0.1"
    assert status["frozen"] == {"gpu": by}
    assert status["families"][0]["frozen_by"] == by
    frozen = {one["name"]: one["frozen_by"] for one in status["groups"]}
    assert frozen == {"cpu": None, "gpu-spot": by, "gpu-steady": by}
    assert api.get("/why?name=gpu").data["family"]["frozen_by"] == by
    outcome = api.get(f"/orders/{given.data['seq']}").data["outcome"]
    assert outcome == f"gpu is frozen by {by}: nothing is launched or released"

    alone = api.post("/orders", {"what": "resume", "subject": "gpu-spot"})
    assert (alone.status, alone.problem) == (409, "not-frozen")
    assert "its family gpu is: resume gpu" in alone.data["detail"]

    assert api.post("/orders", {"what": "resume", "subject": "gpu"}).status == 202
    status = after_a_pass(api)
    assert status["frozen"] == {}
    assert not any(one["frozen_by"] for one in (*status["groups"], *status["families"]))
    assert api.post("/orders", {"what": "resume", "subject": "gpu"}).problem == "not-frozen"


def test_the_name_of_a_family_resumes_groups_of_it_that_were_frozen_one_by_one(api):
    api.post("/orders", {"what": "freeze", "subject": "gpu-spot"})
    assert after_a_pass(api)["frozen"].keys() == {"gpu-spot"}
    assert api.post("/orders", {"what": "resume", "subject": "gpu"}).status == 202
    assert after_a_pass(api)["frozen"] == {}


def test_a_group_that_joins_a_frozen_family_later_is_frozen_with_it(api):
    api.post("/orders", {"what": "freeze", "subject": "gpu"})
    after_a_pass(api)
    newer = "  gpu-new: {family: gpu, resources: {gpu: 8}, price: 1.0, scale_down: {idle_timeout: 60}}\n  cpu:"
    text = CONFIG.replace("  cpu:", newer)
    api.cluster.config.write_text(text, encoding="utf-8")
    api.cluster.world.settings = read_config(text, path=api.cluster.config).settings
    bought = list(api.cluster.world.bought)
    api.cluster.world.work.waiting = [*api.cluster.world.work.waiting, "later"]
    row = next(one for one in after_a_pass(api)["groups"] if one["name"] == "gpu-new")
    assert (row["frozen_by"], row["next"]["code"]) == ("operator (operator) over http from 127.0.0.1", "FROZEN")
    assert api.cluster.world.bought == bought

    api.post("/orders", {"what": "resume", "subject": "gpu"})
    after_a_pass(api)
    after_a_pass(api)
    assert [name for name in api.cluster.world.bought if name not in bought and name.startswith("gpu-new")]


def test_the_star_resumes_everything(api):
    api.post("/orders", {"what": "freeze", "subject": "gpu"})
    api.post("/orders", {"what": "freeze", "subject": "cpu"})
    assert after_a_pass(api)["frozen"].keys() == {"gpu", "cpu"}
    assert api.post("/orders", {"what": "resume", "subject": "*"}).status == 202
    assert after_a_pass(api)["frozen"] == {}
    assert api.post("/orders", {"what": "resume", "subject": "*"}).problem == "not-frozen"


def test_the_command_line_freezes_and_resumes_a_family(api):
    cluster = api.cluster
    assert "gpu will be frozen" in cluster.output("freeze", "gpu")
    assert after_a_pass(api)["frozen"].keys() == {"gpu"}
    assert "gpu is frozen already" in cluster.output("freeze", "gpu")
    refused = cluster.run("resume", "gpu-spot")
    assert (refused.exit_code, "windlass resume gpu" in refused.stderr) == (1, True)
    assert "gpu will be resumed" in cluster.output("resume", "gpu")
    assert after_a_pass(api)["frozen"] == {}


def test_what_waits_for_a_frozen_family_is_offered_to_resume_it(api):
    async def more(world, controller) -> None:
        world.work.waiting = [*world.work.waiting, "later"]
        await ticks(world, controller, 1)

    api.post("/orders", {"what": "freeze", "subject": "gpu"})
    api.cluster.live(more)
    api.server.feed.poll(force=True)
    ways = api.get("/why?name=later").data["demand"]["unblocks"]
    assert [way["change"] for way in ways] == ["resume gpu"]


def test_what_waits_while_everything_is_frozen_is_offered_to_resume_everything(api):
    """A group cannot be resumed alone while everything is frozen, so no suggested change names one."""

    async def more(world, controller) -> None:
        world.work.waiting = [*world.work.waiting, "later"]
        await ticks(world, controller, 1)

    api.post("/orders", {"what": "freeze", "subject": "*"})
    api.cluster.live(more)
    api.server.feed.poll(force=True)
    [way] = api.get("/why?name=later").data["demand"]["unblocks"]
    assert way["change"] == "resume everything"
    assert way["buys"] == {"gpu-spot": 1}  # the cheapest that is resumed
    row = next(one for one in api.get("/demands").data["items"] if one["id"] == "later")
    assert [one["change"] for one in row["unblocks"]] == ["resume everything"]
    assert "resume everything" in api.cluster.output("why", "later")


def test_status_and_top_show_a_family_as_one_row_with_its_groups_inside(api):
    status = api.get("/status").data
    console = Console(width=120, height=40, record=True, file=StringIO())
    console.print(page(status, None, None, (120, 40)))
    for text in (api.cluster.run("status").stdout, console.export_text()):
        lines = [line.split() for line in text.splitlines() if line.strip()]
        head = next(place for place, words in enumerate(lines) if words[:2] == ["group", "ready"])
        assert [words[0] for words in lines[head + 1 : head + 4]] == ["cpu", "gpu", "gpu-spot"], text
