"""Checking: what a provider or a workload answered is what it should be, or it counts as no answer.

A list or a view of the wrong kind is unknown as a whole: to leave a record out would make it look gone. A demand that
makes no sense is left out alone, with a sentence for people: what is not understood can be told, and not planned.
"""

from __future__ import annotations

from math import isfinite

from windlass.core.snapshot import Demand
from windlass.providers.protocol import Instance
from windlass.workloads.protocol import Acknowledgement, WorkloadView, WorkNode


class Garbage(Exception):
    """An answer that cannot be one."""


def checked_list(answer: object) -> tuple[Instance, ...]:
    """A provider's list; ``Garbage`` if anything in it is not an instance, or an id shows twice."""
    found: dict[str, Instance] = {}
    for one in _many(answer, "instances"):
        if not isinstance(one, Instance) or not _is_name(one.slice_id) or not _is_name(one.group):
            raise Garbage(f"its list holds {_shown(one)}, which is no instance")
        if one.slice_id in found:
            raise Garbage(f"its list shows {one.slice_id} twice")
        found[one.slice_id] = one
    return tuple(found.values())


def checked_view(answer: object) -> tuple[WorkloadView, tuple[str, ...]]:
    """A workload's view, and a sentence for each demand in it that was left out."""
    if not isinstance(answer, WorkloadView):
        raise Garbage(f"its view is {_shown(answer)}")
    nodes: object = answer.nodes
    words: object = answer.acknowledged
    for node in _many(nodes, "nodes"):
        if not isinstance(node, WorkNode) or not _is_name(node.id) or not _is_name(node.slice_id):
            raise Garbage(f"its view holds {_shown(node)}, which is no node")
        if not _is_time(node.idle_since) or not _is_count(node.tasks):
            raise Garbage(f"its node {node.id} has {_shown(node.tasks)} tasks, idle since {_shown(node.idle_since)}")
    for word in _many(words, "acknowledgements"):
        if not isinstance(word, Acknowledgement) or not _is_name(word.slice_id) or not _is_count(word.running):
            raise Garbage(f"its view holds {_shown(word)}, which is no acknowledgement")
    mistakes: list[str] = []
    return (
        WorkloadView(
            demands=_checked_demands(answer.demands, mistakes),
            requests=_checked_demands(answer.requests, mistakes),
            nodes=tuple({node.id: node for node in answer.nodes}.values()),
            acknowledged=answer.acknowledged,
        ),
        tuple(mistakes),
    )


def _checked_demands(demands: object, mistakes: list[str]) -> tuple[Demand, ...]:
    found: dict[str, Demand] = {}
    for demand in _many(demands, "demands"):
        if not isinstance(demand, Demand) or not _is_name(demand.id):
            mistakes.append(f"{_shown(demand)} is no demand")
        elif demand.id in found:
            mistakes.append(f"demand {demand.id} is there twice; the first counts")
        elif not _is_time(demand.since) or not _is_time(demand.deadline) or not _has_whole_numbers(demand):
            mistakes.append(f"demand {demand.id} has numbers that are none: {_shown(demand)}")
        else:
            found[demand.id] = demand
    return tuple(found.values())


def _has_whole_numbers(demand: Demand) -> bool:
    numbers = [demand.priority, *(bundle.count for bundle in demand.bundles)]
    numbers += [amount for bundle in demand.bundles for _, amount in bundle.needs]
    return all(type(number) is int for number in numbers)


def _many(values: object, what: str) -> list[object] | tuple[object, ...]:
    if not isinstance(values, list | tuple):
        raise Garbage(f"its {what} are {_shown(values)}")
    return values


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value >= 0


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_time(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and isfinite(value))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
