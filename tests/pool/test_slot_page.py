"""The memory that a slot shares with its node: whatever one process writes, the other reads whole."""

from __future__ import annotations

import os

from windlass.pool.transport.slot_page import SlotPage, entries

RESULTS = 60_000


def test_results_are_read_whole_and_in_order_while_they_are_written():
    """One process writes numbers as fast as it can and the other takes them out: a number of the page that could be
    read half written would give a result that was never put."""
    page = SlotPage.new()
    pid = os.fork()
    if not pid:
        for number in range(RESULTS):
            while not page.put(b"%d" % number * (1 + number % 7), 0.0):
                pass  # until the other process has made room
        os._exit(0)
    found = 0
    try:
        while found < RESULTS:
            for one in entries(page.take()[1]):
                assert one == b"%d" % found * (1 + found % 7)
                found += 1
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        page.close()
