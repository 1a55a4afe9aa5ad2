"""How a program of this package is started by another Python, here or on another machine."""

from __future__ import annotations

import site
from pathlib import Path


def program(python: str, module: str) -> tuple[str, ...]:
    """The command. From a source tree it says where the package is, for an interpreter that would find another one or
    none; on a machine without that directory nothing changes."""
    directory = str(Path(__file__).resolve().parents[3])  # where the package lies; importing it would be upwards
    if directory in (*site.getsitepackages(), site.getusersitepackages()):
        return python, "-m", module
    text = f"import sys; sys.path.insert(0, {directory!r}); from {module} import main; sys.exit(main())"
    return python, "-c", text
