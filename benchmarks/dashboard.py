"""Measures the dashboard with 5,000 simulated machines and 1,000 waiting jobs, a real server, a real Chromium and 200
readers of the event stream.

- The controller makes a pass every 0.18 s and serves in its own process, as `windlass run --serve` does. A job runs for
  about 13 minutes. Readers and browser are processes of their own on the same computer.
- First paint: from the start of the navigation until the overview shows its headline.
- From commit to pixel: from the return of the journal's commit until the frame after the page has the record.
- A patch: the handler of one message with the rendering that follows from it.
- Page memory: the JavaScript heap after a collection, after an hour of patches (3,600 messages, as they were recorded,
  applied one after the other).
- 200 readers: CPU of the server's thread with readers minus that without, and resident memory likewise; a pass with
  readers against one without, medians of alternating rounds. These rows count as missed if the readers did not get 5
  messages a second.
- On a computer with other work, run it with real-time priority (`chrt -r 1`).
"""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import os
import random
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from windlass.config.server import Listen, ServerConfig
from windlass.control.controller import Controller
from windlass.control.settings import GroupSettings, Policy, Settings
from windlass.core.model.snapshot import Bundle, Demand, Group, ScaleDown, amounts
from windlass.journal import Journal, open_journal
from windlass.providers.protocol import Offering
from windlass.sim.cloud.machines import MachineKind
from windlass.sim.cloud.provider import SimulatedProvider
from windlass.sim.workload.jobs import Job
from windlass.sim.workload.workload import SimulatedWorkload

from .fresh import ROOT, measured_afresh
from .table import Table, number
from .targets import Check, at_least, at_most, below

