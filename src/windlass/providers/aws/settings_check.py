"""This module finds mistakes in the settings of EC2 without a call to EC2."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from windlass.core.model.reasons import nearest_name
from windlass.scenario.reader import shown

MARKETS: Final = ("spot", "on-demand")
SMALLEST_DISK: Final = 8
LARGEST_DISK: Final = 16384
"""GiB."""
GROUP_SETTINGS: Final = {
    "instance_type": "a machine type such as m7i.large, or a list of them",
    "market": "one of on-demand, spot, spot-first",
    "max_price": "a number of dollars per hour, more than 0",
    "image_id": "an id such as ami-0123456789abcdef0",
    "disk": f"a whole number of GiB from {SMALLEST_DISK} to {LARGEST_DISK}",
    "user_data": "the text of a script",
    "instance_profile": "the name or ARN of an instance profile",
}
"""The settings of a group, each with the values that it can have."""
_REGION: Final = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]+")
_IDS: Final = {"image_id": "ami", "security_group": "sg", "subnets": "subnet"}


def is_region(text: str) -> bool:
    """Whether a text has the form of a region's name."""
    return _REGION.fullmatch(text) is not None


def mistakes(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name of each wrong setting, and what is wrong with it."""
    region = settings["region"]
    if not _REGION.fullmatch(region):
        yield "region", f"must be a region of AWS such as us-east-1, is {shown(region)}"
    for zone in settings["zones"] or ():
        if _REGION.fullmatch(region) and not re.fullmatch(rf"{region}([a-z]|-[a-z0-9-]+)", str(zone)):
            yield "zones", f"{shown(zone)} is not a zone of {region}; its zones are named like {region}a"
    for name, prefix in _IDS.items():
        given = settings[name] or ()
        for one in (given,) if isinstance(given, str) else given:
            if not str(one).startswith(f"{prefix}-"):
                yield name, f"must be an id such as {prefix}-0123456789abcdef0, is {shown(one)}"
    for name in ("endpoint_url", "metadata_url"):
        if settings[name] and not re.match(r"https?://[^/\s]+", settings[name]):
            yield name, f"must be a URL such as http://127.0.0.1:5000, is {shown(settings[name])}"
    if settings["max_price"] is not None and settings["max_price"] <= 0:
        yield "max_price", "must be more than 0; leave it out for no limit"
    if (source := settings["ssh_from"]) and not _is_network(source):
        yield "ssh_from", f"must be a network such as 203.0.113.7/32, is {shown(source)}"
    for kind in settings["prices"] or {}:
        machine, slash, market = kind.partition("/")
        if not machine or (slash and market not in MARKETS):
            yield "prices", f"{shown(kind)} must be a machine type, or TYPE/spot or TYPE/on-demand"


def group_mistakes(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return what is wrong with the settings of a group, by key."""
    found = {}
    for key, value in settings.items():
        if key not in GROUP_SETTINGS:
            meant = nearest_name(key[:80], GROUP_SETTINGS)
            known = f"did you mean {meant}?" if meant else f"known here: {', '.join(GROUP_SETTINGS)}"
            found[key] = f"is not known to EC2 machines; {known}"
        elif value is not None and not _is_right(key, value):
            found[key] = f"must be {GROUP_SETTINGS[key]}, is {shown(value)}"
    return found


def _is_right(key: str, value: object) -> bool:
    match key:
        case "instance_type":
            names = value if isinstance(value, list | tuple) else [value]
            return bool(names) and all(isinstance(one, str) and one for one in names)
        case "market":
            return value in (*MARKETS, "spot-first")
        case "max_price":
            return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 10**6
        case "image_id":
            return isinstance(value, str) and value.startswith("ami-")
        case "disk":
            return type(value) is int and SMALLEST_DISK <= value <= LARGEST_DISK
    return isinstance(value, str) and bool(value)


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return "/" in text


def all_mistakes(settings: Mapping[str, Any], before: str) -> Sequence[str]:
    """Return the mistakes as lines; ``before``: the text before the name of a setting."""
    return [f"{before}{name}: {text}" for name, text in mistakes(settings)]
