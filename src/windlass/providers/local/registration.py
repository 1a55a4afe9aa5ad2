"""This module declares the provider type ``local``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from windlass.providers.protocol import Provider
from windlass.providers.registry import ProviderContext, ProviderType
from windlass.setting_types import Duration, Place, Section, Setting, Words


def _build(settings: Mapping[str, Any], context: ProviderContext) -> Provider:
    from .provider import LocalProvider

    return LocalProvider(
        settings["directory"],
        boot_delay=settings["boot_delay"],
        grace=settings["grace"],
        repair=not context.read_only,
        tie_to=context.tie_to,
        now=context.now,
        environment=settings["environment"] or (),
    )


LOCAL: Final = ProviderType(
    summary="processes on this computer.",
    section=Section(
        "a local provider",
        (
            Setting("directory", Place(), ".windlass/local", "", "The directory for the records of its processes."),
            Setting("boot_delay", Duration(high=3600), "0s", "s", "A simulated boot time of each slice."),
            Setting(
                "grace",
                Duration(high=3600),
                "5s",
                "s",
                "How long processes may take to end. After that they are killed.",
            ),
            Setting(
                "environment",
                Words(),
                None,
                "",
                "Names of environment variables of the controller that are passed on to its processes and tasks. The "
                "usual ones are always passed on: PATH, HOME, USER, LANG, TZ, TMPDIR, PYTHONPATH, CUDA_* and similar.",
                absent="none",
            ),
        ),
    ),
    build=_build,
    runs=frozenset({"queue", "dask", "ray"}),
)
