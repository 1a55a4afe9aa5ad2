"""What a pool tells while it works."""

from __future__ import annotations

import io

import pytest
from rich.console import Console as RichConsole

import windlass as wl
from windlass.pool.report.console import Lines, Live, Silent, console_of

from .processes import eventually
from .quick import quick_pool


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
        eventually(lambda: "nodes: 1 ready" in shown.getvalue(), 5, shown.getvalue)
        eventually(lambda: "/50" in shown.getvalue(), 5, shown.getvalue)
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


def test_a_console_of_ones_own():
    mine = Silent()
    assert console_of(mine) is mine
