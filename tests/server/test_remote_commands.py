"""Commands with --url print the same as beside the journal."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import pytest
from click.testing import CliRunner

pytest.importorskip("fastapi", reason="the server is an extra: pip install '.[server]'")
pytest.importorskip("prometheus_client", reason="the server is an extra: pip install '.[server]'")

from tests.cli.clusters import CONFIG, Cluster, one_waits, ticks
from tests.cli.terminal import Terminal
from tests.server.served import served
from windlass.cli import windlass
from windlass.cli.ui.plan_page import page
from windlass.core.model.snapshot import amounts
from windlass.workloads.queue.store import Queue


@pytest.fixture
def api(tmp_path):
    cluster = Cluster(tmp_path)
    cluster.live(one_waits)
    with served(cluster, tmp_path) as found:
        yield found


def remotely(api, *words, role="viewer"):
    url = ["--url", f"http://{api.host}", "--token", api.secrets[role]]
    return CliRunner().invoke(windlass, [*words, *url])


def without_config(text, api):
    return " ".join(text.split()).replace(f" -c {api.cluster.config}", "")


@pytest.mark.parametrize(
    "words",
    [
        ["why", "d"],
        ["why", "gpu"],
        ["cost"],
        ["cost", "--by", "account"],
        ["events"],
        ["events", "--subject", "nothing"],
        ["events", "--json"],
    ],
)
def test_the_same_command_prints_the_same_from_afar(api, words):
    done = remotely(api, *words)
    assert done.exit_code == 0, done.stderr
    here = api.cluster.run(*words)
    assert without_config(done.stdout, api) == without_config(here.stdout, api)
    assert done.stderr == here.stderr


def test_the_last_plan_is_printed_from_afar_as_a_plan_of_the_same_state_is_here(api):
    known = api.server.current().planned
    done = remotely(api, "plan", "--live")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == page(known.plan, known.snapshot, "--live")
    assert "ceiling" not in done.stdout
    assert "Waiting: 1 task of 1 job" in done.stdout
    document = json.loads(remotely(api, "plan", "--live", "--json").stdout)
    assert document == json.loads(json.dumps(known.plan.to_dict()))
    assert remotely(api, "plan", "--live", "--detailed-exitcode").exit_code == (2 if known.plan.changes else 0)


def test_a_remote_command_shows_a_job_with_its_failed_tasks(tmp_path):
    cluster = Cluster(
        tmp_path, CONFIG.replace("{type: simulated}\njournal", "{type: queue, directory: queue}\njournal")
    )
    cluster.live(one_waits)
    queue = Queue(tmp_path / "queue")
    queue.submit("broken", ["sh"], amounts({"cpu": 1000}), 1)
    place = queue.join("s/0", "s", {"cpu": 1000}, {})
    queue.report(place, queue.claim(place)[0].number, 3)
    with served(cluster, tmp_path) as api:
        here, there = cluster.run("why", "broken"), remotely(api, "why", "broken")
        assert there.exit_code == 0, there.stderr
        assert "failed with exit code 3" in there.stdout
        assert without_config(there.stdout, api) == without_config(here.stdout, api)
        assert remotely(api, "why", "brokem").exit_code == 1


def test_top_watches_a_remote_cluster(api):
    words = ("top", "--url", f"http://{api.host}", "--token", api.secrets["viewer"])
    terminal = Terminal(sys.executable, "-m", "windlass", *words)
    try:
        terminal.shows("1 job waits", "AT_MAX", "q end")
        terminal.press("jjjk\x1b[Bkkkkk\n")
        terminal.shows("Why d", "would help: ")
        terminal.press("q")
        assert terminal.end() == 0
    finally:
        terminal.close()


def test_an_order_from_afar(api):
    refused = remotely(api, "freeze", "gpu")
    assert refused.exit_code == 1
    assert "needs the token of an operator" in refused.stderr
    done = remotely(api, "freeze", "gpu", role="operator")
    assert done.exit_code == 0
    assert "no controller runs: gpu will be frozen as soon as one does" in " ".join(done.stdout.split())


def test_an_order_prints_the_same_from_afar(api):
    cluster = api.cluster

    def prints(*words: str, undo: Sequence[Sequence[str]] = ()) -> str:
        here = cluster.run(*words)
        for one in undo:
            cluster.run(*one)
        there = remotely(api, *words, role="operator")
        assert (here.exit_code, there.exit_code, here.stderr) == (0, 0, there.stderr)
        assert without_config(here.stdout, api) == without_config(there.stdout, api)
        return " ".join(here.stdout.split())

    def a_pass() -> None:
        cluster.live(lambda world, controller: ticks(world, controller, 1))
        api.server.feed.poll(force=True)

    [first, *_] = sorted(one["id"] for one in api.get("/status").data["slices"])
    assert "no controller runs: gpu will be frozen" in prints("freeze", "gpu")
    assert "dear is not frozen" in prints("resume", "dear")
    prints("freeze", "dear")
    assert "dear will be resumed" in prints("resume", "dear", undo=[("freeze", "dear")])
    prints("freeze", "dear")
    assert f"{first} will be drained" in prints("drain", first)
    a_pass()
    assert "gpu is frozen already, by operator (operator)" in prints("freeze", "gpu")
    assert "dear, gpu will be resumed" in prints("resume", undo=[("freeze", "dear"), ("freeze", "gpu")])
    assert f"the order to drain {first} will be withdrawn" in prints("drain", "--undo", first)
    a_pass()
    assert "nothing is frozen" in prints("resume")


def test_a_server_that_is_not_there_is_one_line():
    done = CliRunner().invoke(windlass, ["status", "--url", "http://127.0.0.1:9", "--token", "wlv_x"])
    assert done.exit_code == 1
    assert done.stderr.count("\n") == 1
    assert "http://127.0.0.1:9" in done.stderr


def test_a_url_needs_a_token():
    done = CliRunner().invoke(windlass, ["status", "--url", "http://127.0.0.1:9"])
    assert done.exit_code == 2
    assert "WINDLASS_TOKEN" in done.output
