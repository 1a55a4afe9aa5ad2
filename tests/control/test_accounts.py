"""The accounts add up to the bill: to the last whole number, whatever happens, also over restarts."""

from __future__ import annotations

import asyncio

from hypothesis import given

from tests.control.histories import SETTINGS, Step, live, steps
from tests.control.worlds import Survivor, World
from windlass.control.record.costs import charged


@given(steps)
def test_the_accounts_add_up_to_price_times_time(life: list[Step]) -> None:
    world = World(settings=SETTINGS)
    over: dict[str, int] = {}
    """What was paid for slices while they were billed, by group."""
    open_: dict[str, tuple[str, int, int]] = {}

    def add_up(alive: Survivor) -> None:
        """Every slice by itself: from when it is billed until it is not."""
        nonlocal open_
        now = round(world.time * 10**6)
        state = alive.controller.controller_state
        billed = {
            name: (one.group, one.price, round(one.billed_since * 10**6))
            for name, one in state.fleet.slices.items()
            if one.billed_since is not None
        }
        for name in open_.keys() - billed.keys():
            group, price, since = open_[name]
            over[group] = over.get(group, 0) + price * (now - since)
        open_ = billed
        bill = dict(over)
        for group, price, since in open_.values():
            bill[group] = bill.get(group, 0) + price * (now - since)
        accounts = charged(state.account, state.fleet, state.stay, world.time)
        assert {group: account.total for group, account in accounts.items() if account.total} == {
            group: amount for group, amount in bill.items() if amount
        }

    asyncio.run(live(world, life, add_up))
