"""SIGTERM ends a controller in time, whatever hangs."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

PROGRAM = """
import asyncio, hashlib, time
from windlass.cli.commands.start.run.stop_signals import stop_signals

async def main():
    stopped, hung_up = asyncio.Event(), asyncio.Event()
    with stop_signals(stopped.set, lambda: print("the limit is over", flush=True), limit=1.0, on_hangup=hung_up.set):
        print("ready", flush=True)
        {body}
    print("the end", flush=True)

asyncio.run(main())
{after}
"""
NEVER = 600
"""Seconds after which a program would end without the limit."""


def stopped(body: str, after: str = "", by: signal.Signals = signal.SIGTERM) -> tuple[int, str, float]:
    """The exit status and the output of a program that gets a signal, and how long it took to end."""
    program = PROGRAM.format(body=body, after=after)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            assert running.stdout.readline() == "ready\n"
            began = time.monotonic()
            running.send_signal(by)
            output, _ = running.communicate(timeout=120)
            return running.returncode, output, time.monotonic() - began
        finally:
            running.kill()


@pytest.mark.parametrize(
    ("body", "after"),
    [
        ("await asyncio.Event().wait()", ""),
        ("time.sleep(600)", ""),
        ("while True: pass", ""),
        ("hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)", ""),
        ("await stopped.wait()", "time.sleep(600)"),
    ],
    ids=[
        "a call that hangs",
        "a loop that does not turn",
        "a plan that takes for ever",
        "a call that no signal interrupts",
        "a thread at the end",
    ],
)
def test_a_program_that_hangs_ends_when_the_limit_is_over(body, after):
    status, output, took = stopped(body, after)
    assert status == 0
    assert "the limit is over" in output
    assert 1.0 <= took < NEVER / 2


def test_a_program_that_stops_in_time_ends_by_itself():
    assert stopped("await stopped.wait()")[:2] == (0, "the end\n")


def test_a_hangup_does_not_stop_a_program():
    body = "await hung_up.wait(); await asyncio.sleep(2); print('the same program')"
    assert stopped(body, by=signal.SIGHUP)[:2] == (0, "the same program\nthe end\n")


def test_a_program_without_a_signal_is_not_limited():
    program = PROGRAM.format(body="pass", after="time.sleep(2)")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "ready\nthe end\n")
