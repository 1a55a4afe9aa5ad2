"""This module declares the provider type ``ray-node-provider``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from windlass.providers.protocol import Provider
from windlass.providers.registry import ProviderContext, ProviderType
from windlass.scenario.declarations import REQUIRED
from windlass.scenario.reader import shown
from windlass.setting_types import Data, Name, Place, Section, Setting


def _build(settings: Mapping[str, Any], context: ProviderContext) -> Provider:
    from .provider import RayNodeProvider

    return RayNodeProvider(
        settings["module"],
        python=settings["python"] or sys.executable,
        config=settings["config"] or {},
        cluster_name=settings["cluster_name"],
        directory=Path(settings["directory"]) / context.name,
    )


def _check(settings: Mapping[str, Any], name: str, workload: str) -> list[str]:  # noqa: ARG001
    wrong = []
    package, _, class_name = settings["module"].rpartition(".")
    if not package or not all(word.isidentifier() for word in (*package.split("."), class_name)):
        wrong.append(
            f"providers.{name}.module: must be the name of a class with its module, such as pkg.Class, "
            f"is {shown(settings['module'])}"
        )
    if not isinstance(settings["config"], Mapping | None):
        wrong.append(f"providers.{name}.config: must be a mapping, is {shown(settings['config'])}")
    return wrong


RAY_NODE_PROVIDER: Final = ProviderType(
    summary="any v1 `NodeProvider` of Ray, in a separate process.",
    section=Section(
        "a node provider of Ray",
        (
            Setting("module", Name(), REQUIRED, "", "The class of the provider: `pkg.Class`."),
            Setting("python", Name(), None, "", "A Python that has Ray and the module.", absent="that of Windlass"),
            Setting("config", Data(), None, "", "The configuration that the class is created with.", absent="nothing"),
            Setting("cluster_name", Name(), "windlass", "", "The cluster name that the class is created with."),
            Setting(
                "directory",
                Place(),
                ".windlass/ray-node-provider",
                "",
                "The directory for facts that node providers do not store: ended slices, and the last controller.",
            ),
        ),
    ),
    build=_build,
    runs=frozenset({"ray"}),
    check=_check,
)
