"""Time limits: the table of states names the setting of each, and the policy has its value."""

from __future__ import annotations

from dataclasses import fields

from windlass.control.settings import Policy
from windlass.core.model.lifecycle import TABLE, State


def test_the_limit_of_a_state_is_the_setting_that_the_table_names() -> None:
    policy = Policy(boot_timeout=77, drain_timeout=5)
    assert policy.limit_of(State.BOOTING) == 77
    assert policy.limit_of(State.DRAINING) == 5
    assert policy.limit_of(State.READY) is None


def test_every_setting_that_the_table_names_exists_and_has_the_default_of_the_table() -> None:
    known = {one.name for one in fields(Policy)}
    for state, row in TABLE.items():
        assert not row.limit_setting or row.limit_setting in known
        assert not row.limit_setting or Policy().limit_of(state) == row.limit
