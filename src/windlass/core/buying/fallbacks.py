"""This module excludes fallback groups while another group of their family is available.

The on-demand offers of a family with ``market: spot-first`` are fallbacks. Whether a group is available depends on the
work: a task must fit, and the limits and the provider must allow one more slice. Groups of other families do not count.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from windlass.core.capacity.limits import LimitCounter
from windlass.core.capacity.room import Bools, Need, Room
from windlass.core.model.snapshot import Group


def without_fallbacks(
    groups: Sequence[Group], fresh: Room, limits: LimitCounter, needs: Sequence[Need], eligible: Bools, gang: bool
) -> Bools:
    """Returns ``eligible`` ([need, group]) without the fallbacks of families that have another available group.

    ``fresh`` is the room of an empty node of each group.
    """
    families = sorted({group.family for group in groups if group.fallback})
    if not families or not needs:
        return eligible
    had = eligible & np.array([fresh.capacity(need) > 0 for need in needs], np.bool_)
    had &= np.array([not one.fallback and limits.headroom(at, gang) > 0 for at, one in enumerate(groups)], np.bool_)
    found = eligible.copy()
    for family in families:
        mine = np.array([group.family == family for group in groups], np.bool_)
        later = mine & np.array([group.fallback for group in groups], np.bool_)
        found[np.ix_(had[:, mine].any(axis=1), later)] = False
    return found


def first_choices(groups: Sequence[Group], candidates: Collection[int]) -> list[int]:
    """Returns the candidates, in order, without the fallbacks of families that have another candidate."""
    had = {groups[one].family for one in candidates if not groups[one].fallback}
    return sorted(one for one in candidates if not (groups[one].fallback and groups[one].family in had))
