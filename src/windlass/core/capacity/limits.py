"""LimitCounter counts how many slices of each group may still be bought, and names the limit that forbids more.

Limits count every slice from QUEUED until it is confirmed gone, also those that this plan drains. A slice that is
cancelled while QUEUED stops counting at once. Money is counted in whole nanodollars.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from windlass.core.model.lifecycle import COUNTED, ENDING, IN_FLIGHT, State
from windlass.core.model.quantities import format_money
from windlass.core.model.reasons import Code, Reason, plural, seconds
from windlass.core.model.snapshot import Availability, Cluster, Family, Group, Seconds, Slice

from .room import UNBOUNDED

BOUNDLESS = 2**62
"""More money than any limit."""


def probing(availability: Availability, now: Seconds) -> bool:
    """Whether the back-off is over: one slice in flight at a time shows whether the provider has capacity again."""
    return availability.state == "backoff" and (availability.until is None or now >= availability.until)


def blocked(availability: Availability, now: Seconds) -> bool:
    """Whether no launch is allowed for now."""
    if availability.state == "available":
        return False
    if availability.until is None:
        return availability.state == "quota_exceeded"
    return now < availability.until


@dataclass(frozen=True, slots=True)
class LimitScope:
    """The groups over which one ``min``, ``max`` and ``spare`` hold: one group, or the groups of a family."""

    name: str
    groups: tuple[int, ...]
    min: int
    max: int
    spare: int
    family: bool

    def __str__(self) -> str:
        return f"family {self.name}" if self.family else self.name


def limit_scopes(groups: Sequence[Group], families: Sequence[Family]) -> tuple[LimitScope, ...]:
    """Returns a scope for each group, in their order, then one for each family that has groups, by name."""
    alone = [LimitScope(one.name, (at,), one.min, one.max, one.spare, False) for at, one in enumerate(groups)]
    for family in sorted(families, key=lambda one: one.name):
        members = tuple(at for at, one in enumerate(groups) if one.family == family.name)
        if members:
            alone.append(LimitScope(family.name, members, family.min, family.max, family.spare, True))
    return tuple(alone)


def family_index(groups: Sequence[Group], scopes: Sequence[LimitScope]) -> list[int]:
    """Returns for each group the index of its family's scope; -1: it has none."""
    places = {scope.name: at for at, scope in enumerate(scopes) if scope.family}
    return [places.get(group.family, -1) if group.family else -1 for group in groups]