NAME = "dashboard"
TITLE = "The dashboard"
SIZES = {"quick": (500, 100, 20, 200), "default": (5_000, 1_000, 200, 3_600)}
"""The number of machines, waiting jobs, readers, and patches in an hour."""
KINDS = 4
SECONDS_A_JOB = 780.0
"""The longest job in seconds; the ends are spread evenly over that time."""
WARM_UP = 60
PACE = 0.18
"""Seconds between two passes: a little more than the five messages a second that readers should get."""
RATE = 5.0
CHROMIUM = os.environ.get("WINDLASS_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


def measure(which: str = "default", say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    machines, waiting, readers, patches = SIZES.get(which, SIZES["default"])
    found = measured_afresh(
        "dashboard", "measured", machines=machines, waiting=waiting, readers=readers, patches=patches
    )
    for line in found["said"]:
        say(line)
    return {"name": NAME, "found": found, "checks": checks(found)}


def checks(found: dict[str, Any]) -> list[Check]:
    readers, rate = found["readers"], at_least("messages a second to each reader", round(found["messages"], 1), RATE)
    listed = [
        below("GET /status, gzipped", found["status_kb"], 100, "KB", 0),
        rate,
        *(
            _at_full_rate(one, rate)
            for one in (
                below(
                    f"{readers} readers at {RATE:g} messages a second: CPU of a core", found["readers_cpu"], 10, "%", 1
                ),
                below(f"{readers} readers: memory", found["readers_mb"], 40, "MB", 0),
                at_most(f"a pass with {readers} readers: longer by", found["pass_longer"], 5, "%", 1),
            )
        ),
    ]
    page = found.get("page")
    if page:
        listed += [
            below("first paint", page["first_paint"], 2, "s", 2),
            below("journal commit to pixel: p95", page["to_pixel_p95"], 0.5, "s", 2),
            below("a patch applied: p95", page["patch_p95"], 50, "ms", 0),
            below("page memory after an hour of patches", page["heap_mb"], 150, "MB", 0),
        ]
    return listed


def _at_full_rate(check: Check, rate: Check) -> Check:
    """A number about readers proves nothing if they got fewer messages than they should."""
    if rate["reached"]:
        return check
    return {**check, "shown": f"{check['shown']} at only {rate['shown']} messages a second", "reached": False}


def tables(result: dict[str, Any]) -> list[Table]:
    found = result["found"]
    page = found.get("page") or {}
    rows = [
        ("load average of the computer, which has other work", f"{found['load']:.1f}"),
        ("machines, jobs that wait", f"{number(found['machines'])}, {number(found['waiting'])}"),
        ("GET /status, gzipped", f"{found['status_kb']:.0f} KB of {found['status_mb']:.1f} MB"),
        ("to make a status and a patch, CPU of the feed's thread", f"{found['make_ms']:.0f} ms"),
        ("messages a second to each reader", f"{found['messages']:.1f}"),
        ("a pass, p50, without and with readers", f"{found['pass_ms']:.1f} ms, {found['pass_read_ms']:.1f} ms"),
        *((what, shown) for what, shown in _shown(page)),
    ]
    return [Table("Measured", ("what", "value"), tuple(rows))]


def _shown(page: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if not page:
        yield "the page", "not measured: Chromium or playwright is missing"
        return
    yield "first paint", f"{page['first_paint']:.2f} s"
    yield "commit to pixel, p50 and p95", f"{page['to_pixel_p50']:.2f} s, {page['to_pixel_p95']:.2f} s"
    yield "a patch, p50 and p95", f"{page['patch_p50']:.1f} ms, {page['patch_p95']:.1f} ms"
    yield "JavaScript heap at first, after the patches", f"{page['heap_first_mb']:.0f} MB, {page['heap_mb']:.0f} MB"


# -- the cluster and its server ------------------------------------------------------------------------------------


class World:
    """A controller over the simulated cloud, and the server of its journal."""

    def __init__(self, home: Path, machines: int, waiting: int) -> None:
        self.time = time.time() - WARM_UP
        self._live = False
        groups = [
            Group(
                f"kind-{kind}",
                amounts({"cpu": 16_000, f"kind-{kind}": 1_000}),
                max=machines // KINDS,
                price=(kind + 1) * 10**9,
                scale_down=ScaleDown(idle_timeout=60),
            )
            for kind in range(KINDS)
        ]
        kinds = [MachineKind(Offering(one.name, one.resources, 1, one.price), 20, 5, 0.2) for one in groups]
        self.cloud = SimulatedProvider(kinds, now=self.now, seed=1)
        jobs = list(self._jobs(machines + waiting, machines))
        self.work = SimulatedWorkload(groups, self.cloud.live_hosts, now=self.now, jobs=jobs, seed=1)
        policy = Policy(launch_rate=10**6, launch_concurrency=10**4, observe_timeout=10**6)
        self.settings = Settings(tuple(GroupSettings(one, "cloud") for one in groups), policy=policy)
        self.location = str(home / "journal.db")
        self.commits: list[tuple[int, float]] = []

    def now(self) -> float:
        return time.time() if self._live else self.time

    def _jobs(self, first: int, machines: int) -> Iterator[Job]:
        """So many at once, which end one by one, and from then on one for each that ends; each takes a whole machine of
        its kind."""
        dice, later = random.Random(1), int(3600 * machines / SECONDS_A_JOB)
        for index in range(first + later):
            arrives = self.time + (0.0 if index < first else (index - first) * SECONDS_A_JOB / machines)
            needs = amounts({"cpu": 1_000 * dice.choice((4, 8, 16)), f"kind-{index % KINDS}": 1_000})
            lasts = SECONDS_A_JOB * (dice.random() if index < first else 1.0)
            yield Job(Demand(f"job-{index}", (Bundle(needs),)), arrives, lasts, 0.5)

    async def warm(self, controller: Controller) -> None:
        """Simulate the time up to now, second by second."""
        while self.time < time.time():
            self.time += 1.0
            self.work.step()
            await controller.tick()
            await controller.actuator.settle()
        self._live = True

    def note_commits(self, journal: Journal) -> None:
        append = journal.append

        def noted(*args: Any, **more: Any) -> int:
            seq = append(*args, **more)
            self.commits.append((seq, time.time()))
            return seq

        journal.append = noted  # type: ignore[method-assign]

    async def passes(self, controller: Controller, until: Callable[[], bool]) -> list[float]:
        """Make passes at the pace until the condition holds; return the duration of each."""
        times = []
        while not until():
            began = time.perf_counter()
            self.work.step()
            before = time.perf_counter()
            await controller.tick()
            times.append(time.perf_counter() - before)
            await controller.actuator.settle()
            await asyncio.sleep(max(0.0, PACE - (time.perf_counter() - began)))
        return times


@contextmanager
def serving(world: World, home: Path, controller: Controller) -> Iterator[tuple[str, str, Any, Any]]:
    """The server of a world: its address, a token, the server and the thread that serves."""
    from windlass.server.access.tokens import TokenFile
    from windlass.server.api.service import Server
    from windlass.server.listener import HttpServer

    config = replace(ServerConfig(), listen=Listen(port=0), token_file=str(home / "tokens"), max_streams=1000)
    tokens = TokenFile(config.token_file)
    tokens.create_if_missing()
    with open_journal(world.location, create=False) as journal:
        server = Server(journal, world.location, config, lambda: world.settings, tokens)
        http = HttpServer(server)
        http.measure(controller)
        http.start()
        try:
            thread = next(one for one in threading.enumerate() if one.name == "windlass-server")
            yield http.url, tokens.tokens()[1].secret, server, thread
        finally:
            http.stop()


def measured(machines: int, waiting: int, readers: int, patches: int) -> dict[str, Any]:
    """Run in a separate process, with the garbage collector set as the command line sets it."""
    gc.set_threshold(50_000)
    with tempfile.TemporaryDirectory() as home:
        return asyncio.run(_measured(Path(home), machines, waiting, readers, patches))


async def _measured(home: Path, machines: int, waiting: int, readers: int, patches: int) -> dict[str, Any]:
    world, said = World(home, machines, waiting), []
    with open_journal(world.location) as journal:
        controller = Controller(world.settings, {"cloud": world.cloud}, world.work, journal, now=world.now)
        controller.start()
        await world.warm(controller)
        world.note_commits(journal)
        with serving(world, home, controller) as (url, token, server, thread):
            feed = next(one for one in threading.enumerate() if one.name == "windlass-feed")
            await world.passes(controller, _after(4))
            body, packed = await asyncio.to_thread(_status, url, token)
            status = json.loads(body)
            said.append(f"{len(status['slices']):,} machines, {len(status['demands']):,} jobs wait")
            made, began = len(server.feed.messages), _cpu(feed)
            await world.passes(controller, _after(10))
            make = (_cpu(feed) - began) / max(1, len(server.feed.messages) - made)
            rounds = [await _round(world, controller, url, token, thread, readers) for _ in range(3)]
            page = await _page(world, controller, url, token, patches)
    without, with_readers = ([one for each in rounds for one in each[key]] for key in ("without", "with"))
    alone, read = statistics.median(without), statistics.median(with_readers)
    return {
        "load": os.getloadavg()[0],
        "said": said,
        "machines": len(status["slices"]),
        "waiting": len(status["demands"]),
        "readers": readers,
        "status_kb": len(packed) / 1000,
        "status_mb": len(body) / 1e6,
        "make_ms": 1000 * make,
        "messages": statistics.median(each["messages"] for each in rounds),
        "readers_cpu": statistics.median(each["cpu"] for each in rounds),
        "readers_mb": max(each["memory"] for each in rounds),
        "pass_ms": 1000 * alone,
        "pass_read_ms": 1000 * read,
        "pass_longer": 100 * (read / alone - 1),
        "page": page,
    }


def _after(seconds: float) -> Callable[[], bool]:
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() > deadline


def _cpu(thread: threading.Thread) -> float:
    """Return the CPU seconds of a thread."""
    fields = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory() -> float:
    """Return the resident memory of this process in megabytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _status(url: str, token: str) -> tuple[bytes, bytes]:
    headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "gzip"}
    with urllib.request.urlopen(urllib.request.Request(f"{url}/api/v1/status", headers=headers)) as answer:
        packed = answer.read()
    return gzip.decompress(packed), packed


# -- readers -------------------------------------------------------------------------------------------------------


async def _round(
    world: World, controller: Controller, url: str, token: str, thread: threading.Thread, readers: int
) -> dict[str, Any]:
    seconds = 10.0
    cpu, began = _cpu(thread), time.monotonic()
    without = await world.passes(controller, _after(seconds))
    idle, memory = (_cpu(thread) - cpu) / (time.monotonic() - began), _memory()
    child = _child("read_streams", url=url, token=token, readers=readers)
    ready = asyncio.create_task(asyncio.to_thread(child.stdout.readline))
    await world.passes(controller, ready.done)
    cpu, began = _cpu(thread), time.monotonic()
    with_readers = await world.passes(controller, _after(seconds))
    used, lasted = _cpu(thread) - cpu, time.monotonic() - began
    grown = _memory() - memory
    ended = asyncio.create_task(asyncio.to_thread(child.communicate, "\n"))
    await world.passes(controller, ended.done)
    answer = json.loads(ended.result()[0])
    return {
        "without": without,
        "with": with_readers,
        "cpu": max(0.0, 100 * (used / lasted - idle)),
        "memory": max(0.0, grown),
        "messages": answer["rate"],
    }


def _child(function: str, **arguments: Any) -> subprocess.Popen[str]:
    paths = [str(ROOT), *(path for path in sys.path if path)]
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.fresh", "dashboard", function, json.dumps(arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


def read_streams(url: str, token: str, readers: int) -> dict[str, Any]:
    """Read streams until a line arrives on standard input; the first printed line says that all are open. The rate is
    that between the first and the last message of each reader, without those that were sent while others were opened.
    """
    host, _, port = url.removeprefix("http://").partition(":")
    request = f"GET /api/v1/stream HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    opened: list[socket.socket] = []
    for _ in range(readers):
        one = socket.create_connection((host, int(port)))
        one.sendall(request)
        assert b"200" in one.recv(4096)
        opened.append(one)
    print("open", flush=True)
    times: dict[socket.socket, list[float]] = {one: [] for one in opened}
    rests, began = dict.fromkeys(opened, b""), time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        for one in opened:
            selector.register(one, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if sys.stdin in ready:
                return {"rate": _rate([one for one in times.values() if len(one) > 1])}
            now = time.monotonic()
            for each in ready:
                assert isinstance(each, socket.socket)
                data = each.recv(1 << 18)
                if not data:
                    selector.unregister(each)
                found = rests[each] + data
                rests[each] = found[-len(b"\nevent: pass\n") + 1 :]
                if now - began > 0.5:
                    times[each] += [now] * found.count(b"\nevent: pass\n")


def _rate(times: list[list[float]]) -> float:
    """Return the messages per second of all readers."""
    return sum(len(one) - 1 for one in times) / sum(one[-1] - one[0] for one in times)


# -- the page ------------------------------------------------------------------------------------------------------

WATCH = """
window.__seen = []; window.__patches = []; window.__raw = [];
const add = EventSource.prototype.addEventListener;
EventSource.prototype.addEventListener = function (type, handler, ...more) {
  if (type !== "pass") return add.call(this, type, handler, ...more);
  window.__pass = (event) => {
    const began = performance.now();
    handler(event);
    setTimeout(() => window.__patches.push(performance.now() - began), 0);
  };
  return add.call(this, type, (event) => {
    if (window.__raw.length < 40) window.__raw.push(event.data);
    window.__pass(event);
  }, ...more);
};
new MutationObserver(() => {
  const app = document.querySelector("[data-testid=app]"), seq = Number(app?.dataset.seq);
  if (!seq || seq === window.__last) return;
  window.__last = seq;
  requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => window.__seen.push([seq, Date.now() / 1000]);
    channel.port2.postMessage(0);
  });
}).observe(document, { subtree: true, childList: true, attributes: true, attributeFilter: ["data-seq"] });
"""
HOUR = """
async (count) => {
  let seq = window.__last;
  for (let index = 0; index < count; index += 1) {
    const message = JSON.parse(window.__raw[index % window.__raw.length]);
    seq += 50;
    message.seq = seq;
    for (const one of message.events ?? []) one.seq = seq;
    window.__pass(new MessageEvent("pass", { data: JSON.stringify(message) }));
    if (index % 5 === 4) await new Promise((done) => { setTimeout(done, 0); });
  }
}
"""


async def _page(world: World, controller: Controller, url: str, token: str, patches: int) -> dict[str, Any] | None:
    if CHROMIUM is None:
        return None
    world.commits.clear()
    child = _child("look", url=url, token=token, patches=patches)
    ended = asyncio.create_task(asyncio.to_thread(child.communicate, None))
    await world.passes(controller, ended.done)
    answer = json.loads(ended.result()[0])
    if answer.get("missing"):
        return None
    delays = []
    for seq, committed in world.commits:
        shown = next((at for known, at in answer["seen"] if known >= seq), None)
        if shown is not None and answer["seen"][0][0] < seq:
            delays.append(shown - committed)
    delays.sort()
    times = sorted(answer["patches"])
    return {
        "first_paint": answer["first_paint"],
        "to_pixel_p50": delays[len(delays) // 2],
        "to_pixel_p95": delays[int(len(delays) * 0.95)],
        "patch_p50": times[len(times) // 2],
        "patch_p95": times[int(len(times) * 0.95)],
        "heap_first_mb": answer["heap_first"] / 1e6,
        "heap_mb": answer["heap"] / 1e6,
    }


def look(url: str, token: str, patches: int) -> dict[str, Any]:
    """Open the overview in Chromium, watch it for a while, and apply an hour of patches."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return {"missing": True}
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        page = context.new_page()
        page.goto(f"{url}/login")
        page.get_by_test_id("token-input").fill(token)
        page.get_by_test_id("token-submit").click()
        page.get_by_test_id("headline").wait_for(timeout=60_000)
        page.add_init_script(WATCH)
        paints = []
        for _ in range(3):
            page.goto(f"{url}/", wait_until="commit")
            page.get_by_test_id("headline").wait_for(timeout=60_000)
            paints.append(page.evaluate("() => performance.now()") / 1000)
        page.wait_for_timeout(20_000)
        seen, times = page.evaluate("() => [window.__seen, window.__patches]")
        session = context.new_cdp_session(page)
        first = _heap(session)
        page.evaluate(HOUR, patches)
        page.wait_for_timeout(500)
        last = _heap(session)
        browser.close()
    return {"first_paint": statistics.median(paints), "seen": seen, "patches": times, "heap_first": first, "heap": last}


def _heap(session: Any) -> float:
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "JSHeapUsedSize"))
