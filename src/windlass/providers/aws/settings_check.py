"""Mistakes in the settings of EC2 that can be found without asking EC2."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

MARKETS: Final = ("spot", "on-demand")
_REGION: Final = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]+")
_IDS: Final = {"image_id": "ami", "security_group": "sg", "subnets": "subnet"}


def mistakes(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The name of each setting that cannot be right, and what is wrong with it."""
    region = settings["region"]
    if not _REGION.fullmatch(region):
        yield "region", f"must be a region of AWS such as us-east-1, is {region!r}"
    for zone in settings["zones"] or ():
        if _REGION.fullmatch(region) and not str(zone).startswith(region):
            yield "zones", f"{zone!r} is no zone of {region}; a zone is written like {region}a"
    for name, prefix in _IDS.items():
        given = settings[name] or ()
        for one in (given,) if isinstance(given, str) else given:
            if not str(one).startswith(f"{prefix}-"):
                yield name, f"must be an id such as {prefix}-0123456789abcdef0, is {one!r}"
    for name in ("endpoint_url", "metadata_url"):
        if settings[name] and not re.match(r"https?://[^/\s]+", settings[name]):
            yield name, f"must be a URL such as http://127.0.0.1:5000, is {settings[name]!r}"
    if (source := settings["ssh_from"]) and not _is_network(source):
        yield "ssh_from", f"must be a network such as 203.0.113.7/32, is {source!r}"
    for kind in settings["prices"] or {}:
        machine, slash, market = kind.partition("/")
        if not machine or (slash and market not in MARKETS):
            yield "prices", f"{kind!r} must be a machine type, or TYPE/spot or TYPE/on-demand"


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return "/" in text


def all_mistakes(settings: Mapping[str, Any], before: str) -> Sequence[str]:
    """The mistakes as lines; ``before``: what stands before the name of a setting."""
    return [f"{before}{name}: {text}" for name, text in mistakes(settings)]
