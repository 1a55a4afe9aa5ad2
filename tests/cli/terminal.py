"""A terminal for programs that draw on one."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from subprocess import Popen


class Terminal:
    """A program on a terminal of 80 columns and 24 lines."""

    def __init__(self, *command: str, lines: int = 24) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, 80, 0, 0))
        environment = {**os.environ, "TERM": "xterm"}
        environment.pop("NO_COLOR", None)
        self._before = termios.tcgetattr(theirs)
        self.process = Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, close_fds=True)
        self._theirs = theirs
        self.written = ""

    def press(self, keys: str) -> None:
        self.written = ""
        os.write(self._ours, keys.encode())

    def shows(self, *texts: str) -> str:
        """The screen as soon as it has all these texts."""
        deadline = time.monotonic() + 60
        while True:
            screen = self.screen()
            if all(text in screen for text in texts):
                return screen
            assert time.monotonic() < deadline, f"{texts} not in:\n{screen}"
            if select.select([self._ours], [], [], 0.2)[0]:
                self.written += os.read(self._ours, 65536).decode(errors="replace")

    def screen(self) -> str:
        """What was drawn last: every frame begins at the top left corner."""
        last = self.written.rpartition("\x1b[H")[2]
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", last).replace("\r", "")

    def end(self) -> int:
        code = self.process.wait(30)
        assert termios.tcgetattr(self._theirs) == self._before, "the terminal was not put back"
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)
