"""This module prints one line in place of the traceback of a Ctrl-C that the program does not catch."""

from __future__ import annotations

import sys
from types import TracebackType

_MESSAGE = "_windlass_interrupted"
AT_START = "interrupted while the pool was starting; everything that was started has been ended"


def print_no_traceback(interrupt: KeyboardInterrupt, message: str = AT_START) -> None:
    """If the program does not catch this Ctrl-C, print one line in place of the traceback.

    The hook is removed when it is first called, so that an interactive session keeps its own. It holds no reference to
    the exception, whose frames would stay in memory.
    """
    before = sys.excepthook
    setattr(interrupt, _MESSAGE, message)

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if sys.excepthook is hook:
            sys.excepthook = before
        text = getattr(error, _MESSAGE, None)
        if text is not None:
            sys.stderr.write(f"{text}\n")
        else:
            before(kind, error, trace)

    sys.excepthook = hook
