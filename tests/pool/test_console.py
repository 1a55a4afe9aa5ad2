"""The status and the console of a pool."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console as RichConsole

import windlass as wl
from windlass.pool.errors import QueueTimeout
from windlass.pool.report import console
from windlass.pool.report.console import Lines, Live, Silent, console_of
from windlass.testing.fake_engine import FakeEngine

from .processes import eventually
from .quick import quick_pool
from .worlds import Machines


@wl.compute
def greet(name):
    print(f"hello {name}")
    return name


def test_plain_lines_show_changes_and_what_tasks_print():
    out, err = io.StringIO(), io.StringIO()
    with quick_pool((0, 2), console=Lines(out, err)) as pool:
        assert greet("you") >> pool == "you"
        eventually(out.getvalue, 5)
    assert out.getvalue() == "[greet#1] hello you\n"
    assert "launch 1 machine of pool: no room was left for 1 task of greet" in err.getvalue()


def test_a_task_that_never_ran_is_not_counted_as_done(monkeypatch):
    monkeypatch.setattr(console, "PROGRESS_EVERY", 0.0)
    engine, err = FakeEngine(), io.StringIO()
    with wl.ComputePool(Machines(engine, boot=600.0), (0, 1), engine=engine, console=Lines(err, err)) as pool:
        never = [greet.options(queue_timeout=0.1)(name) for name in "abc"]
        found = wl.gather(*never, return_exceptions=True) >> pool
    assert [type(one) for one in found] == [QueueTimeout] * 3
    assert "done" not in err.getvalue()


def test_progress_lines_count_tasks_that_ran_and_tasks_that_did_not(monkeypatch):
    monkeypatch.setattr(console, "PROGRESS_EVERY", 0.0)
    err = io.StringIO()
    progress = Lines(err=err).progress(3)
    progress.on_result(0)
    progress.on_failed(1)
    progress.on_result(2)
    said = [line.partition(" ")[2] for line in err.getvalue().splitlines()]
    assert said == ["1 of 3 tasks done", "2 of 3 tasks done, 1 failed"]


def test_silence_is_silent(capsys):
    with quick_pool(console=False) as pool:
        greet("you") >> pool
    assert capsys.readouterr() == ("", "")


def test_the_live_view_shows_nodes_tasks_progress_and_the_last_change():
    shown = io.StringIO()

    @wl.compute
    def waits(number):
        return number

    terminal = RichConsole(file=shown, force_terminal=True, width=160)
    with quick_pool((1, 2), console=Live(terminal)) as pool:
        stream = wl.gather(*[waits(n) for n in range(50)], stream=True) >> pool
        assert next(stream) == 0
        eventually(lambda: re.search("nodes: [12] ready", shown.getvalue()), 60, shown.getvalue)
        eventually(lambda: "/50" in shown.getvalue(), 60, shown.getvalue)
        greet("you") >> pool
        assert list(stream) == list(range(1, 50))
    text = shown.getvalue()
    assert "hello you" in text
    assert "last change: " in text


@pytest.mark.parametrize(
    ("given", "kind"), [(False, Silent), (None, Silent), ("silent", Silent), ("lines", Lines), ("live", Live)]
)
def test_a_console_by_its_name(given, kind):
    assert isinstance(console_of(given), kind)


def test_without_a_terminal_there_are_lines():
    assert isinstance(console_of("auto"), Lines)


def test_a_custom_console():
    mine = Silent()
    assert console_of(mine) is mine
