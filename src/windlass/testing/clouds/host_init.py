"""This program is the first process of a test host: it mounts the host's directories, starts sshd and ends
everything.

    python -I -S host_init.py < SPEC

``SPEC`` is JSON: ``sshd`` (the command), ``binds`` (source and target of each bind mount), ``user_data`` (a script that
is run once, before sshd starts), ``log``. Standard input stays open for as long as the host is to live. In a namespace
this is process 1, so that the kernel kills the whole host with it. Elsewhere it adopts orphans and kills all of its
descendants when it ends. It uses the standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _parent_of(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return 0
    return int(text[text.rindex(")") + 2 :].split()[1])


def _descendants() -> list[int]:
    parents = {
        int(entry.name): _parent_of(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit()
    }
    found: list[int] = []
    border = [os.getpid()]
    while border:
        above = border.pop()
        below = [pid for pid, parent in parents.items() if parent == above]
        found += below
        border += below
    return found


def _kill_all(*_: object) -> None:
    while below := [pid for pid in _descendants() if pid != os.getpid()]:
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)
    os._exit(0)


def _mount(binds: list[list[str]]) -> None:
    if binds:
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    for source, target in binds:
        subprocess.run(["mount", "--bind", source, target], check=True)


def _end_with_the_test() -> None:
    """End with the process that holds the other end of standard input, however it ends."""
    while os.read(0, 4096):
        pass
    _kill_all()


def main(spec: dict[str, Any]) -> None:
    parent = os.getppid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getpid() != 1:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        if os.getppid() != parent:
            return
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _kill_all)
    if spec["binds"]:
        _mount(spec["binds"])
    with Path(spec["log"]).open("ab") as log:
        if spec.get("user_data"):
            script = Path(spec["user_data"])
            environment = {**os.environ, **spec.get("environment", {})}
            subprocess.run(
                [str(script)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False, env=environment
            )
        sshd = subprocess.Popen(spec["sshd"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    threading.Thread(target=_end_with_the_test, daemon=True).start()
    while True:
        try:
            ended, _ = os.wait()
        except ChildProcessError:
            return
        if ended == sshd.pid:
            _kill_all()


if __name__ == "__main__":
    main(json.loads(sys.stdin.readline()))
