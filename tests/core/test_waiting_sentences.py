"""The sentence of a job that waits: how long it has waited, and the reason."""

from __future__ import annotations

import pytest

from windlass.core.model.plan import Waiting
from windlass.core.model.reasons import Code, Reason

FULL = Reason(Code.AT_MAX, "worker is at its max of 4")


@pytest.mark.parametrize(
    ("waited", "sentence"),
    [
        (None, "worker is at its max of 4"),
        (0.015, "waits: worker is at its max of 4"),
        (5.7, "waits 5.7 s: worker is at its max of 4"),
        (400.0, "waits 6 min: worker is at its max of 4"),
    ],
)
def test_parts_of_a_second_are_not_reported(waited, sentence):
    assert Waiting("burst", 16, FULL, {}, waited).why == sentence
