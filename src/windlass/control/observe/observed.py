"""Observed holds the last valid observation of every source, as tables that the journal keeps.

If a source fails, its last successful observation is kept. Unchanged items and unchanged tables are the same objects as
before, so later steps find changes by identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from windlass.control.settings import Settings
from windlass.control.state.diff import diff
from windlass.core.model.cached import cached_attribute
from windlass.core.model.snapshot import Demand
from windlass.providers.protocol import Instance
from windlass.workloads.protocol import Acknowledgement, WorkloadView, WorkNode

from .validation import ValidView

WORKLOAD: Final = "workload"
PROVIDER: Final = "provider "
"""Names of the sources in the tables ``trouble`` and ``unknown``."""

T = TypeVar("T")
Nodes = Mapping[str, tuple[WorkNode, ...]]


@dataclass(frozen=True)
class Observed:
    """The last observations; every field is a table."""

    demand: Mapping[str, Demand] = field(default_factory=dict)
    request: Mapping[str, Demand] = field(default_factory=dict)
    node: Mapping[str, WorkNode] = field(default_factory=dict)
    acknowledgement: Mapping[str, Acknowledgement] = field(default_factory=dict)
    instance: Mapping[str, Instance] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    """Errors by name of a source, or of a slice whose calls fail."""
    unknown: Mapping[str, bool] = field(default_factory=dict)
    """Sources without a valid answer."""
    listed_by: Mapping[str, str] = field(default_factory=dict)
    """The provider that lists an instance, if it is not the provider of its group."""

    def view(self) -> WorkloadView:
        """Return the last view of the workload."""
        return WorkloadView(
            tuple(self.demand.values()),
            tuple(self.request.values()),
            tuple(self.node.values()),
            tuple(self.acknowledgement.values()),
        )

    @cached_attribute
    def silent(self) -> frozenset[str]:
        """Providers without a valid answer."""
        return frozenset([name.removeprefix(PROVIDER) for name in self.unknown if name.startswith(PROVIDER)])

    @cached_attribute
    def nodes_of(self) -> Nodes:
        """The nodes of each slice that has any."""
        return _regrouped({}, {}, self.node)

    def carry_on(self, before: Observed) -> None:
        """Reuse the grouping of an earlier observation, if there is one: cheaper than grouping again."""
        if "nodes_of" in before.__dict__:
            same = self.node is before.node
            self.__dict__["nodes_of"] = before.nodes_of if same else _regrouped(before.nodes_of, before.node, self.node)

    def touched_since(self, before: Observed) -> set[str]:
        """Return the slices whose instance, nodes or acknowledgement changed."""
        instances, acknowledged = (
            diff(before.instance, self.instance),
            diff(before.acknowledgement, self.acknowledgement),
        )
        nodes = diff(before.node, self.node)
        found = {*instances.changed, *instances.gone, *acknowledged.changed, *acknowledged.gone}
        for name in nodes.changed:
            found.add(self.node[name].slice_id)
            if name in before.node:
                found.add(before.node[name].slice_id)
        return found.union([before.node[name].slice_id for name in nodes.gone])


def _regrouped(groups: Nodes, before: Mapping[str, WorkNode], after: Mapping[str, WorkNode]) -> Nodes:
    """Return the nodes of each slice, updated from the earlier grouping."""
    found, news = dict(groups), diff(before, after)
    for name in (*news.changed, *news.gone):
        was, now = before.get(name), after.get(name)
        if was is not None:
            found[was.slice_id] = tuple([node for node in found[was.slice_id] if node.id != name])
        if now is not None:
            found[now.slice_id] = (*found.get(now.slice_id, ()), now)
        if was is not None and not found[was.slice_id]:
            del found[was.slice_id]
    return found


def observed_after(
    before: Observed,
    instances: Mapping[str, Mapping[str, Instance] | None],
    work: ValidView | None,
    problems: Mapping[str, str],
    was: Settings | None,
    settings: Settings,
) -> Observed:
    """Return the tables after a new observation. ``problems``: errors of sources and of outside calls; ``was``: the
    settings before.
    """
    shows: ValidView | Observed = before if work is None else work
    silent = [name for name, many in instances.items() if many is None]
    unknown = [f"{PROVIDER}{name}" for name in sorted(silent)] + ([] if work is not None else [WORKLOAD])
    instance, listed_by = _listed(before, instances, was, settings)
    after = Observed(
        demand=shows.demand,
        request=shows.request,
        node=shows.node,
        acknowledgement=_same(before.acknowledgement, shows.acknowledgement),
        instance=instance,
        problems=_same(before.problems, problems),
        unknown=_same(before.unknown, dict.fromkeys(unknown, True)),
        listed_by=_same(before.listed_by, listed_by),
    )
    after.carry_on(before)
    return after


def _same(before: Mapping[str, T], after: Mapping[str, T]) -> Mapping[str, T]:
    """Return the old table if the new one is equal."""
    return before if before == after else after


def _listed(
    before: Observed, instances: Mapping[str, Mapping[str, Instance] | None], was: Settings | None, settings: Settings
) -> tuple[Mapping[str, Instance], Mapping[str, str]]:
    """Return every listed instance, silent providers with their last list, and unexpected providers by instance."""
    usual = {name: configured.provider for name, configured in settings.by_name.items()}
    if len(instances) == 1 and was is settings and not before.listed_by:
        [(provider, shown)] = instances.items()
        if shown is not None:  # only one provider: unchanged instances are skipped
            news = diff(before.instance, shown).changed
            return shown, {name: provider for name in news if usual.get(shown[name].group) != provider}
    instance: dict[str, Instance] = {}
    listed_by: dict[str, str] = {}
    silent = {name for name, many in instances.items() if many is None}
    if silent and was is not None:
        for one in before.instance.values():
            if (provider := provider_of(before, was, one)) in silent:
                instance[one.slice_id] = one
                if usual.get(one.group) != provider:
                    listed_by[one.slice_id] = provider
    for provider, many in instances.items():
        shown = many or {}
        instance.update(shown)
        if listed_by:  # if two providers list an instance, the last one counts
            listed_by = {name: other for name, other in listed_by.items() if name not in shown}
        listed_by.update({name: provider for name, one in shown.items() if usual.get(one.group) != provider})
    return _same(before.instance, instance), listed_by


def provider_of(observed: Observed, settings: Settings, instance: Instance) -> str:
    """Return the provider that lists an instance."""
    configured = settings.by_name.get(instance.group)
    return observed.listed_by.get(instance.slice_id) or (configured.provider if configured is not None else "")
