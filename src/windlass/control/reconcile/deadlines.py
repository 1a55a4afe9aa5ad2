"""This module computes the next instant at which the loop would act without new input. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from windlass.control.settings import Settings
from windlass.control.state.fleet import Fleet, ProviderHealth, SliceRecord
from windlass.core.model.lifecycle import State
from windlass.core.model.snapshot import Demand

from .provider_health import next_turn, turning_points
from .slice_steps import unseen_until


def next_deadline(fleet: Fleet, demands: Iterable[Demand], settings: Settings, now: float) -> float | None:
    """Return the first deadline after ``now``; None: nothing is due without new input."""
    policy, known = settings.policy, settings.by_name
    found = [demand.deadline for demand in demands if demand.deadline is not None]
    queued = set()
    for record in fleet.activity.active.values():
        found += _of_record(record, settings)
        if record.state is State.QUEUED:
            queued.add(record.group)
    for group in sorted(queued):
        found.append(
            next_turn(fleet.provider_health.get(group, ProviderHealth()), policy.launch_rate, policy.backoff, now)
        )
    for group, provider_health in fleet.provider_health.items():
        if group in known:
            found += turning_points(provider_health, policy.backoff, now)
    return min([at for at in found if at > now], default=None)


def _of_record(record: SliceRecord, settings: Settings) -> Iterator[float]:
    policy = settings.policy
    if record.absent_since is not None:
        yield max(record.absent_since + policy.vanish_timeout, unseen_until(record, policy))
        yield record.absent_since + policy.unhealthy_timeout
    if (limit := policy.limit_of(record.state)) is not None:
        yield record.since + limit
    match record.state:
        case State.REQUESTING:
            yield policy.next_attempt(record.since, min(record.attempts, policy.tries))
        case State.READY:
            yield from _of_ready(record, settings)
        case _:
            return


def _of_ready(record: SliceRecord, settings: Settings) -> Iterator[float]:
    if record.unwell_since is not None:
        yield record.unwell_since + settings.policy.unhealthy_timeout
    if record.marked_until is not None:
        yield record.marked_until
    configured = settings.by_name.get(record.group)
    rules = configured.group.scale_down if configured is not None else None
    if rules is not None and rules.idle_timeout is not None and not any(node.busy for node in record.nodes):
        yield record.idle_since + rules.idle_timeout
