"""Pools of real processes on this machine, carried by Dask."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import CancelledError
from functools import partial
from pathlib import Path

import pytest
from benchmarks.fresh import measured_afresh

import windlass as wl
from benchmarks import pool_crashes
from windlass.control.report.current import read_state
from windlass.control.report.events import lines
from windlass.journal import open_journal
from windlass.pool.report.console import Silent

from .processes import Program, eventually

pytestmark = pytest.mark.slow


@wl.compute
def square(value):
    return value * value


@wl.compute
def note_change(value, file, seconds):
    """Leaves a line for every start, with its node."""
    with Path(file).open("a", encoding="utf-8") as out:
        out.write(f"{value} {os.environ['WINDLASS_NODE']}\n")
    time.sleep(seconds)
    return value * 2


def starts(file: Path) -> list[tuple[int, str]]:
    lines = file.read_text(encoding="utf-8").split("\n")[:-1]
    return [(int(number), node) for number, _, node in (line.partition(" ") for line in lines)]


def quick_pool(nodes, **more):
    settings = {"autoscale_cooldown": 1.0, "autoscale_idle_timeout": 2.0, "reconcile_tick_interval": 1.0}
    return wl.ComputePool(wl.Local(), nodes, **{"console": False, **settings, **more})


@pytest.fixture(scope="module")
def pool():
    """A pool for all tests that leave it as it was."""
    with quick_pool(2, slots=2) as shared:
        yield shared


def test_200_tasks_grow_the_pool_shrink_it_and_run_exactly_once(tmp_path):
    file = tmp_path / "starts"
    sizes = []
    with quick_pool((1, 4)) as pool:
        for value in wl.gather(*[note_change(n, str(file), 0.05) for n in range(200)], stream=True) >> pool:
            sizes.append(pool.status().count("ready"))
            assert value == 2 * (len(sizes) - 1), "in order"
        eventually(lambda: pool.status().count("ready") == 1 and len(pool.status().nodes) == 1, 120, pool.status)
        assert wl.gather(*[square(n) for n in range(8)]) >> pool == [n * n for n in range(8)], "a second burst"
    assert Counter(number for number, _ in starts(file)) == Counter(range(200))
    assert max(sizes) == 4


def test_a_node_that_is_killed_while_busy_loses_no_task_and_is_replaced(tmp_path):
    file = tmp_path / "starts"
    with quick_pool(2) as pool:
        eventually(lambda: pool.status().count("ready") == 2, 120)
        future = wl.gather(*[note_change(n, str(file), 0.3) for n in range(20)]) > pool
        eventually(lambda: file.exists() and len(starts(file)) > 4, 120)
        victim = starts(file)[-1][1]
        for pid in pids_of_node(pool, victim):
            os.kill(pid, signal.SIGKILL)
        assert future.result(30) == [2 * n for n in range(20)]
        eventually(lambda: pool.status().count("ready") == 2, 120)
    seen = starts(file)
    again = {number for number, times in Counter(number for number, _ in seen).items() if times > 1}
    assert again <= {number for number, node in seen if node == victim}
    assert all(node != victim for number, node in seen if number in again and seen.index((number, node)) > 20)


def pids_of_node(pool, node):
    mark = f"WINDLASS_NODE={node}".encode()
    own = f"WINDLASS_DIRECTORY={pool.directory}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if mark in environment and own in environment:
                found.append(int(entry.name))
    return found


def test_every_way_to_run_a_task(pool):
    @wl.compute
    def count_to(limit):
        yield from range(limit)

    @wl.compute
    def rank():
        return os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["MASTER_ADDR"]

    assert square(3) >> pool == 9
    assert (square(3) & square(4)) >> pool == (9, 16)
    assert (square(5) > pool).result(60) == 25
    assert sorted(wl.gather(*map(square, range(9)), stream=True, ordered=False) >> pool) == [n * n for n in range(9)]
    assert list(count_to(4) >> pool) == [0, 1, 2, 3]
    assert square(6) @ pool == [36, 36]
    assert wl.gang(rank, size=3)() >> pool == [(str(n), "3", "127.0.0.1") for n in range(3)]
    assert list(pool.map(abs, [-1, -2])) == [1, 2]
    assert square.local(7) == 49
    with pool.as_executor() as executor:
        assert list(executor.map(pow, [2, 3], [3, 2])) == [8, 9]
        assert executor.submit(pow, 2, exp=5).result(60) == 32
    assert asyncio.run(used_with_asyncio(pool)) == (4, [1, 4], [9, 16])
    joblib = pytest.importorskip("joblib")
    with pool.as_joblib():
        assert joblib.Parallel()(joblib.delayed(abs)(-n) for n in range(50)) == list(range(50))


async def used_with_asyncio(pool):
    waiting = pool.as_asyncio()
    one = await waiting.run(square(2))
    many = await waiting.gather(square(1), square(2))
    return one, many, [value async for value in waiting.stream(square(3), square(4))]


def test_a_large_argument_is_sent_once_and_each_task_has_its_own_copy(pool):
    data = bytearray(4 << 20)

    @wl.compute
    def spoil(value, number):
        before = bytes(value[:1])
        value[0] = 1
        return before, len(value), number

    assert wl.gather(*[spoil(data, n) for n in range(6)]) >> pool == [(b"\0", 4 << 20, n) for n in range(6)]


def test_an_exception_comes_with_its_type_and_its_traceback_on_the_node(pool):
    class OwnError(Exception):
        pass

    @wl.compute
    def breaks():
        raise OwnError("here")

    with pytest.raises(OwnError, match="here") as caught:
        breaks() >> pool
    assert "in breaks" in str(caught.value.__cause__)


def test_a_task_that_runs_is_cancelled_and_its_node_stays(pool):
    future = pool.submit(time.sleep, 600)
    eventually(future.running, 60)
    before = [node.name for node in pool.status().nodes]
    assert pool.cancel(future) == 1
    with pytest.raises(CancelledError, match="was cancelled"):  # as other futures of Python
        future.result(60)
    assert square(2) >> pool == 4
    assert [node.name for node in pool.status().nodes] == before


def test_the_future_of_many_has_the_failure_not_what_was_cancelled_for_it(pool):
    @wl.compute
    def breaks():
        raise KeyError("the cause")

    future = wl.gather(wl.compute(time.sleep)(600), breaks()) > pool
    eventually(lambda: future.done() and not pool.status().running, 60, pool.status)
    assert isinstance(future.exception(), KeyError)


def test_a_line_is_shown_for_the_task_that_printed_it_also_in_a_batch():
    @wl.compute
    def speaks(number):
        if number % 100 == 7:
            subprocess.run(["echo", f"{number} from afar"], check=True)
            print(number, "unfinished", end="")
            print(number, "astray", file=sys.stderr, end="")
        return number

    heard = []

    class Ears(Silent):
        def on_output(self, task, stream, line):
            heard.append((task.label, stream, line))

    with quick_pool(2, console=Ears()) as pool:
        assert wl.gather(*[speaks(number) for number in range(2000)]) >> pool == list(range(2000))
    spoken = range(7, 2000, 100)
    assert sorted(heard) == sorted(
        (f"speaks#{number + 1}", stream, f"{number} {line}")
        for number in spoken
        for stream, line in (("stdout", "from afar"), ("stdout", "unfinished"), ("stderr", "astray"))
    )


def test_two_pools_at_once_do_not_disturb_each_other():
    def used(answers, offset):
        with quick_pool((1, 2)) as pool:
            tasks = [square(n + offset) for n in range(20)]
            answers[offset] = wl.gather(*tasks) >> pool

    answers: dict[int, list[int]] = {}
    threads = [threading.Thread(target=used, args=(answers, offset)) for offset in (0, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    assert answers == {offset: [(n + offset) ** 2 for n in range(20)] for offset in (0, 100)}


def test_a_pool_that_is_closed_leaves_nothing_behind():
    with quick_pool(2) as pool:
        square(2) >> pool
        directory = pool.directory
        assert processes_of(directory)
    assert processes_of(directory) == []
    assert not directory.exists()
    with pytest.raises(Exception, match="the pool is closed"):
        square(2) >> pool


def test_a_program_leaves_nothing_in_the_directory_for_temporary_files(tmp_path):
    text = "import windlass as wl\nwith wl.ComputePool(nodes=1, console=False) as pool: pool.submit(abs, -1).result()"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", text], env=environment, timeout=120, check=False)
    assert done.returncode == 0
    assert list(tmp_path.rglob("*")) == []


def processes_of(directory: Path) -> list[str]:
    mark = f"WINDLASS_DIRECTORY={directory}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and mark in (entry / "environ").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found


BUSY = """
import time
import windlass as wl

