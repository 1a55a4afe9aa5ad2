"""This module observes a live cluster once, without changing it: its providers, its workload and its journal.

It uses the controller's observer and fold, and no actuator: nothing that is called here changes anything,
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
from windlass.workloads.protocol import StoredWorkload, Workload

from .open_journal import is_missing, why_closed


@dataclass(frozen=True, slots=True)
class LiveView:
    """One observation of a live cluster, with the state of its journal."""

    observation: Observation
    controller_state: ControllerState
    """The state in the journal; empty if there is no journal yet."""
    observed: Observed
    fold: Fold
    """The fleet after the observation is applied."""
    now: float
    settings: Settings
    """The settings of the configuration, with the groups that the workload defines."""
    denied: frozenset[str] = frozenset()
    """Providers that refused the credentials."""

    def planned(self) -> tuple[Snapshot, Plan]:
        """Return the plan that a controller would make now."""
        return plan_fleet(self.fold.fleet, self.observed, self.settings, self.now)


def seen(config: Config, *, remembered: bool = True) -> LiveView:
    """Observe everything that a configuration names, once. ``JournalError``: the journal is there, and not readable.

    Without ``remembered`` the journal is left alone.
    """
    observation, denied = asyncio.run(_observed(config, remembered))
    controller_state = (
        known(config) if remembered else ControllerState()
    )  # after the observation: everything that is listed had its record before
    now = time.time()
    settings = config.settings
    if observation.work is not None:
        settings = with_workload_groups(settings, observation.work.shown.groups)
    observed = observed_now(controller_state, observation, settings)
    folded = fold(controller_state.fleet, observed, settings, now)
    return LiveView(observation, controller_state, observed, folded, now, settings, denied)


def known(config: Config) -> ControllerState:
    """Return the state in the journal with orders that no leader has read yet; empty if there is no journal."""
    location = config.journal.location
    if location == ":memory:" or is_missing(config):
        return ControllerState()
    try:
        with open_journal(location, create=False) as journal:
            controller_state = read_state(journal)
            orders = [order for _, order in orders_after(journal, controller_state.applied_orders.get(ORDERS, 0))]
            families = config.settings.families
    except JournalError as error:
        raise JournalError(why_closed(config, error)) from error
    return replace(controller_state, fleet=apply_orders(controller_state.fleet, orders, time.time(), families))


def cluster_of(config: Config) -> ClusterIdentity:
    """Return the identity of the cluster of a configuration; without an id if there is no journal yet."""
    name, location = config.settings.cluster.name, config.journal.location
    if location == ":memory:" or is_missing(config):
        return ClusterIdentity(name)
    try:
        with open_journal(location, create=False) as journal:
            return ClusterIdentity(name, journal.cluster_id)
    except JournalError:  # reported by the code that reads the journal
        return ClusterIdentity(name)


async def _observed(config: Config, remembered: bool) -> tuple[Observation, frozenset[str]]:
    components, limit = build_components(config, read_only=True), config.settings.policy.observe_timeout
    cluster = cluster_of(config)
    for one in components.providers.values():
        one.bind(cluster)
    if isinstance(components.workload, StoredWorkload) and remembered and known(config).fleet.has_joined:
        components.workload.expect_state()
    try:
        providers = {name: Listed(provider) for name, provider in components.providers.items()}
        observation = await observe_all(providers, components.workload, limit, time.monotonic)
        return observation, frozenset(name for name, one in providers.items() if one.denied)
    finally:
        await components.close()


class Listed:
    """Wraps a provider for reading only, and remembers whether it refused the credentials."""

    def __init__(self, provider: Provider) -> None:
        self._provider, self.denied = provider, False

    async def list(self) -> Sequence[Instance]:
        try:
            return await self._provider.list()
        except AuthFailed:
            self.denied = True
            raise


async def observe_all(
    providers: Mapping[str, Listed], workload: Workload, limit: float, steady: Callable[[], float]
) -> Observation:
    """Observe every source, each with its time limit."""
    answered = asyncio.Event()
    observer = Observer(cast(Mapping[str, Provider], providers), workload, lambda: limit, steady, answered.set)
    try:
        observation, deadline = await observer.observe(), steady() + limit
        while observation.awaited and (left := deadline - steady()) > 0:
            answered.clear()
            try:
                async with asyncio.timeout(left + 0.1):
                    await answered.wait()
            except TimeoutError:
                break
            observation = await observer.observe()
        return observation
    finally:
        await observer.close()
