"""The accounts add up to the bill: to the last whole number, whatever happens, also over restarts."""

from __future__ import annotations

import asyncio

from hypothesis import given

from tests.control.histories import SETTINGS, Step, live, steps
from tests.control.worlds import Survivor, World
from windlass.control.record.costs import charged
from windlass.core.model.lifecycle import State

FREE = {State.QUEUED, State.REQUESTING}
"""States of a record in which there is nothing to pay for yet."""


@given(steps)
def test_the_accounts_add_up_to_price_times_time(life: list[Step]) -> None:
    world = World(settings=SETTINGS)
    bill: dict[str, int] = {}
    since = round(world.time * 10**6)
    running: dict[str, tuple[str, int]] = {}

    def add_up(alive: Survivor) -> None:
        """What was there since the last pass is paid for until now; then whatever is there now begins."""
        nonlocal since, running
        now = round(world.time * 10**6)
        for group, price in running.values():
            bill[group] = bill.get(group, 0) + price * (now - since)
        fleet = alive.controller.controller_state.fleet
        since = now
        running = {name: (one.group, one.price) for name, one in fleet.slices.items() if one.state not in FREE}
        controller_state = alive.controller.controller_state
        accounts = charged(controller_state.account, fleet, controller_state.stay, world.time)
        assert {group: account.total for group, account in accounts.items() if account.total} == {
            group: amount for group, amount in bill.items() if amount
        }

    asyncio.run(live(world, life, add_up))
