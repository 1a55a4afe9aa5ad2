"""This module applies external faults, at an hourly rate: zone preemption, manual console changes, clock jumps,
reloads, other versions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from windlass.control.settings import GroupSettings, Settings
from windlass.providers.protocol import HostOrder, LaunchOrder, ProviderError
from windlass.sim.check.invariants import Breach
from windlass.sim.faults.catalogue import Fault

if TYPE_CHECKING:
    from .simulation import SimulatedLeader, Simulation

T = TypeVar("T")


def apply_fault(engine: Simulation, fault: Fault) -> None:
    """Apply one of them now."""
    _STRIKES[fault.kind](engine, fault)


def _zone_preempted(engine: Simulation, fault: Fault) -> None:
    cloud = engine.clouds[_pick(engine, sorted(engine.clouds))]
    zones = sorted({machine.zone for machine in cloud.living().values()})
    if zones:
        cloud.preempt_zone(_pick(engine, zones), fault.notice)


def _price_changed(engine: Simulation, fault: Fault) -> None:  # noqa: ARG001
    cloud = engine.clouds[_pick(engine, sorted(engine.clouds))]
    priced = sorted(name for name, kind in cloud.kinds.items() if kind.offering.price)
    if priced:
        name = _pick(engine, priced)
        price = cloud.kinds[name].offering.price or 0
        cloud.set_price(name, price * 2 if engine.fault_set.chance.happens(0.5, "price", engine.now()) else price // 2)


def _hand_deleted(engine: Simulation, fault: Fault) -> None:  # noqa: ARG001
    cloud = engine.clouds[_pick(engine, sorted(engine.clouds))]
    living = sorted(cloud.living())
    if living:
        cloud.delete_by_hand(_pick(engine, living))


def _hand_created(engine: Simulation, fault: Fault) -> None:  # noqa: ARG001
    configured = _pick(engine, list(engine.settings.groups))
    group = configured.group
    order = LaunchOrder(
        f"by-hand-{len(engine.checker.unwanted) + 1}",
        group.name,
        (HostOrder(("simulated-agent",)),) * group.hosts,
        group.resources,
        group.node_labels(),
        configured.settings,
    )
    try:
        engine.clouds[configured.provider].create_by_hand(order, tagged=True)
    except ProviderError:
        return
    engine.checker.unwanted.add(order.slice_id)


def _two_leaders(engine: Simulation, fault: Fault) -> None:  # noqa: ARG001
    engine.start_leader(ahead=2 * engine.lease)


def _clock_jumps(engine: Simulation, fault: Fault) -> None:
    forwards = engine.fault_set.chance.happens(0.5, "clock", engine.now())
    for leader in engine.leaders:
        leader.offset = fault.seconds if forwards else -fault.seconds

        def put_right(leader: SimulatedLeader = leader) -> None:
            leader.offset = 0.0

        engine.later.append((engine.now() + 900, put_right))


def _journal_full(engine: Simulation, fault: Fault) -> None:
    for leader in engine.leaders:
        leader.journal.full_until = engine.now() + fault.seconds


def _reconfigured(engine: Simulation, fault: Fault) -> None:  # noqa: ARG001
    chance, now = engine.fault_set.chance, engine.now()
    engine.next_settings.append(
        changed_settings(engine.settings, lambda many: chance.pick(many, "settings", now, many))
    )


def _newer_version(engine: Simulation, fault: Fault) -> None:  # noqa: ARG001
    engine.log.version += 1


def _stopped(engine: Simulation, fault: Fault) -> None:
    engine.stop_for = fault.seconds


def _overtaken(engine: Simulation, fault: Fault) -> None:  # noqa: ARG001
    engine.overtake_next = True


def _older_version(engine: Simulation, fault: Fault) -> None:  # noqa: ARG001
    """Start an older version, which must refuse and change nothing. If it replaces the leader, no controller leads
    until the newer version is started again.
    """
    store = engine.store
    if engine.fault_set.chance.happens(0.5, "in its place", engine.now()):
        for leader in engine.leaders:
            leader.lifeline.dead = True
    before = (store.last_seq(), store.lease())
    started = engine.start_leader(version=engine.log.version - 1)
    if started is not None or (store.last_seq(), store.lease()) != before:
        text = "a program that does not know the version of the journal's tables has written to it"
        engine.checker.breaches.append(Breach("S12", engine.now(), text))


def changed_settings(settings: Settings, pick: Callable[[int], int]) -> Settings:
    """Return the settings with one change, as an operator would make it."""
    which = pick(len(settings.groups))
    configured, cluster = settings.groups[which], settings.cluster
    group = configured.group
    match pick(5):
        case 0:
            lower = max(group.min, group.spare, group.max // 2)
            less = replace(group, max=lower, max_of_family=False)
            changed = replace(settings, groups=_with(settings, which, replace(configured, group=less)))
        case 1:
            more = replace(group, max=group.max + 2, max_of_family=False)
            changed = replace(settings, groups=_with(settings, which, replace(configured, group=more)))
        case 2 if len(settings.groups) > 1:
            changed = replace(settings, groups=tuple(one for one in settings.groups if one is not configured))
        case 3 if cluster.max_nodes is not None:
            changed = replace(settings, cluster=replace(cluster, max_nodes=max(1, cluster.max_nodes - 2)))
        case _:
            less = replace(group, spare=0, min=0)
            changed = replace(settings, groups=_with(settings, which, replace(configured, group=less)))
    return changed


def _with(settings: Settings, which: int, configured: GroupSettings) -> tuple[GroupSettings, ...]:
    return (*settings.groups[:which], configured, *settings.groups[which + 1 :])


def _pick(engine: Simulation, many: list[T]) -> T:
    return many[engine.fault_set.chance.pick(len(many), "blue", engine.now(), len(many))]


_STRIKES: Final[dict[str, Callable[[Simulation, Fault], None]]] = {
    "zone-preempted": _zone_preempted,
    "price-changed": _price_changed,
    "hand-deleted": _hand_deleted,
    "hand-created": _hand_created,
    "two-leaders": _two_leaders,
    "clock-jumps": _clock_jumps,
    "journal-full": _journal_full,
    "reconfigured": _reconfigured,
    "newer-version": _newer_version,
    "older-version": _older_version,
    "stopped": _stopped,
    "overtaken": _overtaken,
}