if __name__ == "__main__":
    with wl.ComputePool(wl.Local(), 2, console=False) as pool:
        tasks = [wl.compute(time.sleep)(600) for _ in range(4)]
        futures = [task > pool for task in tasks]
        while sum(future.running() for future in futures) < 2:
            time.sleep(0.05)
        print("busy", flush=True)
        futures[0].result()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_program_that_is_killed_leaves_no_process_behind(tmp_path, number):
    program = Program(tmp_path, BUSY)
    try:
        eventually(lambda: "busy" in program.said(), 120, program.said)
        assert len(program.processes()) > 4
        os.kill(program.process.pid, number)
        eventually(lambda: not program.processes(), 120, program.processes)
        assert program.process.wait() != 0
    finally:
        program.close()


@pytest.mark.alone
def test_a_crash_is_reported_within_twice_the_time_of_loky_and_buys_no_node():
    pytest.importorskip("joblib", reason="needs joblib: pip install '.[bench]'")
    missed: list[str] = []
    for _ in range(3):  # both are measured on the same machine, which may be busy in one of the two halves
        mine = measured_afresh(pool_crashes.NAME, "with_windlass", runs=3, retries=0)
        assert mine["bought"] == 0
        rows = [{"who": "Windlass", **mine}, {"who": "loky", **measured_afresh(pool_crashes.NAME, "with_loky", runs=3)}]
        missed = [f"{one['what']}: {one['shown']}" for one in pool_crashes.checks(rows) if not one["reached"]]
        if not missed:
            return
    pytest.fail(f"slower than {pool_crashes.MOST:g} times loky: {missed}")


