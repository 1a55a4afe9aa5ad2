"""Every name that programs rely on: keys of documents, problems, headers, sockets, metrics."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import ssl
import stat
import subprocess
import time
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the server is an extra: pip install '.[server]'")
pytest.importorskip("prometheus_client", reason="the server is an extra: pip install '.[server]'")

from tests.cli.clusters import Cluster, one_waits, ticks
from tests.server.served import Served, served, two_groups
from windlass.config.server import Listen
from windlass.journal import JournalError
from windlass.server.listener import CannotListen, check_certificate
from windlass.server.live import feed as feed_module
from windlass.server.problems import TITLES
from windlass.server.timing import measure

CONFIG = two_groups(most=2, idle=60)


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    directory = tmp_path_factory.mktemp("interface")
    cluster = Cluster(directory, CONFIG)
    cluster.live(one_waits)
    with served(cluster, directory) as found:
        yield found


# -- documents -----------------------------------------------------------------------------------------------------

ADDED = {
    "": "seq version headline summary spent_since",
    "summary": "waiting_tasks waiting_demands impossible_demands oldest_wait_since slices busy idle coming leaving "
    "ceiling unknown_sources",
    "groups": "min spare hosts resources labels price preemptible next",
    "slices": "until then use cost zone hosts",
    "demands": "needs gang groups unblocks",
}


def test_the_status_has_every_added_key(api: Served):
    status = api.get("/status").data
    assert set(ADDED[""].split()) <= status.keys()
    assert set(ADDED["summary"].split()) == status["summary"].keys()
    for table in ("groups", "slices", "demands"):
        assert status[table], table
        for row in status[table]:
            assert set(ADDED[table].split()) <= row.keys()
    assert all(row["next"].keys() == {"code", "why"} for row in status["groups"])
    for way in (way for row in status["demands"] for way in row["unblocks"]):
        assert {"change", "set", "hourly_cost", "buys", "for"} <= way.keys()
    assert all(0 <= row["use"] <= 1 for row in status["slices"])


def test_documents_have_their_keys(api: Served):
    lanes = api.get("/lanes?since=0").data
    assert lanes["schema"] == "windlass.lanes/v1"
    for lane in lanes["slices"]:
        assert {"id", "group", "price", "cost", "started", "spans", "use"} <= lane.keys()
        assert {"code", "why"} <= lane["started"].keys()
        for span in lane["spans"]:
            assert {"state", "from", "to", "code", "why", "by"} <= span.keys()
        assert all({"at", "tasks", "share"} <= one.keys() for one in lane["use"])
    series = api.get("/series?since=0&points=50").data
    assert {"at", "waiting", "slices", "busy", "hourly_cost", "ceiling"} <= series.keys()
    length = len(series["at"])
    assert 0 < length <= 50
    flat = [*series["waiting"].values(), *series["slices"].values()]
    assert all(len(one) == length for one in (*flat, series["busy"], series["hourly_cost"], series["ceiling"]))
    accounts = api.get("/accounts?by=group").data
    assert accounts["schema"] == "windlass.accounts/v1"
    for row in (*accounts["rows"], accounts["total"]):
        assert {"work", "booting", "idle", "spare", "draining", "ending", "total"} <= row.keys()
    events = api.get("/events").data
    assert events.keys() >= {"events", "next", "previous"}
    assert all(one["schema"] == "windlass.event/v1" and {"seq", "epoch"} <= one.keys() for one in events["events"])
    listed = api.get("/slices").data
    assert listed.keys() == {"schema", "items", "total", "next"}
    assert api.get("/plan").data["schema"] == "windlass.plan/v1"
    assert api.get("/version", role=None).data.keys() == {"version", "schema_versions"}
    assert api.get("/whoami").data == {"name": "viewer", "role": "viewer"}


@pytest.mark.parametrize("path", ["/status", "/groups", "/slices", "/demands", "/nodes", "/plan"])
def test_a_document_of_now_has_a_tag_and_is_sent_once(api: Served, path):
    first = api.get(path)
    assert first.headers["etag"] == f'"{first.headers["windlass-seq"]}"'
    again = api.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])


def test_a_frozen_group_has_the_way_out_to_resume_it(tmp_path):
    cluster = Cluster(tmp_path, CONFIG.replace("max_hourly_cost: 20", "max_hourly_cost: 4"))
    assert cluster.run("freeze", "gpu").exit_code in (0, 1)
    cluster.live(lambda world, controller: ticks(world, controller, 2))
    assert cluster.run("freeze", "gpu").exit_code == 0

    async def work_comes(world, controller):
        world.work.waiting = ["a"]
        await ticks(world, controller, 3)

    cluster.live(work_comes)
    with served(cluster, tmp_path) as api:
        [row] = api.get("/demands").data["items"]
        assert "resume gpu" in [way["change"] for way in row["unblocks"]]
        way = next(one for one in row["unblocks"] if one["change"] == "resume gpu")
        assert (way["buys"], way["for"]) == ({"gpu": 1}, {"a": 1})
        groups = {one["name"]: one for one in api.get("/groups").data["items"]}
        assert groups["gpu"]["next"]["code"] == "FROZEN"
        assert groups["dear"]["next"]["code"] == "BUDGET"


# -- problems ------------------------------------------------------------------------------------------------------

TABLE = """
400 bad-cursor bad-time
401 unauthenticated
403 forbidden origin-refused host-refused
404 unknown-name unknown-order not-found
409 already-ending not-frozen
410 too-old
413 too-large
415 not-json
422 invalid
429 rate-limited
503 too-many-streams journal-unavailable
"""


def test_every_problem_has_its_status():
    rows = [line.split() for line in TABLE.strip().splitlines()]
    expected = {name: int(status) for status, *names in rows for name in names}
    assert {name: TITLES[name][0] for name in expected} == expected


def test_a_journal_that_cannot_be_read_is_reported(tmp_path, monkeypatch):
    cluster = Cluster(tmp_path, CONFIG)
    cluster.live(one_waits)

    def broken(*_):
        raise JournalError("disk I/O error")

    monkeypatch.setattr(feed_module, "leader_of", broken)
    with served(cluster, tmp_path) as api:
        for path in ("/status", "/slices", "/events", "/why?name=gpu", "/stream", "/plan", "/settings"):
            answer = api.get(path)
            assert (answer.status, answer.problem) == (503, "journal-unavailable")
            assert "disk I/O error" in answer.data["detail"]
            assert int(answer.headers["retry-after"]) > 0
        assert api.call("GET", "/healthz", role=None).status == 200
        ready = api.call("GET", "/readyz", role=None)
        assert (ready.status, ready.body) == (503, b"the journal cannot be read\n")


def test_a_leader_that_makes_no_passes_is_not_ready(tmp_path):
    cluster = Cluster(tmp_path, CONFIG)
    cluster.live(one_waits)
    now = [0.0]
    with served(cluster, tmp_path) as api:

        async def story(world, controller):
            measure(controller, api.server.metrics, lambda: now[0])
            assert api.call("GET", "/readyz", role=None).status == 200
            await world.tick(controller, 1)
            assert api.call("GET", "/readyz", role=None).status == 200
            now[0] += 3 * world.settings.policy.evaluation_interval.max + 0.1
            ready = api.call("GET", "/readyz", role=None)
            assert ready.status == 503
            assert b"last pass" in ready.body
            await world.tick(controller, 1)
            assert api.call("GET", "/readyz", role=None).status == 200

        cluster.live(story)


# -- who may -------------------------------------------------------------------------------------------------------


def test_a_session_lasts_twelve_hours_and_outlives_the_server(tmp_path):
    cluster = Cluster(tmp_path, CONFIG)
    cluster.live(one_waits)
    with served(cluster, tmp_path) as api:
        answer = api.post("/session", {"token": api.secrets["operator"]}, role=None)
        assert "Max-Age=43200" in answer.headers["set-cookie"]
        assert "Secure" not in answer.headers["set-cookie"]
        cookie = answer.headers["set-cookie"].partition(";")[0]
    with served(cluster, tmp_path) as api:
        assert api.get("/whoami", role=None, headers={"Cookie": cookie}).data["name"] == "operator"
        left = api.call("DELETE", "/api/v1/session", role=None, headers={"Origin": f"http://{api.host}"})
        assert left.status == 204
        assert "Max-Age=0" in left.headers["set-cookie"]


def test_wrong_tokens_at_the_login_count_too(tmp_path):
    cluster = Cluster(tmp_path, CONFIG)
    cluster.live(one_waits)
    with served(cluster, tmp_path) as api:
        body = {"token": "wlo_this-is-not-a-token-of-ours"}
        answers = [api.post("/session", body, role=None).status for _ in range(11)]
    assert answers == [401] * 10 + [429]


def test_behind_a_proxy_the_forwarded_scheme_and_allowed_names_count(tmp_path):
    cluster = Cluster(tmp_path, CONFIG)
    cluster.live(one_waits)
    names = {"behind_proxy": True, "allowed_hosts": ("windlass.example",), "allowed_origins": ("https://ops.example",)}
    with served(cluster, tmp_path, **names) as api:
        headers = {"Host": "windlass.example", "X-Forwarded-Proto": "https"}
        answer = api.post("/session", {"token": api.secrets["operator"]}, role=None, headers=headers)
        assert "Secure" in answer.headers["set-cookie"]
        headers["Cookie"] = answer.headers["set-cookie"].partition(";")[0]
        body = {"what": "freeze", "subject": "gpu"}
        for origin, status in (
            ("https://windlass.example", 202),
            ("https://ops.example", 202),
            ("http://windlass.example", 403),
            ("https://evil.example", 403),
        ):
            assert api.post("/orders", body, role=None, headers={**headers, "Origin": origin}).status == status, origin
        for host in ("windlass.example:443", "localhost", "127.0.0.1:1", "[::1]:80"):
            assert api.call("GET", "/healthz", role=None, headers={"Host": host}).status == 200, host
        assert api.call("GET", "/healthz", role=None, headers={"Host": "ops.example"}).status == 403


def test_the_token_file_is_private_and_read_again_when_it_changes(api: Served):
    path = api.server.tokens.path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    lines = [line.split() for line in path.read_text().splitlines()]
    assert [(role, name) for role, _, name in lines] == [("operator", "operator"), ("viewer", "viewer")]
    assert [secret[:4] for _, secret, _ in lines] == ["wlo_", "wlv_"]
    made = api.server.tokens.create("viewer", "grafana")
    assert api.get("/whoami", role=None, headers={"Authorization": f"Bearer {made.secret}"}).data["name"] == "grafana"
    api.server.tokens.revoke("grafana")
    assert api.get("/whoami", role=None, headers={"Authorization": f"Bearer {made.secret}"}).status == 401


def test_a_socket_file_is_for_its_owner_alone(tmp_path):
    cluster = Cluster(tmp_path, CONFIG)
    cluster.live(one_waits)
    path = tmp_path / "windlass.sock"
    with served(cluster, tmp_path, listen=Listen(path=str(path))):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(path))
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()


def test_it_serves_over_tls(tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("openssl is missing: apt install openssl")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = f"req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {cert} -days 2 -subj /CN=localhost"
    subprocess.run(
        ["openssl", *words.split(), "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True
    )
    cluster = Cluster(tmp_path, CONFIG)
    cluster.live(one_waits)
    with served(cluster, tmp_path, cert=str(cert), key=str(key)) as api:
        connection = http.client.HTTPSConnection(
            "localhost", api.port, context=ssl.create_default_context(cafile=str(cert)), timeout=30
        )
        body = json.dumps({"token": api.secrets["viewer"]})
        connection.request("POST", "/api/v1/session", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 204
        assert "Secure" in answer.headers["set-cookie"]
        assert "strict-transport-security" in {name.lower() for name in answer.headers}
        connection.close()


def test_files_of_tls_that_cannot_be_used_are_refused_with_their_place(tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    with pytest.raises(CannotListen, match=r"server.tls.cert: .* cannot be read: No such file"):
        check_certificate(str(cert), str(key))
    cert.write_text("x")
    with pytest.raises(CannotListen, match=r"server.tls.key: .* cannot be read: No such file"):
        check_certificate(str(cert), str(key))
    key.write_text("y")
    with pytest.raises(CannotListen, match="are not a certificate and its private key without a password"):
        check_certificate(str(cert), str(key))


# -- metrics -------------------------------------------------------------------------------------------------------

METRICS = """
windlass_build_info{version} windlass_leading windlass_epoch windlass_passes_total windlass_pass_seconds
windlass_last_pass_timestamp_seconds windlass_source_up{source} windlass_source_seconds windlass_slices{group,state}
windlass_slices_busy{group} windlass_slices_limit{group} windlass_waiting_tasks{code} windlass_oldest_wait_seconds
windlass_launches_total{group,code} windlass_refusals_total{group,code} windlass_releases_total{group,code}
windlass_lost_total{group,code} windlass_boot_seconds{group} windlass_group_available{group}
windlass_hourly_cost_dollars{group} windlass_hourly_cost_ceiling_dollars windlass_cost_dollars_total{group,account}
windlass_orders_total{what} windlass_alarms_total{kind} windlass_journal_records windlass_journal_bytes
windlass_append_seconds windlass_http_requests_total{route,method,status} windlass_http_request_seconds{route}
windlass_streams windlass_stream_resyncs_total windlass_notifications_total{outcome}
"""


def test_every_metric_is_there_with_its_labels(api: Served):
    api.get("/status")  # an answer that is counted
    text = api.call("GET", "/metrics").body.decode()
    for wanted in METRICS.split():
        name, _, labels = wanted.rstrip("}").partition("{")
        kind = re.search(rf"^# TYPE {name.removesuffix('_total')} (\w+)$", text, re.MULTILINE)
        assert kind, name
        if name == "windlass_source_seconds":
            continue  # of a controller in this process
        suffix = "_count" if kind[1] == "histogram" else ""
        samples = re.findall(rf"^{name}{suffix}(?:{{(.*)}})? ", text, re.MULTILINE)
        assert samples, name
        assert {part.partition("=")[0] for part in samples[0].split(",") if part} == set(
            filter(None, labels.split(","))
        )


def test_every_group_has_its_cost_and_boots_from_the_start(tmp_path):
    """A graph of a group that has no machine yet begins at 0, and does not begin with its first machine."""
    cluster = Cluster(tmp_path, CONFIG)
    cluster.live(lambda world, controller: ticks(world, controller, 1))
    with served(cluster, tmp_path) as api:
        text = api.call("GET", "/metrics").body.decode()
    for account in ("work", "booting", "idle", "spare", "draining", "ending"):
        assert f'windlass_cost_dollars_total{{account="{account}",group="dear"}} 0.0' in text
    assert 'windlass_boot_seconds_bucket{group="dear",le="1.0"} 0.0' in text


def test_the_last_pass_of_a_quiet_controller_is_a_recent_one(tmp_path):
    """A pass that changes nothing is not recorded; the controller is alive all the same."""
    cluster = Cluster(tmp_path, CONFIG)
    cluster.live(lambda world, controller: ticks(world, controller, 1))
    with served(cluster, tmp_path) as api:
        last = r"^windlass_last_pass_timestamp_seconds (\S+)$"
        recorded = re.search(last, api.call("GET", "/metrics").body.decode(), re.MULTILINE)
        assert recorded
        assert float(recorded[1]) < time.time() - 60
        api.server.metrics.pass_age = lambda: 2.0
        running = re.search(last, api.call("GET", "/metrics").body.decode(), re.MULTILINE)
        assert running
        assert time.time() - 60 < float(running[1]) <= time.time() - 2


def test_the_grafana_dashboard_asks_for_metrics_that_are_there(api: Served):
    text = api.call("GET", "/metrics").body.decode()
    dashboard = (Path(__file__).resolve().parents[2] / "docs" / "grafana" / "windlass.json").read_text()
    asked = set(re.findall(r"windlass_\w+", dashboard))
    assert asked
    for name in asked - {"windlass_source_seconds_bucket"}:
        assert re.search(rf"^{name}(?:{{| )", text, re.MULTILINE), name


def test_from_the_200th_group_on_they_are_counted_together(tmp_path):
    groups = "\n".join(f"  g{number:03}: {{resources: {{gpu: 8}}, max: 2}}" for number in range(230))
    cluster = Cluster(
        tmp_path, CONFIG.partition("groups:")[0] + f"groups:\n{groups}\nproviders" + CONFIG.partition("providers")[2]
    )
    cluster.live(lambda world, controller: ticks(world, controller, 1))
    with served(cluster, tmp_path) as api:
        text = api.call("GET", "/metrics").body.decode()
    for name in (
        "windlass_slices",
        "windlass_slices_limit",
        "windlass_launches_total",
        "windlass_boot_seconds_count",
        "windlass_cost_dollars_total",
    ):
        found = set(re.findall(rf'^{name}{{.*group="([^"]+)"', text, re.MULTILINE))
        assert len(found) == 200
        assert "_other" in found
    assert 'windlass_slices_limit{group="_other"} 62.0' in text
