"""The declaration of the provider type ``ray-node-provider``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from windlass.providers.protocol import Provider
from windlass.providers.registry import ProviderContext, ProviderType
from windlass.scenario.declarations import REQUIRED
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


RAY_NODE_PROVIDER: Final = ProviderType(
    summary="any v1 `NodeProvider` of Ray, in a process of its own.",
    section=Section(
        "a node provider of Ray",
        (
            Setting("module", Name(), REQUIRED, "", "The class of the provider: `pkg.Class`."),
            Setting("python", Name(), None, "", "A Python that has Ray and the module.", absent="the one of Windlass"),
            Setting("config", Data(), None, "", "What the provider takes as its configuration.", absent="nothing"),
            Setting("cluster_name", Name(), "windlass", "", "The name of the cluster for the provider."),
            Setting(
                "directory",
                Place(),
                ".windlass/ray-node-provider",
                "",
                "Where is kept what has ended: node providers forget it.",
            ),
        ),
    ),
    build=_build,
    runs=frozenset({"ray"}),
)