STARTS = """
import faulthandler, sys, time
import windlass as wl

if __name__ == "__main__":
    faulthandler.dump_traceback_later(50)  # in the output of a program that hangs
    pool = wl.ComputePool(wl.Local(), 2, console=False)
    print("go", flush=True)
    try:
        with pool:
            wl.compute(time.sleep)(600) >> pool
    except KeyboardInterrupt:
        print("stopped", flush=True)
"""


STARTS_ONLY = """
import faulthandler
import windlass as wl

if __name__ == "__main__":
    faulthandler.dump_traceback_later(50)
    pool = wl.ComputePool(wl.Local(), 2, console=False)
    print("go", flush=True)
    pool.start()
    print("up", flush=True)
"""


def test_ctrl_c_while_a_pool_starts_prints_no_traceback_and_leaves_nothing(tmp_path):
    plain = Program(tmp_path, STARTS_ONLY)
    programs = [*(Program(tmp_path, STARTS) for _ in range(4)), plain]
    try:
        for program, pause in zip(programs, (0.0, 0.02, 0.1, 0.4, 0.0), strict=True):
            eventually(partial(lambda one: "go" in one.said(), program), 60, program.said)
            time.sleep(pause)  # any moment of the start will do: each is another one
            os.kill(program.process.pid, signal.SIGINT)
        for program in programs:
            eventually(partial(lambda one: not one.processes(), program), 60, program.said)
            if program is not plain:
                assert program.said().split() == ["go", "stopped"]
            else:
                assert "host.py" not in program.said(), "no line of Windlass itself is shown"
    finally:
        for program in programs:
            program.close()


def test_a_pool_is_looked_at_from_another_terminal(tmp_path):
    def output(*words):
        command = [sys.executable, "-m", "windlass", *words, "-c", str(tmp_path / "kept" / "windlass.yaml")]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    with quick_pool((1, 2), directory=tmp_path / "kept") as pool:
        square(2) >> pool
        eventually(lambda: pool.status().count("ready") == 1, 10)
        name = pool.status().nodes[0].name
        status, why = output("status"), output("why", name)
        assert name in status.stdout, status
        assert "pool keeps at least 1 machine" in why.stdout, why
        refused = subprocess.run(
            [sys.executable, "-m", "windlass", "run", str(tmp_path / "kept" / "windlass.yaml")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "the tasks of a pool are in the program that made it" in refused.stderr


def test_nodes_that_cannot_start_are_reported_with_their_last_output(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.exit('no licence for this machine')\n")
    image = wl.Image(includes=[tmp_path / "sitecustomize.py"])
    with quick_pool((0, 1), image=image) as pool, pytest.raises(Exception, match="3 nodes in a row") as caught:
        square(2) >> pool
    assert "Its last output: SystemExit: no licence for this machine" in str(caught.value)


def test_a_journal_that_is_kept_explains_the_pool_afterwards(tmp_path):
    with quick_pool((0, 2), directory=tmp_path / "kept") as pool:
        square(2) >> pool
    with open_journal(str(tmp_path / "kept" / "journal.db"), create=False) as journal:
        output = [line.text for line in lines(journal.read())]
        left = read_state(journal).fleet.slices
    assert any("launch 1 machine of pool: no room was left for 1 task of square" in text for text in output)
    assert any("the program, which closes the pool, asked to drain it" in text for text in output)
    assert left == {}
