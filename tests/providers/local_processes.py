"""Finds real processes: those of a directory, and whether one runs."""

from __future__ import annotations

import json
from pathlib import Path

from windlass.providers.local.supervisor import HostProcess, all_pids


def marked(directory: Path) -> list[int]:
    """Live processes of every host below a directory."""
    mark = f"WINDLASS_DIRECTORY={directory.resolve()}/".encode()
    found = []
    for pid in all_pids():
        try:
            words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if HostProcess.of(pid) is not None and any(word.startswith(mark) for word in words):
            found.append(pid)
    return found


def pid_of(directory: Path, slice_id: str, host: int, which: str = "command") -> int:
    known = json.loads((directory / slice_id / f"host-{host}" / "process.json").read_text(encoding="utf-8"))
    return int(known[which][0])
