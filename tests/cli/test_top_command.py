"""``windlass top`` on a real terminal."""

from __future__ import annotations

import sys
from io import StringIO

import pytest
from rich.console import Console

from tests.cli.clusters import Cluster, one_waits
from tests.cli.terminal import Terminal
from windlass.cli.commands.look.top import page


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path)
    made.live(one_waits)
    return made


def test_top_shows_the_cluster_and_why_of_the_chosen_row_and_fits_the_screen(cluster):
    terminal = Terminal(sys.executable, "-m", "windlass", "top", "-c", str(cluster.config))
    try:
        screen = terminal.shows("1 job waits", "one more", "AT_MAX", "machine", "q end")
        assert len(screen.rstrip("\n").split("\n")) <= 24
        assert all(len(line) <= 80 for line in screen.split("\n"))
        terminal.press("\n")
        screen = terminal.shows("Why d", "would help: ")
        assert len(screen.rstrip("\n").split("\n")) <= 24
        machine = cluster.data("status")["slices"][0]["id"]
        terminal.press("j")
        terminal.shows(f">  {machine}")
        terminal.press("\n")
        terminal.shows(f"Why {machine}", "started for ")
        terminal.press("k")
        terminal.shows(">  d ")
        terminal.press("q")
        assert terminal.end() == 0
    finally:
        terminal.close()


@pytest.mark.parametrize("width", [80, 200])
def test_long_names_are_cut_in_the_middle_and_numbers_never(cluster, width):
    status = cluster.data("status")
    machine, group = status["slices"][0], status["groups"][0]
    name = "a-group-with-a-name-that-leaves-no-room-for-anything-else-on-a-line"
    status["slices"] = [{**machine, "id": f"{name}-{number}", "use": 1.0, "tasks": 12345} for number in (7, 17, 27)]
    status["groups"] = [{**group, "name": name, "ready": 1234, "max": 5678, "hourly_cost": 23456.78}]
    status["headline"] = "3 machines."
    console = Console(width=width, height=40, record=True, file=StringIO())
    console.print(page(status, None, None, (width, 40)))
    lines = [line for line in console.export_text().splitlines() if line.lstrip().startswith("a-group")]
    assert len(lines) == 4
    assert all(len(line) <= width for line in lines)
    assert lines[0].split()[1:6] == ["1234", "0", "0", "5678", "$23,456.78"]
    words = [line.split() for line in lines[1:]]
    assert [one[0][-3:] for one in words] == ["e-7", "-17", "-27"]
    assert all(one[1] == machine["state"] and {"12345", "100%"} <= set(one) for one in words)


def test_a_group_without_a_price_costs_nothing_that_is_known(cluster):
    status = cluster.data("status")
    status["groups"] = [{**status["groups"][0], "price": None, "hourly_cost": 0.0}]
    console = Console(width=120, height=40, record=True, file=StringIO())
    console.print(page(status, None, None, (120, 40)))
    lines = [line.split() for line in console.export_text().splitlines()]
    assert next(words for words in lines if words[:1] == [status["groups"][0]["name"]])[5] == "-"


def test_top_without_a_terminal_says_what_to_use_instead(cluster):
    done = cluster.run("top")
    assert done.exit_code == 1
    assert "windlass status" in done.stderr
