"""This module finds mistakes in the settings of EC2 without a call to EC2."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from windlass.scenario.reader import shown

MARKETS: Final = ("spot", "on-demand")
_REGION: Final = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]+")
_IDS: Final = {"image_id": "ami", "security_group": "sg", "subnets": "subnet"}


def mistakes(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name of each wrong setting, and what is wrong with it."""
    region = settings["region"]
    if not _REGION.fullmatch(region):
        yield "region", f"must be a region of AWS such as us-east-1, is {shown(region)}"
    for zone in settings["zones"] or ():
        if _REGION.fullmatch(region) and not str(zone).startswith(region):
            yield "zones", f"{shown(zone)} is not a zone of {region}; its zones are named like {region}a"
    for name, prefix in _IDS.items():
        given = settings[name] or ()
        for one in (given,) if isinstance(given, str) else given:
            if not str(one).startswith(f"{prefix}-"):
                yield name, f"must be an id such as {prefix}-0123456789abcdef0, is {shown(one)}"
    for name in ("endpoint_url", "metadata_url"):
        if settings[name] and not re.match(r"https?://[^/\s]+", settings[name]):
            yield name, f"must be a URL such as http://127.0.0.1:5000, is {shown(settings[name])}"
    if (source := settings["ssh_from"]) and not _is_network(source):
        yield "ssh_from", f"must be a network such as 203.0.113.7/32, is {shown(source)}"
    for kind in settings["prices"] or {}:
        machine, slash, market = kind.partition("/")
        if not machine or (slash and market not in MARKETS):
            yield "prices", f"{shown(kind)} must be a machine type, or TYPE/spot or TYPE/on-demand"


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return "/" in text


def all_mistakes(settings: Mapping[str, Any], before: str) -> Sequence[str]:
    """Return the mistakes as lines; ``before``: the text before the name of a setting."""
    return [f"{before}{name}: {text}" for name, text in mistakes(settings)]