class LimitCounter:
    """Counts existing slices and those that this plan adds against every limit."""

    def __init__(
        self,
        cluster: Cluster,
        groups: Sequence[Group],
        counts: Mapping[tuple[int | None, State], int],
        released: Mapping[tuple[int | None, State], int],
        slices_without_group: Iterable[Slice],
        now: Seconds,
    ) -> None:
        """``counts`` and ``released``: how many slices of each group are in each state, and how many of those this plan
        releases. ``slices_without_group``: the slices of no group; each has its own number of nodes and price."""
        self.cluster = cluster
        self.groups = groups
        self.now = now
        self.trusting = False
        """Count as if a provider whose back-off is over had capacity again, to find out what the plan would be then."""
        self.closed = False
        """Nothing may be bought at all."""
        self._later = self._lifted = False
        self.counted = [0] * len(groups)
        self.in_flight = [0] * len(groups)
        self.ending = [0] * len(groups)
        """Slices that are counted, but are already ending and only need to be confirmed gone."""
        self.new = [0] * len(groups)
        self.scopes = limit_scopes(groups, cluster.families)
        self.family_of = family_index(groups, self.scopes)
        self._of_family: dict[int, int] = {}
        """Slices that count for the max of each family, by the index of its scope."""
        self.nodes = self.cost = self.all_in_flight = self.bought = 0
        for (group, state), there in counts.items():
            gone = released.get((group, state), 0) if state in IN_FLIGHT else 0
            count = there - gone if state == State.QUEUED else there
            if state not in COUNTED:
                continue
            in_flight = there - gone if state in IN_FLIGHT else 0
            self.all_in_flight += in_flight
            if group is None:
                continue
            self.counted[group] += count
            self.in_flight[group] += in_flight
            self.ending[group] += count if state in ENDING else 0
            self.nodes += groups[group].hosts * count
            self.cost += (groups[group].price or 0) * count
        # All slices of a removed group are released, so queued ones stop counting.
        for item in slices_without_group:
            if item.state in COUNTED and item.state != State.QUEUED:
                self.nodes += item.taken_nodes
                self.cost += item.price
        self._count_families()

    def _count_families(self) -> None:
        for at in range(len(self.groups), len(self.scopes)):
            members = self.scopes[at].groups
            self._of_family[at] = sum([self.counted[group] + self.new[group] for group in members])

    def copy_state(self) -> tuple[list[int], int, int, int]:
        return self.new.copy(), self.nodes, self.cost, self.bought

    def restore(self, state: tuple[list[int], int, int, int]) -> None:
        new, self.nodes, self.cost, self.bought = state
        self.new = new.copy()
        self._count_families()

    def add(self, group: int, slices: int) -> None:
        """Counts slices that this plan launches."""
        self.new[group] += slices
        if (scope := self.family_of[group]) >= 0:
            self._of_family[scope] += slices
        self.nodes += self.groups[group].hosts * slices
        self.cost += (self.groups[group].price or 0) * slices
        self.bought += slices

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Counts, inside this context, as if there were no limits."""
        self._lifted = True
        try:
            yield
        finally:
            self._lifted = False

    @contextmanager
    def later(self) -> Iterator[None]:
        """Counts, inside this context, as if time had passed: ending slices are gone, nothing is in flight, and every
        provider has capacity."""
        self._later = True
        self._end(1)
        try:
            yield
        finally:
            self._end(-1)
            self._later = False

    def _end(self, times: int) -> None:
        for group, kind in enumerate(self.groups):
            many = self.ending[group] * times
            self.counted[group] -= many
            self.nodes -= kind.hosts * many
            self.cost -= (kind.price or 0) * many
        self._count_families()

    # -- room under each ceiling ------------------------------------------------------------------------------------

    def under_max(self, group: int) -> int:
        if self._lifted:
            return UNBOUNDED
        return max(0, self.groups[group].max - self.counted[group] - self.new[group])

    def families_left(self) -> list[int]:
        """Returns for each family, in the order of their scopes, the slices that its max still allows."""
        if self._lifted:
            return [UNBOUNDED] * len(self._of_family)
        return [max(0, self.scopes[at].max - have) for at, have in self._of_family.items()]

    def under_family(self, group: int) -> int:
        scope = self.family_of[group]
        if scope < 0 or self._lifted:
            return UNBOUNDED
        return max(0, self.scopes[scope].max - self._of_family[scope])

    def under_rate(self, group: int, gang: bool = False) -> int:
        """Returns the launches that may be added to those in flight. A gang may exceed the limit if no slice of the
        group is in flight."""
        limit, in_flight = self.groups[group].max_launching, self.in_flight[group] + self.new[group]
        if limit is None or self._later or self._lifted or (gang and limit and not in_flight):
            return UNBOUNDED
        return max(0, limit - in_flight)

    def under_cluster_rate(self, gang: bool = False) -> int:
        limit, in_flight = self.cluster.max_launching, self.all_in_flight + self.bought
        if limit is None or self._later or self._lifted or (gang and limit and not in_flight):
            return UNBOUNDED
        return max(0, limit - in_flight)

    def nodes_left(self) -> int:
        limit = self.cluster.max_nodes
        return UNBOUNDED if limit is None or self._lifted else max(0, limit - self.nodes)

    def money_left(self) -> int:
        limit = self.cluster.max_hourly_cost
        return BOUNDLESS if limit is None or self._lifted else max(0, limit - self.cost)

    def available(self, group: int) -> int:
        availability = self.groups[group].availability
        if self._later or self._lifted:
            return UNBOUNDED
        if blocked(availability, self.now):
            return 0
        if probing(availability, self.now) and not self.trusting:
            return max(0, 1 - self.in_flight[group] - self.new[group])
        return UNBOUNDED

    def own_headroom(self, group: int, gang: bool = False) -> int:
        """Returns the slices that the group's own limits, its operator and its provider allow."""
        if (self.groups[group].frozen and not self._lifted) or self.closed:
            return 0
        return min(self.under_max(group), self.under_rate(group, gang), self.available(group))

    def headroom(self, group: int, gang: bool = False) -> int:
        """Returns the slices of this group alone that every limit allows."""
        price = self.groups[group].price or 0
        return min(
            self.own_headroom(group, gang),
            self.under_family(group),
            self.under_cluster_rate(gang),
            self.nodes_left() // self.groups[group].hosts,
            self.money_left() // price if price else UNBOUNDED,
        )

    # -- which limit says no ----------------------------------------------------------------------------------------

    def refusal(self, group: int, slices: int, gang: bool = False) -> Reason | None:
        """Returns the first limit that does not allow ``slices`` more slices, with its numbers."""
        kind = self.groups[group]
        have = self.counted[group] + self.new[group]
        many = "" if slices == 1 else f" ({slices} more are needed)"
        if kind.frozen:
            return Reason(Code.FROZEN, f"{kind.name} is frozen: nothing is launched in it until it is resumed")
        family = self.family_of[group]
        by_family = self.under_family(group) < slices
        if self.under_max(group) < slices and not (by_family and self.scopes[family].max <= kind.max):
            return Reason(Code.AT_MAX, _at_max(self.scopes[group], have) + many + self._leaving(group))
        if by_family:
            return Reason(Code.AT_MAX, _at_max(self.scopes[family], self._of_family[family]) + many)
        if self.under_rate(group, gang) < slices:
            in_flight = self.in_flight[group] + self.new[group]
            why = f"{kind.name} may have {kind.max_launching} in flight at once and has {in_flight}{many}"
            return Reason(Code.RATE_LIMITED, why)
        if self.under_cluster_rate(gang) < slices:
            in_flight, limit = self.all_in_flight + self.bought, self.cluster.max_launching
            return Reason(
                Code.RATE_LIMITED, f"the cluster may have {limit} in flight at once and has {in_flight}{many}"
            )
        if self.nodes_left() < slices * kind.hosts:
            why = f"{self._with_more_nodes(slices * kind.hosts)}, the cluster's max is {self.cluster.max_nodes}"
            return Reason(Code.MAX_NODES, f"{kind.name}: {why}")
        price = (kind.price or 0) * slices
        if price and self.money_left() < price:
            limit_money = format_money(self.cluster.max_hourly_cost or 0)
            why = f"{self._with_more(price)}, the ceiling is {limit_money}/h"
            return Reason(Code.BUDGET, f"{kind.name}: {why}")
        if self.available(group) < slices:
            return self._unavailable(group, many)
        return None

    def _with_more(self, price: int) -> str:
        """Says what the cluster would cost with a launch."""
        total = format_money(self.cost + price)
        return f"{format_money(self.cost)}/h and {format_money(price)}/h more would be {total}/h"

    def _with_more_nodes(self, nodes: int) -> str:
        """Says how many nodes the cluster would have with a launch."""
        return f"{plural(self.nodes, 'node')} and {nodes} more would be {self.nodes + nodes}"

    def _leaving(self, group: int) -> str:
        """Says that slices of a group are ending and stop counting when they are gone."""
        ending = self.ending[group]
        if not ending:
            return ""
        return f"; {ending} of them {'is' if ending == 1 else 'are'} ending, which makes room when confirmed gone"

    def refusal_of_mix(self, mix: Mapping[int, int], gang: bool) -> Reason | None:
        """Returns the first limit over all groups that does not allow slices of several groups at once."""
        slices = sum(mix.values())
        nodes = sum(self.groups[group].hosts * count for group, count in mix.items())
        price = sum((self.groups[group].price or 0) * count for group, count in mix.items())
        names = " and ".join(f"{count} {self.groups[group].name}" for group, count in sorted(mix.items()))
        for at, left in enumerate(self.families_left(), len(self.groups)):
            if sum(count for group, count in mix.items() if self.family_of[group] == at) > left:
                full = _at_max(self.scopes[at], self._of_family[at])
                return Reason(Code.AT_MAX, f"{full} ({names} are needed)")
        if self.under_cluster_rate(gang) < slices:
            limit, in_flight = self.cluster.max_launching, self.all_in_flight + self.bought
            why = f"the cluster may have {limit} in flight at once and has {in_flight}"
            return Reason(Code.RATE_LIMITED, f"{why} ({names} are needed)")
        if self.nodes_left() < nodes:
            why = f"{self._with_more_nodes(nodes)}, the cluster's max is {self.cluster.max_nodes}"
            return Reason(Code.MAX_NODES, f"{names}: {why}")
        if self.money_left() < price:
            limit_money = format_money(self.cluster.max_hourly_cost or 0)
            why = f"{self._with_more(price)}, the ceiling is {limit_money}/h"
            return Reason(Code.BUDGET, f"{names}: {why}")
        return None

    def _unavailable(self, group: int, many: str) -> Reason:
        kind = self.groups[group]
        belief = kind.availability
        because = f" ({belief.why})" if belief.why else ""
        if not blocked(belief, self.now):
            why = f"{kind.name} was refused{because}: one launch at a time until one succeeds{many}"
            return Reason(Code.BACKOFF, why)
        until = "" if belief.until is None else f", next try in {seconds(belief.until - self.now)}"
        if belief.state == "quota_exceeded":
            return Reason(Code.QUOTA, f"{kind.name} has no quota left{because}{until}")
        return Reason(Code.BACKOFF, f"{kind.name} is in back-off{because}{until}")


def _at_max(scope: LimitScope, have: int) -> str:
    if have >= scope.max:
        return f"{scope} is at its max of {scope.max}"
    return f"{scope} has {have} of at most {plural(scope.max, 'machine')}"
