"""Looking at a live cluster without touching it: what its providers and its workload show, and what the journal knows.

The same observer and the same fold as the controller's, and no actuator: nothing that is called here changes anything,
and nothing is written, so it may be done beside a controller that runs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

from windlass.config import Config
from windlass.config.build import assembled
from windlass.control.observe.observed import sighted_after
from windlass.control.observe.observer import Look, Observer
from windlass.control.reconcile.cycle import ORDERS
from windlass.control.reconcile.operator_orders import obeyed, orders_after
from windlass.control.reconcile.transitions import Fold, fold
from windlass.control.record.journal_tables import SETTINGS, Chronicle
from windlass.control.report.current import chronicle_of
from windlass.journal import JournalError, open_journal
from windlass.providers.protocol import AuthFailed, Instance, Provider
from windlass.workloads.protocol import Workload

from .open_journal import is_missing, why_closed

NOT_YET: Final = "has not answered yet"
"""The trouble of a source whose first look is still under way."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What shows of a cluster now."""

    look: Look
    chronicle: Chronicle
    """By the journal; empty if there is none yet."""
    fold: Fold
    """The book of the journal with what shows folded in."""
    now: float
    denied: frozenset[str] = frozenset()
    """Providers that refuse our credentials."""


def seen(config: Config, *, remembered: bool = True) -> Sight:
    """Look at everything that a configuration names, once. ``JournalError``: the journal is there, and not readable.

    Without ``remembered`` the journal is left alone.
    """
    look, denied = asyncio.run(_looked(config))
    chronicle = known(config) if remembered else Chronicle()  # after the look: whatever is listed had its record before
    now = time.time()
    settings, was = config.settings, chronicle.settings.get(SETTINGS)
    sighted = sighted_after(chronicle.sighted, look.instances, look.work, look.troubles, was, settings)
    folded = fold(chronicle.book, sighted, settings, now)
    return Sight(look, chronicle, folded, now, denied)


def known(config: Config) -> Chronicle:
    """What the journal knows, with the orders that no leader has heard yet; nothing, if there is no journal yet."""
    location = config.journal.location
    if location == ":memory:" or is_missing(config):
        return Chronicle()
    try:
        with open_journal(location, create=False) as journal:
            chronicle = chronicle_of(journal)
            orders = [order for _, order in orders_after(journal, chronicle.heard.get(ORDERS, 0))]
    except JournalError as error:
        raise JournalError(why_closed(config, error)) from error
    return replace(chronicle, book=obeyed(chronicle.book, orders, time.time()))


async def _looked(config: Config) -> tuple[Look, frozenset[str]]:
    plant, limit = assembled(config, look_only=True), config.settings.policy.observe_timeout
    try:
        providers = {name: Listed(provider) for name, provider in plant.providers.items()}
        look = await whole_look(providers, plant.workload, limit, time.monotonic)
        return look, frozenset(name for name, one in providers.items() if one.denied)
    finally:
        await plant.close()


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
) -> Look:
    """What every source shows, each waited for as long as it may take."""
    answered = asyncio.Event()
    observer = Observer(cast(Mapping[str, Provider], providers), workload, lambda: limit, steady, answered.set)
    try:
        look, deadline = await observer.look(), steady() + limit
        while NOT_YET in look.troubles.values() and (left := deadline - steady()) > 0:
            answered.clear()
            try:
                await asyncio.wait_for(answered.wait(), left + 0.1)
            except TimeoutError:
                break
            look = await observer.look()
        return look
    finally:
        await observer.close()
