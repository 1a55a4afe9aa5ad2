"""This module renders the explanation of a family: its limits, and which of its offers are available."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from windlass.cli.ui.pages import headed, money, section
from windlass.core.model.reasons import plural

from .group import available_text


def page(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    now, one = document["at"], document["family"]
    counted = sum(group["counted"] for group in one["groups"])
    limits = f"{plural(counted, 'machine')}, at most {one['max']}"
    limits += f", at least {one['min']}" if one["min"] else ""
    limits += f", {one['spare']} spare" if one["spare"] else ""
    yield Text.assemble((f"Family {one['name']}", "bold"), f": {plural(len(one['groups']), 'group')}; {limits}")
    table = headed("group", "provider", "price>", "machines>", "busy>", "one more*")
    for group in one["groups"]:
        price = "-" if group["price"] is None else f"{money(group['price'])}/h"
        more = available_text(group["availability"], now)
        if more == "available" and group["next"]["code"] is not None:
            more = group["next"]["why"]
        table.add_row(group["name"], group["provider"], price, str(group["counted"]), str(group["busy"]), more)
    yield section("Groups, cheapest first", table)


def steps(document: Mapping[str, Any], at: float | None) -> list[str]:
    found = [f"windlass freeze {document['name']}"] if at is None else []
    names = [group["name"] for group in document["family"]["groups"] if group["counted"]]
    return [*found, *(f"windlass why {name}" for name in names[:1]), "windlass status"]
