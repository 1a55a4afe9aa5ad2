"""The memory that a slot shares with its node: the reader gets every write completely."""

from __future__ import annotations

import os

import pytest

from windlass.pool.transport.serialization import ItemResult, result_entry, unpack_entries, unpack_results
from windlass.pool.transport.slot_page import SlotPage

RESULTS = 60_000


def test_results_are_read_whole_and_in_order_while_they_are_written():
    """One process writes numbers as fast as it can and the other takes them out: a number of the page that could be
    read half written would give a result that was never put."""
    page = SlotPage.new()
    pid = os.fork()
    if not pid:
        for number in range(RESULTS):
            while not page.put(result_entry(str(number) * (1 + number % 7)), 0.0):
                pass  # until the other process has made room
        os._exit(0)
    found = 0
    try:
        while found < RESULTS:
            for one in unpack_entries(page.take()[1]):
                assert one == str(found) * (1 + found % 7)
                found += 1
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        page.close()


@pytest.mark.parametrize(
    "told",
    [
        0,
        -(2**40),
        1.5,
        True,
        None,
        "",
        "word" * 50,
        b"",
        b"raw" * 40,
        ItemResult("value", b"x" * 100_000),
        ItemResult("error", b"pickled", "a traceback, a traceback"),
    ],
    ids=repr,
)
def test_every_kind_of_result_comes_out_of_entries_as_it_went_in(told):
    """Two of a kind next to each other: entries are parts of one pickle, and none may refer to what is in another."""
    others = ["first", "first", ItemResult("value", b"first"), ItemResult("value", b"first")]
    entries = b"".join(map(result_entry, [told, *others, told, told]))
    found = unpack_results(unpack_entries(entries))
    assert found == [told, *others, told, told]
    assert [type(one) for one in found] == [type(one) for one in [told, *others, told, told]]
