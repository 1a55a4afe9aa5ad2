"""This module detects the accelerators of this computer, so that a local pool offers only what exists."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from windlass.core.model.snapshot import Group
from windlass.pool.errors import BadPool

REMEDY = "Local(pretend=True) runs such tasks without the devices, for tests"


def check_devices(groups: Sequence[Group]) -> None:
    """Raise ``BadPool`` if a node of a group needs accelerators that this computer does not have."""
    for group in groups:
        needs = dict(group.resources)
        for kind, names in (("gpu", gpu_names), ("tpu", tpu_names)):
            wanted = -(-needs.get(kind, 0) // 1000)
            if not wanted:
                continue
            here, model = names(), dict(group.labels).get("accelerator", "")
            found = [name for name in here if model.lower() in name.lower()]
            if len(found) < wanted:
                asked = f"{wanted} {model or kind.upper()}"
                there = f"{len(here)} ({', '.join(sorted(set(here)))})" if here else "none"
                raise BadPool(
                    f"accelerator: a node of {group.name} has {asked}, and this computer has {there}. {REMEDY}"
                )


def gpu_names(devices: Path = Path("/dev")) -> list[str]:
    """Return the model names of the NVIDIA devices of this computer; without the driver's tool each is ``GPU``."""
    with suppress(OSError, subprocess.SubprocessError):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=10, check=True).stdout
        return re.findall(r"^GPU \d+: (.+?) \(", listed, re.MULTILINE)
    return ["GPU" for one in devices.glob("nvidia*") if one.name.removeprefix("nvidia").isdecimal()]


def tpu_names(devices: Path = Path("/dev")) -> list[str]:
    return ["TPU" for _ in devices.glob("accel*")]
