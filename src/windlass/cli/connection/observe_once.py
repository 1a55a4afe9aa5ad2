"""Observes a live cluster once, without changing it: its providers, its workload and its journal.

The same observer and the same fold as the controller's, and no actuator: nothing that is called here changes anything,
and nothing is written, so it can run while a controller runs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from windlass.config import Config
from windlass.config.build import build_components
from windlass.control.observe.observed import Observed
from windlass.control.observe.observer import Observation, Observer
from windlass.control.reconcile.cycle import ORDERS
from windlass.control.reconcile.operator_orders import apply_orders, orders_after
from windlass.control.reconcile.planner_input import observed_now, plan_fleet
from windlass.control.reconcile.transitions import Fold, fold
from windlass.control.reconcile.workload_groups import with_workload_groups
from windlass.control.record.controller_state import ControllerState
from windlass.control.report.current import read_state
from windlass.control.settings import Settings
from windlass.core.model.plan import Plan
from windlass.core.model.snapshot import Snapshot
from windlass.journal import JournalError, open_journal
from windlass.providers.protocol import AuthFailed, ClusterIdentity, Instance, Provider
from windlass.workloads.protocol import Workload

from .open_journal import is_missing, why_closed


@dataclass(frozen=True, slots=True)
class LiveView:
    """What shows of a cluster now."""

    look: Observation
    controller_state: ControllerState
    """By the journal; empty if there is none yet."""
    observed: Observed
    fold: Fold
    """The fleet of the journal after the observation."""
    now: float
    settings: Settings
    """The configuration's, with the groups that the workload defines."""
    denied: frozenset[str] = frozenset()
    """Providers that refuse our credentials."""

    def planned(self) -> tuple[Snapshot, Plan]:
        """What a controller would plan now."""
        return plan_fleet(self.fold.fleet, self.observed, self.settings, self.now)


def seen(config: Config, *, remembered: bool = True) -> LiveView:
    """Look at everything that a configuration names, once. ``JournalError``: the journal is there, and not readable.

    Without ``remembered`` the journal is left alone.
    """
    look, denied = asyncio.run(_looked(config))
    controller_state = (
        known(config) if remembered else ControllerState()
    )  # after the observation: everything that is listed had its record before
    now = time.time()
    settings = config.settings
    if look.work is not None:
        settings = with_workload_groups(settings, look.work.shown.groups)
    observed = observed_now(controller_state, look, settings)
    folded = fold(controller_state.fleet, observed, settings, now)
    return LiveView(look, controller_state, observed, folded, now, settings, denied)


def known(config: Config) -> ControllerState:
    """What the journal knows, with the orders that no leader has heard yet; nothing, if there is no journal yet."""
    location = config.journal.location
    if location == ":memory:" or is_missing(config):
        return ControllerState()
    try:
        with open_journal(location, create=False) as journal:
            controller_state = read_state(journal)
            orders = [order for _, order in orders_after(journal, controller_state.heard.get(ORDERS, 0))]
            families = config.settings.families
    except JournalError as error:
        raise JournalError(why_closed(config, error)) from error
    return replace(controller_state, fleet=apply_orders(controller_state.fleet, orders, time.time(), families))


def cluster_of(config: Config) -> ClusterIdentity:
    """Whose machines a configuration is about; without an id while there is no journal yet."""
    name, location = config.settings.cluster.name, config.journal.location
    if location == ":memory:" or is_missing(config):
        return ClusterIdentity(name)
    try:
        with open_journal(location, create=False) as journal:
            return ClusterIdentity(name, journal.cluster_id)
    except JournalError:  # reported by the code that reads the journal
        return ClusterIdentity(name)


async def _looked(config: Config) -> tuple[Observation, frozenset[str]]:
    components, limit = build_components(config, look_only=True), config.settings.policy.observe_timeout
    cluster = cluster_of(config)
    for one in components.providers.values():
        one.bind(cluster)
    try:
        providers = {name: Listed(provider) for name, provider in components.providers.items()}
        look = await whole_look(providers, components.workload, limit, time.monotonic)
        return look, frozenset(name for name, one in providers.items() if one.denied)
    finally:
        await components.close()


class Listed:
    """A provider that can only be looked at, and remembers whether it refused our credentials."""

    def __init__(self, provider: Provider) -> None:
        self._provider, self.denied = provider, False

    async def list(self) -> Sequence[Instance]:
        try:
            return await self._provider.list()
        except AuthFailed:
            self.denied = True
            raise


async def whole_look(
    providers: Mapping[str, Listed], workload: Workload, limit: float, steady: Callable[[], float]
) -> Observation:
    """What every source shows, each waited for as long as it may take."""
    answered = asyncio.Event()
    observer = Observer(cast(Mapping[str, Provider], providers), workload, lambda: limit, steady, answered.set)
    try:
        look, deadline = await observer.look(), steady() + limit
        while look.awaited and (left := deadline - steady()) > 0:
            answered.clear()
            try:
                await asyncio.wait_for(answered.wait(), left + 0.1)
            except TimeoutError:
                break
            look = await observer.look()
        return look
    finally:
        await observer.close()
