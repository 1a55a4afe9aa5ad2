"""This module checks the program that starts workers, for ``windlass doctor``."""

from __future__ import annotations

import shutil
import subprocess

from windlass.workloads.protocol import Diagnosis


def check_program(ray: str, version: str) -> Diagnosis:
    """Check that the program that starts workers exists and has the version of the head."""
    path = shutil.which(ray)
    if path is None:
        return Diagnosis(f"there is no program {ray!r} here", "install ray, or name the program in workload.ray")
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Diagnosis(f"{path} --version failed: {error}", "check workload.ray")
    ours = done.stdout.strip().rpartition(" ")[2]
    if ours != version:
        remedy = f"install ray=={version} for the workers, or name such a program in workload.ray"
        return Diagnosis(f"{path} is Ray {ours or 'of an unknown version'}, and the head is {version}", remedy)
    return Diagnosis(f"workers are started by {path}, Ray {ours}")
