"""Every page of the dashboard, in a real Chromium, over a real controller with local machines."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from .conftest import eventually

pytest.importorskip("fastapi", reason="the server is an extra: pip install '.[server]'")
pytestmark = [pytest.mark.browser, pytest.mark.slow]
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
PAGES = {
    "/": "page-overview",
    "/groups": "page-groups",
    "/slices": "page-slices",
    "/demand": "page-demand",
    "/decisions": "page-decisions",
    "/cost": "page-cost",
    "/what-if": "page-whatif",
}


def numbers(locator, name):
    return float(locator.get_attribute(f"data-{name}"))


def test_what_the_overview_shows_is_what_status_says(operator):
    operator.see("/", "page-overview")
    status = operator.cluster.get("/status")
    eventually(lambda: int(operator.get_by_test_id("app").get_attribute("data-seq")) >= status["seq"])
    status = json.loads(operator.cluster.command("status", "--json"))
    assert operator.get_by_test_id("headline").inner_text().startswith(status["headline"][:12])
    assert numbers(operator.get_by_test_id("figure-waiting"), "value") == status["summary"]["waiting_tasks"]
    assert numbers(operator.get_by_test_id("figure-machines"), "value") == status["summary"]["slices"]
    assert numbers(operator.get_by_test_id("figure-spend"), "value") == pytest.approx(status["hourly_cost"]["now"])
    for group in status["groups"]:
        row = operator.page.locator(f'[data-testid=group-row][data-group="{group["name"]}"]')
        assert int(row.get_attribute("data-ready")) == group["ready"]
        assert int(row.get_attribute("data-max")) == group["max"]
        assert row.get_attribute("data-next") == (group["next"]["code"] or "")
    shown = {row.get_attribute("data-demand") for row in operator.get_by_test_id("waiting-row").all()}
    assert shown == {demand["id"] for demand in status["demands"]}
    for chart in ("chart-demand", "chart-capacity", "chart-cost"):
        assert operator.get_by_test_id(chart).locator("canvas").count() == 1
    assert operator.get_by_test_id("live-state").get_attribute("data-state") == "live"
    assert operator.errors == []


def test_a_machine_that_is_killed_is_on_the_page_within_two_seconds(operator):
    cluster = operator.cluster
    operator.see("/slices", "lanes")
    victim = next(
        one for one in cluster.get("/status")["slices"] if one["state"] == "ready" and one["group"] == "small"
    )
    lane = operator.page.locator(f'[data-testid=lane][data-slice="{victim["id"]}"]')
    lane.wait_for()
    hosts = [
        pid
        for pid in (int(one.name) for one in Path("/proc").iterdir() if one.name.isdigit())
        if runs(pid, victim["id"])
    ]
    assert hosts
    for pid in hosts:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    seen_by_controller = eventually(lambda: gone(cluster, victim["id"]), 30, "the controller did not notice")
    began = time.monotonic()
    eventually(lambda: lane.count() == 0 or lane.get_attribute("data-state") != "ready", 10, "the page did not notice")
    assert seen_by_controller
    assert time.monotonic() - began < 2.0


def runs(pid: int, slice_id: str) -> bool:
    try:
        return slice_id.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def gone(cluster, name: str) -> bool:
    return all(one["id"] != name or one["state"] != "ready" for one in cluster.get("/status")["slices"])


def test_why_opens_for_a_machine_a_job_and_a_group_by_click_and_by_key(operator):
    operator.see("/", "page-overview")
    panel = operator.get_by_test_id("why-panel")
    operator.page.locator('[data-testid=waiting-row][data-demand="train"] .job').click()
    panel.wait_for()
    eventually(lambda: panel.get_attribute("data-kind") == "demand")
    assert operator.get_by_test_id("why-headline").inner_text()
    assert operator.get_by_test_id("why-unblocks").inner_text()
    operator.page.keyboard.press("Escape")
    eventually(lambda: panel.count() == 0)

    operator.page.locator('[data-testid=group-row][data-group="big"]').focus()
    operator.page.keyboard.press("w")
    eventually(lambda: panel.count() and panel.get_attribute("data-kind") == "group")
    assert panel.get_attribute("data-subject") == "big"
    operator.get_by_test_id("why-close").click()

    operator.see("/slices", "lanes")
    operator.get_by_test_id("lane").first.focus()
    operator.page.keyboard.press("Enter")
    eventually(lambda: panel.count() and panel.get_attribute("data-kind") == "slice")
    steps = [one.get_attribute("data-state") for one in operator.get_by_test_id("why-life-step").all()]
    assert steps[:2] in (["queued", "requesting"], ["requesting", "booting"])

    operator.page.keyboard.press("Escape")  # the closing panel does not take the focus out of the search
    operator.page.keyboard.press("/")
    operator.page.keyboard.type("big")
    operator.page.locator(".found a").first.wait_for()
    operator.page.keyboard.press("Enter")
    eventually(lambda: panel.count() and panel.get_attribute("data-subject") == "big")
    assert operator.errors == []


def test_drain_by_button_ends_the_machine_and_the_order_is_recorded(operator):
    cluster = operator.cluster
    idle = eventually(
        lambda: (
            [
                one
                for one in cluster.get("/status")["slices"]
                if one["state"] == "ready" and not one["tasks"] and one["group"] == "small"
            ]
            or None
        ),
        60,
        "no idle machine",
    )[0]["id"]
    operator.see(f"/slices?why={idle}", "why-panel")
    operator.get_by_test_id("command-drain").click()
    assert idle in operator.get_by_test_id("confirm-text").inner_text()
    assert "small then has" in operator.get_by_test_id("confirm-text").inner_text()
    operator.get_by_test_id("confirm-yes").click()
    outcome = operator.get_by_test_id("command-outcome")
    outcome.wait_for()
    eventually(lambda: outcome.get_attribute("data-heard") == "true")
    eventually(lambda: all(one["id"] != idle for one in cluster.get("/status")["slices"]), 60, "it did not end")
    events = cluster.command("events", "--subject", idle)
    assert f"operator (operator) over http from 127.0.0.1 asks: drain {idle}" in " ".join(events.split())


def test_freeze_and_resume_by_button(operator):
    operator.see("/groups", "page-groups")
    card = operator.page.locator('[data-testid=group-row][data-group="big"]')
    card.get_by_test_id("command-freeze").click()
    operator.get_by_test_id("confirm-yes").click()
    eventually(lambda: card.get_attribute("data-frozen"))
    alarm = operator.page.locator('[data-testid=alarm][data-kind="frozen"][data-subject="big"]')
    alarm.wait_for()
    alarm.get_by_test_id("command-resume").click()
    operator.get_by_test_id("confirm-yes").click()
    eventually(lambda: not card.get_attribute("data-frozen"))


def test_everything_is_resumed_by_button_and_asked_in_a_sentence(operator):
    operator.see("/", "page-overview")
    operator.cluster.command("freeze")
    alarm = operator.page.locator('[data-testid=alarm][data-kind="frozen"][data-subject="*"]')
    alarm.wait_for()
    alarm.get_by_test_id("command-resume").click()
    assert operator.get_by_test_id("confirm-text").inner_text().startswith("Resume everything? It is frozen by ")
    operator.get_by_test_id("confirm-yes").click()
    eventually(lambda: operator.cluster.get("/status")["frozen"] == {})
    alarm.wait_for(state="detached")


def test_a_family_is_one_row_with_its_offers_inside_and_is_frozen_by_its_name(operator):
    operator.see("/", "groups-table")
    row = operator.page.locator('[data-testid=family-row][data-family="fpga"]')
    row.wait_for()
    assert (row.get_attribute("data-groups"), row.get_attribute("data-max")) == ("2", "2")
    inside = row.get_by_test_id("group-row")
    assert not inside.first.is_visible()
    row.locator("summary").click()
    eventually(lambda: inside.first.is_visible())
    assert {one.get_attribute("data-group") for one in inside.all()} == {"fpga/spot", "fpga/on-demand"}

    row.focus()
    operator.page.keyboard.press("w")
    panel = operator.get_by_test_id("why-panel")
    eventually(lambda: panel.count() and panel.get_attribute("data-kind") == "family")
    offers = operator.get_by_test_id("why-groups").get_by_test_id("blocker").all()
    assert [one.get_attribute("data-group") for one in offers] == ["fpga/spot", "fpga/on-demand"]
    operator.page.keyboard.press("Escape")

    operator.see("/groups", "page-groups")
    row.get_by_test_id("command-freeze").click()
    assert "Freeze fpga?" in operator.get_by_test_id("confirm-text").inner_text()
    operator.get_by_test_id("confirm-yes").click()
    eventually(lambda: row.get_attribute("data-frozen"))
    assert all(one.get_attribute("data-frozen") and one.get_attribute("data-next") == "FROZEN" for one in inside.all())
    row.get_by_test_id("command-resume").click()
    operator.get_by_test_id("confirm-yes").click()
    eventually(lambda: not row.get_attribute("data-frozen"))
    assert operator.errors == []


def test_a_viewer_sees_no_button_and_is_refused(viewer):
    viewer.see("/groups", "page-groups")
    assert viewer.get_by_test_id("role").get_attribute("data-role") == "viewer"
    assert viewer.page.locator("[data-testid^=command-]").count() == 0
    status = viewer.page.evaluate(
        """() => fetch("/api/v1/orders", {method: "POST", headers: {"Content-Type": "application/json"},
                 body: JSON.stringify({what: "freeze", subject: "big"})}).then((answer) => answer.status)"""
    )
    assert status == 403


def test_a_wrong_token_is_refused_in_words(browser, cluster):
    page = browser.new_context().new_page()
    page.goto(cluster.url + "/slices")
    page.get_by_test_id("token-input").fill("wlo_this-is-none-of-ours")
    page.get_by_test_id("token-submit").click()
    assert "not known" in page.get_by_test_id("token-error").inner_text()
    page.get_by_test_id("token-input").fill(cluster.token("viewer"))
    page.get_by_test_id("token-submit").click()
    page.get_by_test_id("page-slices").wait_for()
    page.context.close()


def test_a_link_of_windlass_open_logs_in_once(browser, cluster):
    link = cluster.command("open", "--print").strip()
    page = browser.new_context().new_page()
    page.goto(link)
    page.get_by_test_id("page-overview").wait_for()
    assert page.get_by_test_id("role").get_attribute("data-role") == "operator"
    page.context.clear_cookies()
    page.goto(link)
    page.get_by_test_id("page-login").wait_for()
    page.context.close()


def test_the_past_is_shown_with_at(operator):
    first = operator.cluster.get("/events?after=0&limit=1")["events"][0]["at"]
    operator.see(f"/?at={first + 0.3:.3f}", "as-of")
    assert operator.get_by_test_id("live-state").get_attribute("data-state") == "past"
    eventually(lambda: numbers(operator.get_by_test_id("figure-waiting"), "value") == 0)
    for path, testid in PAGES.items():
        operator.page.get_by_test_id(f"nav-{testid.removeprefix('page-')}").click()
        operator.get_by_test_id(testid).wait_for()
        assert f"at={first + 0.3:.3f}" in operator.page.url, path
        assert operator.get_by_test_id("as-of").count() == 1
        assert operator.page.locator("[data-testid^=command-]").count() == 0
    operator.get_by_test_id("nav-overview").click()
    operator.get_by_test_id("go-live").click()
    eventually(lambda: operator.get_by_test_id("live-state").get_attribute("data-state") == "live")
    eventually(lambda: numbers(operator.get_by_test_id("figure-waiting"), "value") > 0)


def test_a_line_of_decisions_opens_its_pass(operator):
    operator.see("/decisions", "page-decisions")
    row = operator.page.locator("[data-testid=event-row][data-kind=launch]").first
    row.click()
    opened = operator.get_by_test_id("pass")
    opened.wait_for()
    seq = row.get_attribute("data-seq")
    assert opened.get_attribute("data-seq") == seq
    assert f"pass={seq}" in operator.page.url
    text = opened.inner_text()
    assert all(group["name"] in text for group in operator.cluster.get("/status")["groups"])
    for one in operator.cluster.get(f"/events?before={int(seq) + 1}&limit=1")["events"]:
        assert one["text"] in text
    row.click()
    eventually(lambda: opened.count() == 0)
    assert operator.errors == []


def test_names_of_machines_are_cut_in_the_middle_and_no_two_look_alike(operator):
    operator.page.set_viewport_size({"width": 390, "height": 844})
    operator.see("/slices", "lanes")
    operator.get_by_test_id("lane").first.wait_for()
    lanes = operator.get_by_test_id("lane").all()
    shown = [one.locator(".id").inner_text() for one in lanes]
    assert len(set(shown)) == len(shown)
    for lane in lanes:
        assert lane.locator(".id").get_attribute("title") == lane.get_attribute("data-slice")
        tail = lane.locator(".tail").bounding_box()
        track = lane.locator(".track").bounding_box()
        assert tail["x"] + tail["width"] <= track["x"] + 1


def test_the_rows_of_the_cost_page_add_up(operator):
    operator.see("/cost", "cost-total")
    assert numbers(operator.get_by_test_id("cost-check"), "difference") == 0
    total = numbers(operator.get_by_test_id("cost-total"), "value")
    cells = operator.page.locator('[data-testid=cost-cell][data-account="total"]').all()
    assert sum(float(one.get_attribute("data-value")) for one in cells) == pytest.approx(total, abs=1e-6)


def test_what_if_replays_the_recorded_time_under_other_settings(operator):
    operator.see("/what-if", "page-whatif")
    operator.get_by_test_id("whatif-set").fill("small.max=5")
    operator.get_by_test_id("whatif-add").click()
    operator.get_by_test_id("whatif-set").nth(1).fill("cluster.max_hourly_cost=20")
    operator.get_by_test_id("whatif-run").click()
    state = operator.get_by_test_id("whatif-state")
    eventually(lambda: state.count() and state.get_attribute("data-state") == "done", 120, "the replay did not end")
    dollars = operator.page.locator('[data-testid=whatif-row][data-measure="dollars"]')
    assert min(numbers(dollars, side) for side in ("recorded", "model", "changed")) > 0
    assert operator.get_by_test_id("whatif-assumptions").count() == 1
    assert operator.page.url.endswith("?set=small.max%3D5&set=cluster.max_hourly_cost%3D20")
    operator.page.reload()
    eventually(lambda: operator.get_by_test_id("whatif-set").count() == 2)
    assert operator.errors == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_every_page_has_no_error_and_axe_finds_nothing_serious(operator, theme, width):
    operator.page.set_viewport_size({"width": width, "height": 900})
    axe, bad = AXE.read_text(encoding="utf-8"), []
    for path, testid in PAGES.items():
        operator.see(f"{path}?theme={theme}", testid)
        operator.page.wait_for_timeout(300)
        operator.page.evaluate(axe)
        found = operator.page.evaluate("() => axe.run().then((answer) => answer.violations)")
        bad += [
            (path, one["id"], [node["html"][:120] for node in one["nodes"][:3]])
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        wide = operator.page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{path} is wider than the screen"
    assert bad == []
    assert operator.errors == []


@pytest.mark.parametrize("width", [1240, 1024, 768])
def test_the_bar_at_the_top_fits_every_width_and_leads_to_every_page(operator, width):
    operator.page.set_viewport_size({"width": width, "height": 800})
    operator.see("/", "page-overview")
    for path, testid in PAGES.items():
        operator.page.get_by_test_id(f"nav-{testid.removeprefix('page-')}").click()
        operator.get_by_test_id(testid).wait_for()
        wide = operator.page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{path} is wider than the screen"
        toggle = operator.get_by_test_id("theme-toggle").bounding_box()
        assert toggle["x"] + toggle["width"] <= width
    if width > 1000:
        assert operator.get_by_test_id("search").bounding_box()["width"] > 60


def test_a_document_that_cannot_be_loaded_says_so_in_words_and_is_loaded_again(operator):
    for path, testid, request in (
        ("/cost", "cost-total", "**/api/v1/accounts*"),
        ("/slices", "lane", "**/api/v1/lanes*"),
    ):
        operator.page.route(request, lambda route: route.abort("connectionrefused"))
        error = operator.see(path, "error")
        assert error.inner_text().startswith("The server does not answer.")
        assert operator.get_by_test_id("empty").count() == 0  # nothing is known, so nothing is said to be empty
        operator.page.unroute(request)
        operator.get_by_test_id(testid).first.wait_for()
        error.wait_for(state="detached")


def test_without_a_controller_charts_and_lanes_end_when_it_was_last_seen(operator):
    cluster = operator.cluster
    operator.see("/", "page-overview")
    eventually(lambda: operator.page.locator(".ticks span").last.inner_text() == "now")
    cluster.stop()
    try:
        cluster.start("serve")
        for path in ("/", "/slices"):
            operator.see(path, "leader")
            eventually(lambda: operator.get_by_test_id("leader").inner_text() == "no controller runs")
            seen = time.strftime("%H:%M:%S", time.localtime(cluster.get("/status")["as_of"]))
            operator.page.locator(".ticks span", has_text=seen).last.wait_for(timeout=60_000)
            assert operator.page.locator(".ticks span", has_text="now").count() == 0
    finally:
        cluster.stop()
        cluster.start()


def test_a_script_that_cannot_be_loaded_is_loaded_again(operator):
    failed: list[str] = []

    def once(route):
        if failed:
            route.continue_()
        else:
            failed.append(route.request.url)
            route.abort("failed")

    operator.page.route("**/store.js", once)
    operator.see("/groups", "page-groups")
    assert len(failed) == 1


def test_the_server_killed_and_started_again(operator):
    cluster = operator.cluster
    operator.see("/", "page-overview")
    cluster.stop(signal.SIGKILL)
    eventually(lambda: operator.get_by_test_id("live-state").get_attribute("data-state") == "reconnecting")
    cluster.start()
    eventually(lambda: operator.get_by_test_id("live-state").get_attribute("data-state") == "live")
    status = eventually(lambda: cluster.get("/status"))
    eventually(lambda: int(operator.get_by_test_id("app").get_attribute("data-seq")) >= status["seq"])
    assert numbers(operator.get_by_test_id("figure-machines"), "value") == cluster.get("/status")["summary"]["slices"]
