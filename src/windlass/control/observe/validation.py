"""Validation checks the answers of providers and workloads before anything uses them.

A malformed list or view is unknown as a whole: dropping one record would make it look gone. A malformed demand is
dropped alone and reported.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Any, Final

from windlass.control.state.codec import from_plain, to_plain
from windlass.core.model.snapshot import Bundle, Demand, Gang
from windlass.providers.protocol import Host, Instance
from windlass.workloads.protocol import Acknowledgement, WorkloadView, WorkNode

from .interning import InternedTable

MOST: Final = 2**60
"""Larger amounts are a mistake: the sums of a cluster must fit into 64 bits."""
MOST_MEMBERS: Final = 100_000
"""Most members of a gang: planning for this many takes about a second."""


class InvalidAnswer(Exception):
    """An answer is malformed."""


class Lists:
    """Checks a provider's lists."""

    def __init__(self) -> None:
        self._instances = InternedTable(Instance, "slice_id", _is_whole_instance)

    def known(self, instances: Mapping[str, Instance]) -> None:
        """Start from instances that were listed before."""
        self._instances.known(instances)

    def __call__(self, answer: object) -> Mapping[str, Instance]:
        """Return the list by slice; raise ``InvalidAnswer`` if an item is not an instance, or an id is repeated."""
        return self._instances.take(_many(answer, "instances"), _no_instance, _listed_twice)


def _no_instance(one: object) -> None:
    raise InvalidAnswer(f"its list holds {_shown(one)}, which is not an instance")


def _listed_twice(name: str) -> None:
    raise InvalidAnswer(f"its list shows {name} twice")


@dataclass(frozen=True, slots=True)
class ValidView:
    """A workload's view as tables, and a sentence for each demand in it that was left out."""

    demand: Mapping[str, Demand]
    request: Mapping[str, Demand]
    node: Mapping[str, WorkNode]
    acknowledgement: Mapping[str, Acknowledgement]
    mistakes: tuple[str, ...]
    shown: WorkloadView
    """The view as the workload gave it."""

    @property
    def view(self) -> WorkloadView:
        """The view in its original order, without the invalid parts."""
        nodes = dict.fromkeys([node.id for node in self.shown.nodes])
        return WorkloadView(
            demands=tuple(self.demand.values()),
            requests=tuple(self.request.values()),
            nodes=tuple([self.node[name] for name in nodes]),
            acknowledged=tuple(self.acknowledgement.values()),
        )


class Views:
    """Checks a workload's views."""

    def __init__(self) -> None:
        self._demands = InternedTable(Demand, "id", _is_whole_demand)
        self._requests = InternedTable(Demand, "id", _is_whole_demand)
        self._nodes = InternedTable(WorkNode, "id", _is_whole_node)

    def known(
        self, demands: Mapping[str, Demand], requests: Mapping[str, Demand], nodes: Mapping[str, WorkNode]
    ) -> None:
        """Start from a view that was valid before."""
        self._demands.known(demands)
        self._requests.known(requests)
        self._nodes.known(nodes)

    def __call__(self, answer: object) -> ValidView:
        """Return the view; raise ``InvalidAnswer`` if it is malformed. Malformed demands alone are left out."""
        if not isinstance(answer, WorkloadView):
            raise InvalidAnswer(f"its view is {_shown(answer)}")
        mistakes: list[str] = []

        def strange(demand: Any) -> None:
            if not isinstance(demand, Demand) or not _is_name(demand.id):
                mistakes.append(f"{_shown(demand)} is no demand")
            else:
                mistakes.append(f"demand {demand.id} is not valid: {_shown(demand)}")

        def twice(name: str) -> None:
            mistakes.append(f"demand {name} is given twice; the first counts")

        return ValidView(
            node=self._nodes.take(_many(answer.nodes, "nodes"), _no_node, _is_fine),
            acknowledgement=_checked_acknowledgements(_many(answer.acknowledged, "acknowledgements")),
            demand=self._demands.take(_many(answer.demands, "demands"), strange, twice),
            request=self._requests.take(_many(answer.requests, "demands"), strange, twice),
            mistakes=tuple(mistakes),
            shown=answer,
        )


LONGEST_TEXT = 10_000
"""Most characters of a provider's note about a slice."""


def _no_node(one: object) -> None:
    raise InvalidAnswer(f"its view holds {_shown(one)}, which is not a node")


def _is_fine(name: str) -> None:
    """Accept a node that is listed twice: it counts once."""


def _checked_acknowledgements(given: Iterable[object]) -> dict[str, Acknowledgement]:
    """Return one acknowledgement for each slice: of its newest fence, and of two the one with more running tasks."""
    found: dict[str, Acknowledgement] = {}
    for one in given:
        if not isinstance(one, Acknowledgement) or not _is_acknowledgement(one):
            raise InvalidAnswer(f"its view holds {_shown(one)}, which is not an acknowledgement")
        before = found.get(one.slice_id)
        if before is None or (before.epoch, before.running) < (one.epoch, one.running):
            found[one.slice_id] = one
    return found


def _is_acknowledgement(one: Any) -> bool:
    return (
        _is_name(one.slice_id)
        and _is_count(one.epoch)
        and _is_count(one.running)
        and type(one.final) is bool
        and isinstance(one.refused, str)
    )


