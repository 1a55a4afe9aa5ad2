"""This module lists every setting in the order of the file, for ``windlass config reference`` and the docs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from windlass.scenario.declarations import REQUIRED, Form
from windlass.scenario.schema import FAMILY, LOW_UTILIZATION, SCALE_DOWN, TAINT, UTILIZATION
from windlass.setting_types import Section, SubSection

from .groups.images import IMAGE
from .groups.offers import OFFERS
from .registry import PROVIDERS, WORKLOADS, Types
from .schema import CONFIG, CONFIGURED_CLUSTER, CONFIGURED_GROUP, JOURNAL, LEADER, POLICY
from .server import NOTIFY, SERVER


class Page(NamedTuple):
    """One mapping of the file: its path, its type if there are several, and its keys."""

    where: str
    type: str
    form: Form


def pages() -> Iterator[Page]:
    """Return the mappings of a configuration, the outermost first."""
    yield Page("", "", CONFIG)
    yield Page("cluster", "", CONFIGURED_CLUSTER)
    yield Page("families.NAME", "", FAMILY)
    yield Page("groups.NAME", "", CONFIGURED_GROUP)
    yield Page("groups.NAME.taints[]", "", TAINT)
    yield Page("groups.NAME.scale_down", "", SCALE_DOWN)
    yield Page("groups.NAME.scale_down.low_utilization", "", LOW_UTILIZATION)
    yield Page("groups.NAME.scale_down.utilization", "", UTILIZATION)
    yield Page("groups.NAME.offers", "", OFFERS.form)
    yield Page("groups.NAME.image", "", IMAGE)
    yield from _typed("providers.NAME", PROVIDERS)
    yield from _typed("workload", WORKLOADS)
    yield from _parts("journal", JOURNAL)
    yield from _parts("policy", POLICY)
    yield from _parts("leader", LEADER)
    yield from _parts("server", SERVER)
    yield from _parts("notify[]", NOTIFY)


def _typed(where: str, types: Types) -> Iterator[Page]:
    written: list[Section] = []
    for name in types.known:
        yield Page(where, name, types.reference_form(name))
        for one in types.section(name).settings:
            if isinstance(one, SubSection) and one.section not in written:  # several types may share one
                written.append(one.section)
                yield from _parts(f"{where}.{one.name}", one.section)


def _parts(where: str, section: Section) -> Iterator[Page]:
    yield Page(where, "", section.form)
    for one in section.settings:
        if isinstance(one, SubSection):
            yield from _parts(f"{where}.{one.name}", one.section)


def settings() -> list[dict[str, Any]]:
    """Return the reference for programs: one entry per setting."""
    return [
        {
            "path": f"{page.where}.{name}".removeprefix("."),
            "type": page.type or None,
            "required": key.default == REQUIRED,
            "default": None if key.default == REQUIRED else key.default.replace("`", ""),
            "unit": key.unit or None,
            "meaning": key.meaning.replace("`", ""),
        }
        for page in pages()
        for name, key in page.form.keys.items()
    ]
