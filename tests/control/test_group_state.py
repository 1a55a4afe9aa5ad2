"""A group says while it is asked for more, and while it has all that it may have."""

from __future__ import annotations

from windlass.control.report.status import GroupStatus
from windlass.core.model.reasons import Code, Reason
from windlass.core.model.snapshot import Availability


def group(*, requesting: int = 0, code: Code | None = None, availability: Availability | None = None) -> GroupStatus:
    why = None if code is None else Reason(code, "because")
    return GroupStatus("g", 0, requesting, 0, 0, None, 0, availability or Availability(), "", None, why, requesting)


def test_a_group_is_requesting_while_a_launch_is_under_way_and_at_max_while_it_may_have_no_more() -> None:
    assert group().state == "available"
    assert group(requesting=1).state == "requesting"
    assert group(requesting=1, code=Code.AT_MAX).state == "at_max"
    assert group(requesting=1, availability=Availability("backoff", 5.0, "none left")).state == "backoff"
    assert group(requesting=1).to_dict()["availability"]["state"] == "requesting"