def _is_whole_instance(one: Any) -> bool:
    return (
        _is_name(one.slice_id)
        and _is_name(one.group)
        and one.state in ("pending", "running", "ending", "ended")
        and isinstance(one.hosts, tuple | list)
        and all(isinstance(host, Host) and _is_whole_host(host) for host in one.hosts)
        and _is_time(one.preempted_at)
        and (one.zone == "" or _is_name(one.zone))
        and (one.price is None or _is_count(one.price))
        and all(isinstance(text, str) and len(text) <= LONGEST_TEXT for text in (one.phase, one.trouble))
        and _is_time(one.phase_since)
        and _is_time(one.ended_at)
        and _is_time(one.started_at)
    )


def _is_whole_host(host: Any) -> bool:
    return (
        _is_name(host.id)
        and type(host.running) is bool
        and (host.exit_code is None or type(host.exit_code) is int)
        and isinstance(host.last_output, str)
        and len(host.last_output) <= LONGEST_TEXT
    )


def _is_whole_node(node: Any) -> bool:
    return (
        _is_name(node.id)
        and _is_name(node.slice_id)
        and _are_amounts(node.used)
        and _is_count(node.tasks)
        and _is_time(node.idle_since)
        and isinstance(node.labels, Mapping)
        and all(_is_name(key) and (value == "" or _is_name(value)) for key, value in node.labels.items())
        and type(node.healthy) is bool
        and (node.present is None or _are_amounts(node.present))
        and isinstance(node.trouble, str)
        and isinstance(node.activity, str)
        and isinstance(node.lost, str)
        and (node.classes == () or _are_amounts(node.classes))
        and _are_amounts(node.jobs)
    )


def _is_whole_demand(demand: Demand) -> bool:
    try:
        bundles = demand.bundles
        return (
            _is_name(demand.id)
            and all(type(number) is int for number in (demand.priority, *(bundle.count for bundle in bundles)))
            and all(_are_amounts(bundle.needs) for bundle in bundles)
            and (demand.gang is None or _is_gang(demand))
            and _is_time(demand.since)
            and _is_time(demand.deadline)
            and _are_conditions(demand.where, demand.prefer, demand.tolerates)
            and _places_well(demand)
            and all(map(_places_well, bundles))
        )
    except Exception:  # noqa: BLE001  # whatever goes wrong with one demand is that demand's fault
        return False


def _is_gang(demand: Demand) -> bool:
    """Whether a demand is small enough to plan: its members are counted one by one, and their needs are added up."""
    total = sum(abs(amount) * bundle.count for bundle in demand.bundles for _, amount in bundle.needs)
    return isinstance(demand.gang, Gang) and len(demand.bundles) > 0 and demand.count <= MOST_MEMBERS and total < MOST


def _places_well(part: Demand | Bundle) -> bool:
    """Whether alternatives, classes and constraints, and the conditions of a bundle, are of the right kind."""
    if type(part) is Bundle and not _are_conditions(part.where, part.prefer, part.tolerates):
        return False
    plain = not (part.any_of or part.classes or part.apart or part.spread or part.together)
    return plain or _are_constraints(part.any_of, part.classes, part.apart, part.spread, part.together)


@lru_cache(maxsize=1000)
def _are_constraints(any_of: object, classes: object, apart: object, spread: object, together: object) -> bool:
    """Whether these are constraints of the right types, with numbers in range."""
    # The types are what is checked, so they are not known yet.
    some = Demand("", (), any_of=any_of, classes=classes, apart=apart, spread=spread, together=together)  # type: ignore[arg-type]
    plain = json.dumps(to_plain(some), ensure_ascii=False)
    if not _is_name(plain) or "\\u0000" in plain or from_plain(Demand, json.loads(plain)) != some:
        return False
    rules = some.rules
    numbers = [*(rule.at_most for rule in rules.apart), *(rule.max_skew - 1 for rule in rules.spread)]
    return all(type(name) is str for name in rules.classes) and all(0 <= number < MOST for number in numbers)


@lru_cache(maxsize=1000)
def _are_conditions(where: object, prefer: object, tolerates: object) -> bool:
    """Whether these are conditions and tolerations of the right types: then they are equal after encoding and
    decoding."""
    if not where and not prefer and not tolerates:
        return (where, prefer, tolerates) == ((), (), ())
    some = Demand("", (), where=where, prefer=prefer, tolerates=tolerates)  # type: ignore[arg-type]  # checked here
    plain = json.dumps(to_plain(some), ensure_ascii=False)
    return _is_name(plain) and "\\u0000" not in plain and from_plain(Demand, json.loads(plain)) == some


def _are_amounts(values: object) -> bool:
    return isinstance(values, tuple) and all(
        isinstance(one, tuple) and len(one) == 2 and _is_name(one[0]) and type(one[1]) is int and -MOST < one[1] < MOST
        for one in values
    )


def _many(values: object, what: str) -> list[object] | tuple[object, ...]:
    if not isinstance(values, list | tuple):
        raise InvalidAnswer(f"its {what} are {_shown(values)}")
    return values


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value >= 0


def _is_name(value: object) -> bool:
    """Whether text can be stored: not empty, without NUL and without lone surrogates."""
    if not isinstance(value, str) or not value or "\0" in value:
        return False
    try:
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False


def _is_time(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and isfinite(value))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
