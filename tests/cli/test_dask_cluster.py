"""``windlass run`` beside a Dask scheduler of the user's own, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client

from tests.cli.test_live_cluster import Running, eventually, leading

CONFIG = """
groups:
  small: {{resources: {{cpu: 2}}, max: 2, price: 0.5, scale_down: {{idle_timeout: 1s}}}}
providers: {{here: {{type: local}}}}
workload: {{type: dask, scheduler: "{scheduler}"}}
policy: {{vanish_timeout: 0.2, evaluation_interval: {{min: 0.05, max: 0.5}}}}
"""
SCHEDULER = """
import sys
sys.modules["windlass"] = None  # a scheduler's machine need not have it
from distributed.cli.dask_scheduler import main
main()
"""

TASKS = 60


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[str]:
    contact = tmp_path / "scheduler.json"
    words = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
    process = subprocess.Popen(
        [sys.executable, "-c", SCHEDULER, *words, "--scheduler-file", str(contact)],
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    try:
        text = eventually(lambda: contact.read_text(encoding="utf-8") if contact.exists() else "")
        yield next(line.split('"')[3] for line in text.splitlines() if '"address"' in line)
    finally:
        process.kill()
        process.wait(10)


@pytest.fixture
def cluster(tmp_path: Path, scheduler: str) -> Iterator[Running]:
    with leading(tmp_path, CONFIG.format(scheduler=scheduler)) as found:
        yield found


def test_a_burst_from_no_node_to_all_and_back_to_none(cluster: Running, scheduler: str, tmp_path: Path) -> None:
    starts, go_on = tmp_path / "starts", tmp_path / "go on"

    def work(number: int) -> int:
        import time
        from pathlib import Path

        with Path(starts).open("a", encoding="utf-8") as marks:
            marks.write(f"{number}\n")
        while not Path(go_on).exists():
            time.sleep(0.02)
        return number * number

    assert "no problems" in cluster.output("doctor")
    with Client(scheduler, set_as_default=False) as client:
        assert not client.scheduler_info()["workers"]
        futures = client.map(work, range(TASKS), pure=False)
        status = cluster.until(lambda seen: any(one["tasks"] for one in seen["slices"]))
        assert status["hourly_cost"]["now"] <= 1.0
        assert "AT_MAX" in cluster.output("why", "work")
        assert "max of small" in cluster.output("plan", "--live")

        [busy] = [one["id"] for one in status["slices"] if one["tasks"]][:1]
        assert "the machine is never ended while they run" in cluster.output("why", busy)
        assert cluster.data("drain", busy)["heard"] is True
        go_on.touch()
        assert client.gather(futures) == [number * number for number in range(TASKS)]
        cluster.until(lambda seen: busy not in [one["id"] for one in seen["slices"]])

        kept = cluster.until(lambda seen: [one["code"] for one in seen["slices"]] == ["REQUESTED_CAPACITY"])
        assert client.gather(futures)[-1] == (TASKS - 1) ** 2, f"{kept} kept the results"
        del futures
        cluster.until(lambda seen: not seen["slices"])
        assert not client.scheduler_info()["workers"]
    assert Counter(starts.read_text(encoding="utf-8").split()) == {str(number): 1 for number in range(TASKS)}
    assert "stopped waiting" in cluster.output("why", "work")
    assert "the workload confirmed that nothing runs there" in cluster.output("events")
