"""The API over real HTTP: documents, roles, orders, errors."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable

import pytest

pytest.importorskip("fastapi", reason="the server is an extra: pip install '.[server]'")
pytest.importorskip("prometheus_client", reason="the server is an extra: pip install '.[server]'")

from tests.cli.clusters import Cluster, all_is_given_back, one_waits, ticks
from tests.server.served import Served, served
from windlass.core.explain import unblock as unblock_module
from windlass.journal import JournalFull
from windlass.server.access.guard import AccessRules, RequestGuard
from windlass.server.access.tokens import TokenFile

SECRET = "hunter2-planted"
CONFIG = f"""
cluster: {{max_hourly_cost: 20}}
groups:
  gpu:
    {{resources: {{gpu: 8}}, max: 2, price: 2.0, scale_down: {{idle_timeout: 60}},
      settings: {{api_key: {SECRET}, note: {SECRET}}}}}
  dear: {{resources: {{gpu: 8}}, max: 1, price: 9.0, scale_down: {{idle_timeout: 60}}}}
providers: {{cloud: {{type: simulated}}}}
workload: {{type: simulated}}
journal: journal.db
policy: {{vanish_timeout: 1s}}
"""


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    directory = tmp_path_factory.mktemp("api")
    cluster = Cluster(directory, CONFIG)
    cluster.live(one_waits)
    with served(cluster, directory) as found:
        yield found


@pytest.fixture
def fresh(tmp_path):
    cluster = Cluster(tmp_path, CONFIG)
    cluster.live(one_waits)
    with served(cluster, tmp_path) as found:
        yield found


# -- documents -----------------------------------------------------------------------------------------------------


def test_the_status_is_that_of_the_command_line(api: Served):
    there, here = api.get("/status").data, api.cluster.data("status")
    assert there.keys() == here.keys()
    for key in there.keys() - {"at", "bill"}:
        assert there[key] == here[key], key


def test_a_status_that_did_not_change_is_not_sent_again(api: Served):
    first = api.get("/status")
    assert first.headers["etag"] == f'"{first.data["seq"]}"'
    assert first.headers["windlass-seq"] == str(first.data["seq"])
    again = api.get("/status", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize("path", ["/status", "/groups", "/plan"])
@pytest.mark.parametrize("form", ["W/{}", '"1", {}', "*"])
def test_a_tag_may_be_weak_or_one_of_several(api: Served, path, form):
    tag = api.get(path).headers["etag"]
    assert api.get(path, headers={"If-None-Match": form.format(tag)}).status == 304
    assert api.get(path, headers={"If-None-Match": 'W/"1", "2"'}).status == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/login", "/", "/metrics", "/api/v1/status", "/api/v1/plan"])
def test_head_is_get_without_a_body(api: Served, path):
    asked, got = api.call("HEAD", path), api.call("GET", path)
    assert (asked.status, asked.body) == (200, b"")
    assert asked.headers["content-type"] == got.headers["content-type"]
    assert asked.headers["content-security-policy"] == got.headers["content-security-policy"]


def test_a_stream_has_no_head(api: Served):
    assert api.call("HEAD", "/api/v1/stream").status == 405
    assert api.call("HEAD", "/api/v1/status", role=None).status == 401


def test_a_time_in_the_future_is_no_time_of_the_past(api: Served):
    for path in ("/status?", "/slices?", "/why?name=gpu&"):
        answer = api.get(f"{path}at={time.time() + 3600}")
        assert (answer.status, answer.problem) == (400, "bad-time")
        assert "future" in answer.data["detail"]
    ahead = api.get(f"/status?at={time.time() + 5}").data  # a clock that is a little ahead of ours
    assert ahead["as_of"] <= time.time()


def test_a_moment_is_kept_only_when_all_of_its_records_are_written(fresh: Served):
    moment = time.time()
    before = fresh.get(f"/status?at={moment}").data
    fresh.cluster.world.time = moment - 1  # a pass that began before, and is written after it was asked for
    fresh.cluster.world.work.finish()
    fresh.cluster.live(lambda world, controller: ticks(world, controller, 1, 0.5))
    assert fresh.get(f"/status?at={moment}").data["seq"] > before["seq"]


def test_a_large_answer_is_compressed(api: Served):
    assert api.get("/status", headers={"Accept-Encoding": "gzip"}).headers["content-encoding"] == "gzip"
    assert "content-encoding" not in api.get("/status").headers


def test_why_is_that_of_the_command_line(api: Served):
    for name in ("d", "gpu", api.cluster.world.cloud.bought[0]):
        assert api.get(f"/why?name={name}").data == api.cluster.data("why", name)


def test_a_name_that_is_not_known_is_answered_with_the_nearest(api: Served):
    answer = api.get("/why?name=gpuu")
    assert (answer.status, answer.problem) == (404, "unknown-name")
    assert answer.data["did_you_mean"][0] == "gpu"


def test_a_group_that_the_ceiling_forbids_is_not_available(tmp_path):
    cluster = Cluster(tmp_path, CONFIG.replace("max_hourly_cost: 20", "max_hourly_cost: 5"))
    cluster.live(one_waits)
    with served(cluster, tmp_path) as api:
        rows = {row["name"]: row for row in api.get("/groups").data["items"]}
    assert rows["dear"]["availability"]["state"] == "available"
    assert rows["dear"]["next"]["code"] == "BUDGET"


def test_a_suggested_change_names_its_purchases_and_the_jobs_that_it_places(api: Served):
    [job] = [one for one in api.get("/demands").data["items"] if one["id"] == "d"]
    way = job["unblocks"][0]
    assert way["buys"] == {"gpu": 1} or way["buys"] == {"dear": 1}
    assert way["for"] == {"d": 1}


def test_why_finds_a_way_out_for_a_job_for_which_the_status_had_no_time(tmp_path, monkeypatch):
    """A plan tries a fixed number of changes, so with much waiting demand most rows of a status have no way out."""
    monkeypatch.setattr(unblock_module, "WORK", 0)
    cluster = Cluster(tmp_path, CONFIG)

    async def many_wait(world, controller) -> None:
        world.work.waiting = [f"job-{number}" for number in range(30)]
        await ticks(world, controller, 6)

    cluster.live(many_wait)
    with served(cluster, tmp_path) as api:
        without = [one["id"] for one in api.get("/status").data["demands"] if not one["unblocks"]]
        assert without
        for _ in range(2):
            assert api.get(f"/why?name={without[-1]}").data["demand"]["unblocks"]


def test_lists_are_filtered_sorted_and_paged(api: Served):
    every = api.get("/slices").data
    assert every["total"] == len(every["items"]) == 3
    assert api.get("/slices?group=gpu").data["total"] == 2
    assert api.get("/slices?state=draining").data["items"] == []
    down = [row["hourly_cost"] for row in api.get("/slices?sort=-hourly_cost").data["items"]]
    assert down == sorted(down, reverse=True)
    first = api.get("/slices?limit=2").data
    rest = api.get(f"/slices?limit=2&cursor={first['next']}").data
    assert [*first["items"], *rest["items"]] == every["items"]
    assert rest["next"] is None
    assert api.get("/nodes").data["total"] == 3


def test_events_have_the_number_of_their_pass_and_pages_lose_none(api: Served):
    whole = api.get("/events?limit=5000").data["events"]
    assert [one["seq"] for one in whole] == sorted(one["seq"] for one in whole)
    forward: list[dict] = []
    after = 0
    while True:
        page = api.get(f"/events?after={after}&limit=3").data
        forward += page["events"]
        if page["next"] == after:
            break
        after = page["next"]
    assert forward == whole
    backward: list[dict] = []
    before = None
    while True:
        page = api.get("/events?limit=3" + (f"&before={before}" if before else "")).data
        backward = page["events"] + backward
        before = page["previous"]
        if before is None:
            break
    assert backward == whole
    nothing = api.get("/events?before=0").data
    assert (nothing["events"], nothing["next"]) == ([], 0)  # which `after` takes
    assert api.get(f"/events?after={nothing['next']}&limit=5000").data["events"] == whole


def test_a_text_finds_machines_whatever_its_case(api: Served):
    name = api.get("/slices").data["items"][0]["id"]
    for path, key in (("/slices", "items"), ("/lanes", "slices")):
        found = api.get(f"{path}?q={name.upper()}").data[key]
        assert [one["id"] for one in found] == [name], path


def test_events_are_those_of_the_command_line(api: Served):
    done = api.cluster.run("events", "--limit", "1000", "--json")
    assert [json.loads(line) for line in done.stdout.splitlines()] == api.get("/events?limit=5000").data["events"]


def test_the_past_is_shown_as_it_was(tmp_path):
    cluster = Cluster(tmp_path, CONFIG)
    cluster.live(all_is_given_back)
    with served(cluster, tmp_path) as api:
        now = api.get("/status").data
        launched = [one["at"] for one in api.get("/events?kind=slice").data["events"] if " ready:" in one["text"]]
        then = api.get(f"/status?at={launched[0] + 0.5}").data
        assert then["summary"]["slices"] == 2
        assert now["summary"]["slices"] == 0
        lanes = api.get("/lanes?since=0").data["slices"]
        assert {lane["spans"][-1]["state"] for lane in lanes} == {"terminated"}
        assert all(lane["cost"] > 0 for lane in lanes)
        series = api.get("/series?since=0").data
        assert max(series["slices"]["ready"]) == 2
        assert {len(series[key]) for key in ("at", "busy", "hourly_cost", "ceiling")} == {len(series["at"])}


def test_a_status_as_of_an_event_has_the_event_in_it(api: Served):
    launch = next(one for one in api.get("/events?after=0&kind=launch").data["events"])
    then = api.get(f"/status?at={launch['at']!r}").data
    assert then["seq"] == launch["seq"]
    assert then["summary"]["coming"] > 0


def test_the_accounts_add_up_to_the_bill(tmp_path):
    cluster = Cluster(tmp_path, CONFIG)
    cluster.live(all_is_given_back)
    with served(cluster, tmp_path) as api:
        bill = api.get("/status").data["bill"]
        for by in ("group", "account", "job"):
            found = api.get(f"/accounts?by={by}").data
            assert found["difference"] == 0
            assert found["total"]["total"] == pytest.approx(bill["total"], abs=1e-8)
            assert sum(row["total"] for row in found["rows"]) == pytest.approx(bill["total"], abs=1e-8)


def test_the_settings_have_dollars_and_the_amounts_of_the_file(api: Served):
    settings = api.get("/settings").data["settings"]
    assert settings["cluster"]["max_hourly_cost"] == 20
    groups = {one["group"]["name"]: one["group"] for one in settings["groups"]}
    assert (groups["dear"]["price"], groups["dear"]["resources"]) == (9.0, {"gpu": "8"})


def test_a_planted_secret_is_in_no_answer(api: Served):
    for path in ("/settings", "/status", "/plan", "/groups", "/why?name=gpu", "/events", "/openapi.json"):
        assert SECRET.encode() not in api.get(path).body, path
    assert api.get("/settings").data["settings"]["groups"][0]["group"]["name"]


# -- who may -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/status", "/events", "/stream", "/settings", "/whoami", "/orders", "/doctor"])
def test_nothing_is_reported_without_a_token(api: Served, path):
    answer = api.get(path, role=None)
    assert (answer.status, answer.problem) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_a_page_without_a_session_leads_to_the_login(api: Served):
    answer = api.call("GET", "/slices?group=gpu", role=None)
    assert (answer.status, answer.headers["location"]) == (303, "/login?to=%2Fslices%3Fgroup%3Dgpu")


@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz", "/login", "/api/v1/version", "/api/v1/openapi.json", "/static/app.js"]
)
def test_health_login_and_static_files_need_no_token(api: Served, path):
    assert api.call("GET", path, role=None).status == 200


def test_a_page_that_does_not_exist_is_reported_by_a_page_to_a_browser_and_by_a_problem_to_others(api: Served):
    page = api.call("GET", "/nosuch", headers={"Accept": "text/html,application/xhtml+xml"})
    assert (page.status, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert page.body == api.call("GET", "/").body  # its script shows that there is no such page
    assert api.call("GET", "/nosuch").problem == "not-found"
    assert api.call("GET", "/api/v1/nosuch", headers={"Accept": "text/html"}).problem == "not-found"
    assert api.call("GET", "/static/nosuch", headers={"Accept": "text/html"}).problem == "not-found"


def test_ten_wrong_tokens_in_a_minute_are_enough(fresh: Served):
    wrong = {"Authorization": "Bearer wlo_this-is-not-a-token-of-ours"}
    answers = [fresh.get("/status", role=None, headers=wrong) for _ in range(11)]
    assert [one.status for one in answers] == [401] * 10 + [429]
    assert answers[-1].problem == "rate-limited"
    assert int(answers[-1].headers["retry-after"]) > 0


def test_a_viewer_changes_nothing(api: Served):
    answer = api.post("/orders", {"what": "freeze", "subject": "gpu"}, role="viewer")
    assert (answer.status, answer.problem) == (403, "forbidden")
    assert api.get("/orders").data["orders"] == []


def test_only_our_names_are_served(api: Served):
    for path in ("/", "/api/v1/status", "/healthz", "/static/app.js"):
        answer = api.call("GET", path, headers={"Host": "evil.example:80"})
        assert (answer.status, answer.problem) == (403, "host-refused")
    assert api.call("GET", "/healthz", headers={"Host": "localhost:1"}).status == 200


def session(api: Served, role: str = "operator") -> str:
    answer = api.post("/session", {"token": api.secrets[role]}, role=None)
    assert answer.status == 204
    value = answer.headers["set-cookie"]
    assert "HttpOnly" in value
    assert "samesite=strict" in value.lower()
    return value.partition(";")[0]


def test_a_session_reads_and_a_change_with_it_needs_our_origin(fresh: Served):
    cookie = session(fresh)
    assert fresh.get("/whoami", role=None, headers={"Cookie": cookie}).data == {"name": "operator", "role": "operator"}
    body = {"what": "freeze", "subject": "gpu"}
    none = fresh.post("/orders", body, role=None, headers={"Cookie": cookie})
    assert (none.status, none.problem) == (403, "origin-refused")
    other = fresh.post("/orders", body, role=None, headers={"Cookie": cookie, "Origin": "http://evil.example"})
    assert (other.status, other.problem) == (403, "origin-refused")
    ours = {"Cookie": cookie, "Origin": f"http://{fresh.host}"}
    assert fresh.post("/orders", body, role=None, headers=ours).status == 202


def test_a_session_ends_with_its_token(fresh: Served):
    cookie = session(fresh, "viewer")
    fresh.server.tokens.revoke("viewer")
    assert fresh.get("/whoami", role=None, headers={"Cookie": cookie}).status == 401


def test_a_login_link_works_once(fresh: Served):
    tokens = fresh.server.tokens
    code = tokens.link_code(tokens.tokens()[0], time.time())
    first = fresh.call("GET", f"/open?code={code}", role=None)
    assert (first.status, first.headers["location"]) == (303, "/")
    assert "windlass_session=" in first.headers["set-cookie"]
    again = fresh.call("GET", f"/open?code={code}", role=None)
    assert again.headers["location"].startswith("/login")
    assert "set-cookie" not in again.headers


def test_the_tokens_are_in_no_answer_and_not_in_the_journal(fresh: Served):
    fresh.post("/orders", {"what": "freeze", "subject": "gpu", "comment": "maintenance"})
    seen = b"".join(fresh.get(path).body for path in ("/orders", "/events", "/status", "/settings"))
    seen += fresh.call("GET", "/metrics").body
    seen += (fresh.cluster.config.parent / "journal.db").read_bytes()
    for secret in fresh.secrets.values():
        assert secret.encode() not in seen


def test_changes_per_minute_are_limited(tmp_path):
    cluster = Cluster(tmp_path, CONFIG)
    cluster.live(one_waits)
    with served(cluster, tmp_path, write_rate=3) as api:
        answers = [api.post("/orders", {"what": "freeze", "subject": "gpu"}).status for _ in range(4)]
    assert answers == [202, 202, 202, 429]


# -- orders --------------------------------------------------------------------------------------------------------


def test_an_order_is_in_the_journal_with_who_and_from_where(fresh: Served):
    given = fresh.post("/orders", {"what": "freeze", "subject": "gpu", "comment": "new image"})
    assert given.status == 202
    assert given.headers["location"] == f"/api/v1/orders/{given.data['seq']}"
    assert given.data["by"] == "operator (operator) over http from 127.0.0.1"
    assert given.data["heard"] is False
    assert fresh.get(f"/orders/{given.data['seq']}").data == given.data
    assert "operator (operator) over http from 127.0.0.1 asks: freeze gpu (new image)" in fresh.cluster.output("events")

    fresh.cluster.live(lambda world, controller: ticks(world, controller, 1))
    became = fresh.get(f"/orders/{given.data['seq']}").data
    assert became["heard"] is True
    assert became["outcome"].startswith("gpu is frozen by operator (operator) over http")


def test_the_last_order_counts_also_while_none_was_processed_yet(fresh: Served):
    given = [fresh.post("/orders", {"what": what, "subject": "gpu"}).status for what in ("freeze", "resume", "resume")]
    assert given == [202, 202, 409], "the second resume finds nothing that is or will be frozen"
    fresh.cluster.live(lambda world, controller: ticks(world, controller, 1))
    assert fresh.get("/status").data["frozen"] == {}


def test_the_same_key_is_the_same_order(fresh: Served):
    key = {"Idempotency-Key": "once"}
    first = fresh.post("/orders", {"what": "freeze", "subject": "gpu"}, headers=key).data
    again = fresh.post("/orders", {"what": "freeze", "subject": "gpu"}, headers=key).data
    assert first["seq"] == again["seq"]
    other = fresh.post("/orders", {"what": "freeze", "subject": "dear"}, headers=key)
    assert (other.status, other.problem) == (422, "invalid")
    assert len(fresh.get("/orders").data["orders"]) == 1


@pytest.mark.parametrize(
    ("body", "status", "problem"),
    [
        ({"what": "drain", "subject": "nothing"}, 404, "unknown-name"),
        ({"what": "freeze", "subject": "gpuu"}, 404, "unknown-name"),
        ({"what": "resume", "subject": "gpu"}, 409, "not-frozen"),
        ({"what": "explode", "subject": "gpu"}, 422, "invalid"),
        ({"what": "freeze"}, 422, "invalid"),
        ({"what": "freeze", "subject": "gpu", "more": 1}, 422, "invalid"),
        ([], 422, "invalid"),
        (b"{", 422, "invalid"),
        (b"x" * 70_000, 413, "too-large"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused_in_words(api: Served, body, status, problem):
    answer = api.post("/orders", body)
    assert (answer.status, answer.problem) == (status, problem)
    assert len(answer.data["detail"]) > 10


def test_what_is_not_json_is_refused(api: Served):
    answer = api.post("/orders", b"what=freeze", headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert (answer.status, answer.problem) == (415, "not-json")


def test_a_slice_that_is_gone_cannot_be_drained(tmp_path):
    cluster = Cluster(tmp_path, CONFIG)
    cluster.live(all_is_given_back)
    with served(cluster, tmp_path) as api:
        answer = api.post("/orders", {"what": "drain", "subject": cluster.world.cloud.bought[0]})
    assert (answer.status, answer.problem) == (409, "already-ending")


@pytest.mark.parametrize(
    ("path", "status", "problem"),
    [
        ("/status?at=yesterday", 400, "bad-time"),
        ("/status?at=nan", 400, "bad-time"),
        ("/slices?cursor=!!", 400, "bad-cursor"),
        ("/slices?cursor=WzUsIFtdXQ", 400, "bad-cursor"),
        ("/slices?limit=0", 422, "invalid"),
        ("/slices?sort=colour", 422, "invalid"),
        ("/why", 422, "invalid"),
        ("/orders/7", 404, "unknown-order"),
        ("/orders/x", 404, "unknown-order"),
        ("/nothing", 404, "not-found"),
        ("/what-if/nothing", 404, "not-found"),
        ("/accounts?by=moon", 422, "invalid"),
        ("/stream?topics=moon", 422, "invalid"),
        ("/status?at=5", 410, "too-old"),
    ],
)
def test_every_mistake_has_its_name(api: Served, path, status, problem):
    answer = api.get(path)
    assert (answer.status, answer.problem) == (status, problem)


def test_every_answer_has_the_security_headers(api: Served):
    for path in ("/api/v1/status", "/login", "/static/app.js", "/healthz", "/api/v1/nothing"):
        headers = api.call("GET", path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert ("no-store" in headers["cache-control"]) == (path != "/static/app.js")


def test_no_file_outside_of_the_static_folder_is_served(api: Served):
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/vendor/../../tokens.py", "/static//etc/passwd"):
        assert api.call("GET", path).status == 404


# -- what if, metrics ----------------------------------------------------------------------------------------------


def test_a_replay_is_run_in_the_background(api: Served):
    started = api.post("/what-if", {"set": ["gpu.max=3"]}, role="viewer")
    assert started.status == 202
    deadline = time.monotonic() + 60
    while (found := api.get(f"/what-if/{started.data['id']}").data)["state"] in ("waiting", "running"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert found["state"] == "done", found["problem"]
    assert found["answer"]["schema"] == "windlass.replay/v1"
    assert found["answer"]["what_if"]["changes"] == ["gpu.max=3"]
    assert api.call("DELETE", f"/api/v1/what-if/{started.data['id']}").status == 204
    assert api.get(f"/what-if/{started.data['id']}").status == 404


def test_a_replay_that_makes_no_sense_is_refused(api: Served):
    for body in ({}, {"set": ["--json"]}, {"set": "gpu.max=3"}, {"set": ["gpu.max=3"], "since": "x"}):
        answer = api.post("/what-if", body, role="viewer")
        assert (answer.status, answer.problem) == (422, "invalid")


def test_metrics_have_every_name_and_zeros_too(api: Served):
    text = api.call("GET", "/metrics").body.decode()
    for line in (
        'windlass_slices{group="gpu",state="ready"} 2.0',
        'windlass_slices{group="gpu",state="draining"} 0.0',
        'windlass_slices_limit{group="gpu"} 2.0',
        'windlass_waiting_tasks{code="AT_MAX"} 1.0',
        'windlass_waiting_tasks{code="STOCKOUT"} 0.0',
        "windlass_hourly_cost_ceiling_dollars 20.0",
        'windlass_launches_total{code="DEMAND",group="gpu"} 2.0',
        'windlass_orders_total{what="drain"} 0.0',
        "windlass_leading 0.0",
        'windlass_group_available{group="gpu"} 0.0',
        "windlass_stream_resyncs_total 0.0",
        'windlass_notifications_total{outcome="sent"} 0.0',
        'windlass_source_up{source="workload"} 1.0',
    ):
        assert line in text, line
    for name in (
        "build_info", "epoch", "passes_total", "pass_seconds", "last_pass_timestamp_seconds", "source_seconds",
        "slices_busy", "oldest_wait_seconds", "refusals", "releases", "lost", "boot_seconds", "hourly_cost_dollars",
        "cost_dollars_total", "alarms_total", "journal_records", "journal_bytes", "append_seconds",
        "http_requests_total", "http_request_seconds", "streams",
    ):  # fmt: skip
        assert f"windlass_{name}" in text, name
    assert text.endswith("# EOF\n")


def test_metrics_need_a_token_unless_they_are_open(tmp_path):
    cluster = Cluster(tmp_path, CONFIG)
    cluster.live(one_waits)
    with served(cluster, tmp_path) as api:
        assert api.call("GET", "/metrics", role=None).status == 401
    with served(cluster, tmp_path, metrics="open") as api:
        assert api.call("GET", "/metrics", role=None).status == 200


# -- under attack --------------------------------------------------------------------------------------------------


def test_readers_that_never_read_and_requests_that_never_end_keep_no_other_client_waiting(fresh: Served):
    head = f"HTTP/1.1\r\nHost: {fresh.host}\r\nAuthorization: Bearer {fresh.secrets['operator']}\r\n"
    attacks = [
        f"GET /api/v1/stream {head}\r\n",
        "GET /api/v1/status HTTP/1.1\r\nHost: 127",
        f"POST /api/v1/orders {head}Content-Type: application/json\r\nContent-Length: 1000000000\r\n\r\n{{",
    ]
    open_sockets = []
    try:
        for attack in attacks * 40:
            made = socket.create_connection(("127.0.0.1", fresh.port), 60)
            open_sockets.append(made)
            made.sendall(attack.encode())
        assert eventually(lambda: len(fresh.server.streams.readers) == 40)
        assert fresh.get("/status").status == 200
        assert fresh.post("/orders", {"what": "freeze", "subject": "gpu"}).status == 202
    finally:
        for one in open_sockets:
            one.close()
    fresh.cluster.live(lambda world, controller: ticks(world, controller, 1))
    assert eventually(lambda: fresh.get("/status").data["frozen"].keys() == {"gpu"})


def test_an_order_that_the_full_disk_refuses_is_reported_and_can_be_repeated(fresh: Served, monkeypatch):
    def full(*_entries, **_more):
        raise JournalFull("the disk is full: free some space")

    monkeypatch.setattr(fresh.server.feed.journal, "append", full)
    order = {"what": "freeze", "subject": "gpu"}, {"Idempotency-Key": "once"}
    refused = fresh.post("/orders", order[0], headers=order[1])
    assert (refused.status, refused.problem) == (503, "journal-unavailable")
    assert "the disk is full: free some space" in refused.data["detail"]
    assert fresh.get("/status").status == 200
    monkeypatch.undo()
    assert fresh.post("/orders", order[0], headers=order[1]).status == 202


def eventually(wanted: Callable[[], bool], within: float = 60.0) -> bool:
    end = time.monotonic() + within
    while not wanted():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_an_answer_that_a_stopping_server_waits_for_no_longer_is_a_problem_and_no_stack_trace(tmp_path):
    sent: list[dict] = []

    async def never(scope, receive, send) -> None:
        await asyncio.Event().wait()

    async def send(message) -> None:
        sent.append(message)

    async def receive() -> dict:
        return {"type": "http.request"}

    async def whole() -> None:
        guard = RequestGuard(never, TokenFile(tmp_path / "tokens"), AccessRules(frozenset()))
        scope = {"type": "http", "path": "/healthz", "method": "GET", "headers": [(b"host", b"localhost")], "state": {}}
        asked = asyncio.create_task(guard(scope, receive, send))
        await asyncio.sleep(0)
        asked.cancel()
        await asked

    asyncio.run(whole())
    assert [one.get("status") for one in sent if one["type"] == "http.response.start"] == [503]
    assert b"The server stops" in sent[-1]["body"]
