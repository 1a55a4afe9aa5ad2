"""A wait of a pool ends with Ctrl-C, also with one whose signal interrupts no system call of the main thread."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from types import FrameType
from typing import Any

import pytest

import windlass as wl
from windlass._interrupts import print_no_traceback
from windlass.pool import waits
from windlass.pool.client.futures import TaskFuture
from windlass.pool.loop_thread import LoopThread
from windlass.pool.waits import next_of, wait_for_event, wait_for_future
from windlass.testing.fake_engine import FakeEngine

from .worlds import Machines

Wait = tuple[Callable[[], Any], Callable[[], Any]]
"""A wait, and what ends it."""
WATCHDOG = 60.0
"""Seconds after Ctrl-C until the watchdog ends the wait, and the test fails instead of hanging."""


def an_event() -> Wait:
    event = threading.Event()
    return lambda: wait_for_event(event), event.set


def a_future() -> Wait:
    future = Future[None]()
    return lambda: wait_for_future(future), lambda: future.set_result(None)


def a_queue() -> Wait:
    queue = SimpleQueue[None]()
    return lambda: next_of(queue), lambda: queue.put(None)


def a_result() -> Wait:
    future = TaskFuture(lambda _: None)
    return future.result, lambda: future.on_ended(None)


def a_busy_loop() -> Wait:
    free = threading.Event()

    def ask() -> None:
        loop = LoopThread("busy")
        try:
            loop.ask(free.wait)
        finally:
            free.set()
            loop.stop()

    return ask, free.set


@pytest.mark.parametrize("made", [an_event, a_future, a_queue, a_result, a_busy_loop])
def test_ctrl_c_that_another_thread_receives_ends_the_wait(made: Callable[[], Wait]) -> None:
    main = threading.main_thread()
    assert threading.current_thread() is main, "signal handlers run in the main thread"
    wait, end = made()
    over, hung = threading.Event(), threading.Event()

    def press() -> None:
        until = time.monotonic() + WATCHDOG
        while not _is_in(waits.__file__, sys._current_frames()[main.ident]):  # type: ignore[index]
            if time.monotonic() > until:
                hung.set()
                end()
                return
            time.sleep(0.01)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        if not over.wait(WATCHDOG):
            hung.set()
            end()

    def wait_under_ctrl_c() -> None:
        threading.Thread(target=press, daemon=True).start()
        wait()

    try:
        with pytest.raises(KeyboardInterrupt):
            wait_under_ctrl_c()
    finally:
        over.set()
    assert not hung.is_set(), f"the wait went on for {WATCHDOG:g} s after Ctrl-C"


def test_work_that_ctrl_c_interrupts_ends_in_order_before_its_loop_is_stopped() -> None:
    ended = []

    async def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.1)
            ended.append("in order")

    loop = LoopThread("interrupted")
    with pytest.raises(KeyboardInterrupt):
        loop.do(work())
    loop.stop()
    assert ended == ["in order"]


def _is_in(file: str, frame: FrameType | None) -> bool:
    return frame is not None and (frame.f_code.co_filename == file or _is_in(file, frame.f_back))


def test_an_interrupted_start_prints_one_line_and_gives_the_excepthook_back(monkeypatch, capsys):
    seen: list[BaseException] = []

    def own_hook(_kind, error, _trace):
        seen.append(error)

    monkeypatch.setattr(sys, "excepthook", own_hook)
    interrupt, other = KeyboardInterrupt(), ValueError("of the program")
    print_no_traceback(interrupt)
    sys.excepthook(KeyboardInterrupt, interrupt, None)
    assert capsys.readouterr().err.startswith("interrupted while the pool was starting")
    assert (sys.excepthook, seen) == (own_hook, [])
    print_no_traceback(KeyboardInterrupt())
    sys.excepthook(ValueError, other, None)
    assert (sys.excepthook, seen) == (own_hook, [other])


def test_ctrl_c_before_the_first_node_has_joined_prints_one_line_too(monkeypatch, capsys):
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    engine = FakeEngine()
    machines = Machines(engine)
    machines.mute = True
    with (
        pytest.raises(KeyboardInterrupt) as interrupted,
        wl.ComputePool(machines, 1, engine=engine, console=False),
    ):
        raise KeyboardInterrupt
    sys.excepthook(KeyboardInterrupt, interrupted.value, interrupted.tb)
    assert capsys.readouterr().err.startswith("interrupted while the pool was starting")


def test_ctrl_c_while_windlass_is_loaded_prints_one_line(monkeypatch, capsys):
    def interrupt(_name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    monkeypatch.delitem(vars(wl), "ComputePool", raising=False)
    monkeypatch.setattr(wl, "import_module", interrupt)
    with pytest.raises(KeyboardInterrupt) as interrupted:
        _ = wl.ComputePool
    sys.excepthook(KeyboardInterrupt, interrupted.value, interrupted.tb)
    assert capsys.readouterr().err == "interrupted while Windlass was loading\n"
