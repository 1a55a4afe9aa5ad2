"""``windlass top`` on a real terminal."""

from __future__ import annotations

import sys

import pytest

from tests.cli.clusters import Cluster, one_waits
from tests.cli.terminal import Terminal


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


def test_top_without_a_terminal_says_what_to_use_instead(cluster):
    done = cluster.run("top")
    assert done.exit_code == 1
    assert "windlass status" in done.stderr
