"""This module declares the provider type ``kwok``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from windlass.providers.protocol import Provider
from windlass.providers.registry import ProviderContext, ProviderType
from windlass.setting_types import Duration, Section, Setting, Share


def _build(settings: Mapping[str, Any], context: ProviderContext) -> Provider:
    from .provider import KwokProvider

    return KwokProvider(
        None,
        context.name,
        boot_delay=settings["boot_delay"],
        device_delay=settings["device_delay"],
        failure=settings["failure"],
        now=context.now,
    )


KWOK: Final = ProviderType(
    summary="Node objects of a Kubernetes cluster, without machines: for tests, demos and benchmarks.",
    section=Section(
        "a KWOK provider",
        (
            Setting("boot_delay", Duration(high=86400), "0s", "s", "How long a node takes until it is Ready."),
            Setting(
                "device_delay",
                Duration(high=86400),
                "0s",
                "s",
                "How long after that until its devices are allocatable.",
            ),
            Setting("failure", Share(or_none=True), 0, "", "The share of launches that are refused as out of stock."),
        ),
    ),
    build=_build,
    runs=frozenset({"kubernetes"}),
    modules=("kubernetes", "msgspec"),
    extra="kubernetes",
)
