"""This module turns the arguments of a pool into groups, limits and settings of its controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from windlass.builders import NamedGroup, Quantity, group
from windlass.control.settings import BackOff, GroupSettings, Interval, Policy, Settings
from windlass.core.model.quantities import BadQuantity, parse_money, parse_quantity
from windlass.core.model.snapshot import Amounts, Cluster, Group, amounts
from windlass.offers import MachineOffer
from windlass.pool.devices import check_devices
from windlass.pool.errors import BadPool, is_number, is_whole
from windlass.pool.local import Local
from windlass.pool.machines import RemoteMachines
from windlass.pool.scaling.rule import Limits
from windlass.pool.scheduler.tasks import SLOTS
from windlass.pool.transport.serialization import LIMIT
from windlass.scenario import ScenarioError
from windlass.scenario.reader import Doubled
from windlass.scenario.scenario import read_plain

MOST = 100_000
"""The largest number of nodes. More is assumed to be a typing error."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """The limits of a pool: at least ``min`` nodes, at most ``max``, and ``desired`` at the start."""

    min: int
    desired: int
    max: int

    def __post_init__(self) -> None:
        for name in ("min", "desired", "max"):
            value = getattr(self, name)
            if not is_whole(value, 0, MOST):
                raise BadPool(f"nodes: {name} must be a whole number from 0 to {MOST}, is {value!r}")
        if self.max < 1:
            raise BadPool("nodes: max must be at least 1: a pool without nodes can run nothing")
        if not self.min <= self.max:
            raise BadPool(
                f"nodes: min is {self.min} and max is {self.max}; the smaller number comes first: "
                f"nodes=({self.max}, {self.min})?"
            )
        if not self.min <= self.desired <= self.max:
            raise BadPool(f"nodes: desired must lie between {self.min} and {self.max}, is {self.desired}")

    @classmethod
    def of(cls, given: int | tuple[int, int] | Nodes) -> Nodes:
        """Return the limits from any accepted form: ``4``, ``(2, 16)`` or ``Nodes(2, 4, 16)``."""
        if isinstance(given, Nodes):
            return given
        if isinstance(given, tuple | list):
            if len(given) != 2:
                raise BadPool(
                    f"nodes: {given!r} has {len(given)} numbers; give (min, max), or Nodes(min, desired, max)"
                )
            return cls(given[0], given[0], given[1])
        return cls(given, given, given)


PROVIDER = "pool"
"""The name of a pool's provider."""
GROUP = "pool"
"""The group of a pool with one kind of machine."""

Needs = Mapping[str, Quantity]

UNHEALTHY = 30.0
"""Seconds without a heartbeat after which a node is replaced: the default."""


ANSWER = 60.0
"""Seconds after which an unanswered launch call has failed: a cloud API or a busy computer may take that long."""


def policy_of(provider: object, tick: float, unhealthy_timeout: float) -> Policy:
    """Return the controller settings of a pool.

    They are the same for all providers, so that a pool behaves on other machines as in a test on one computer.
    Providers differ only in how long a machine takes to boot, and whether their list of machines may be out of date.
    A refused launch is tried again at the next tick. Only stock-outs and quota errors have a longer back-off.
    """
    policy = Policy(
        evaluation_interval=Interval(min(0.2, tick), tick),
        retry_pause=tick,
        requesting_timeout=max(ANSWER, 3 * tick),
        unhealthy_timeout=unhealthy_timeout,
        backoff=BackOff(
            pause=tick, quota_block=4 * tick, boot_pause=1.0, grows_after_errors=False, window=60.0, heal=300.0
        ),
    )
    if isinstance(provider, Local):
        policy = replace(policy, vanish_timeout=1.0, initializing_timeout=60.0, boot_timeout=120.0)
    return policy


@dataclass(frozen=True)
class PoolShape:
    """The settings of a pool, checked."""

    settings: Settings
    limits: Mapping[str, Limits]
    """The limits of each group that the pool's rule controls, by name."""
    desired: Mapping[str, int]
    """The number of nodes at the start, by group."""
    needs: Amounts
    """The needs of a task without needs of its own; slots included."""
    result_limit: int = LIMIT
    """Largest result of a task, in bytes."""
    notice: str = ""
    """The message that the pool prints before it buys the first machine."""


def shaped(
    provider: object,
    nodes: int | tuple[int, int] | Nodes | None = None,
    *,
    accelerator: str | Mapping[str, Quantity] | None = None,
    needs: Needs | None = None,
    slots: int | None = None,
    autoscale_cooldown: float = 30.0,
    autoscale_idle_timeout: float = 60.0,
    reconcile_tick_interval: float = 15.0,
    groups: Sequence[NamedGroup] | None = None,
    budget: float | str | None = None,
    result_limit: int | str = LIMIT,
    unhealthy_timeout: float = UNHEALTHY,
) -> PoolShape:
    """Return the pool's groups, limits and settings; raise ``BadPool`` for a wrong argument."""
    _check_seconds("autoscale_cooldown", autoscale_cooldown, 0)
    _check_seconds("autoscale_idle_timeout", autoscale_idle_timeout, 0)
    _check_seconds("reconcile_tick_interval", reconcile_tick_interval, 0.1)
    _check_seconds("unhealthy_timeout", unhealthy_timeout, 1)
    wanted = needs_of(needs or {})
    notice, from_catalogue = "", False
    settings: Mapping[str, Any] = {}
    if groups is not None:
        kinds, size = _given_groups(groups, accelerator, slots), None if nodes is None else Nodes.of(nodes)
        if size is not None and size.min:
            raise BadPool("nodes: with groups, nodes=(0, max) bounds all of them; give each its own min: group(min=2)")
    else:
        size = Nodes.of(1 if nodes is None else nodes)
        price = provider.price if isinstance(provider, Local | RemoteMachines) else None
        if isinstance(provider, RemoteMachines):
            devices, labels = _accelerators(accelerator)
            needed = _devices(devices)
            model, gpus = labels.get("accelerator", ""), dict(needed).get("gpu", 0) / 1000
            if offers := provider.offers(model, needed, slots or 1):
                if budget is not None:  # it counts each machine at one price, so all of them have one type
                    offers = offers[:1]
                price = offers[0].dollars if budget is None else provider.highest_price(offers[0])
                from_catalogue = True
                settings = {"instance_type": [one.type for one in offers]}
                notice = _notice(offers, gpus, provider.price_source(offers[0]))
                if model and offers[0].count > gpus > 0:
                    accelerator = f"{model}:{int(offers[0].count)}"
            else:
                notice = provider.without_price()
        kinds = (_only_group(size, accelerator, wanted, slots, price),)
    cluster = Cluster(
        max_nodes=size.max if groups is not None and size is not None else None, max_hourly_cost=_budget(budget, kinds)
    )
    policy = policy_of(provider, reconcile_tick_interval, unhealthy_timeout)
    if isinstance(provider, Local) and not provider.pretend:
        check_devices(kinds)
    scaled = [one for one in kinds if one.scale_down is None]
    sold = tuple(GroupSettings(one, PROVIDER, settings, billed_as_listed=from_catalogue) for one in kinds)
    return PoolShape(
        Settings(sold, cluster, policy),
        {one.name: Limits(one.min, one.max, autoscale_cooldown, autoscale_idle_timeout) for one in scaled},
        {one.name: size.desired if size is not None and groups is None else one.min for one in scaled},
        wanted,
        _bytes(result_limit),
        notice,
    )


def _check_seconds(name: str, value: float, lowest: float) -> None:
    if not is_number(value, lowest):
        raise BadPool(f"{name} must be seconds, at least {lowest:g}, is {value!r}")


def _devices(devices: Mapping[str, Quantity]) -> Amounts:
    try:
        return amounts({name: parse_quantity(value, name) for name, value in devices.items()})
    except BadQuantity as error:
        raise BadPool(f"accelerator {error}") from None


def _notice(offers: Sequence[MachineOffer], gpus: float, source: str) -> str:
    offer, highest = offers[0], max(one.dollars for one in offers)
    has = f" with {offer.count:g} {offer.accelerator}" if offer.accelerator else f" with {offer.vcpu} CPUs"
    has = has if offer.vcpu else ""
    more = "; with needs= several tasks share it" if offer.count > gpus > 0 else ""
    other = f"; where there is none, another that fits, up to ${highest:.2f}/h" if len(offers) > 1 else ""
    return f"each node is a {offer.type}{has}, ${offer.dollars:.2f}/h ({offer.market}, {source}){more}{other}"


def _bytes(given: int | str) -> int:
    try:
        return parse_quantity(given, "memory")
    except BadQuantity as error:
        raise BadPool(f"result_limit {error}") from None


def needs_of(needs: Needs) -> Amounts:
    """Return the needs of a task, one slot included."""
    found = {SLOTS: 1000}
    for name, value in needs.items():
        try:
            amount = parse_quantity(value, name)
        except BadQuantity as error:
            raise BadPool(f"needs: {name} {error}") from None
        if name == SLOTS and (amount < 1000 or amount % 1000):
            raise BadPool(f"needs: a task takes a whole number of slots, at least 1, not {value}")
        found[name] = amount
    return amounts(found)


def _only_group(
    size: Nodes,
    accelerator: str | Mapping[str, Quantity] | None,
    needs: Amounts,
    slots: int | None,
    price: float | str | None,
) -> Group:
    devices, labels = _accelerators(accelerator)
    if slots is None:
        # As many slots as tasks with the pool's needs have devices.
        each = [
            parse_quantity(value, name) // dict(needs)[name] for name, value in devices.items() if name in dict(needs)
        ]
        slots = max(1, min(each, default=1))
    if not is_whole(slots, 1, 1024):
        raise BadPool(f"slots must be a whole number from 1 to 1024, is {slots!r}")
    price = price.removesuffix("/h") if isinstance(price, str) else price
    return _read(
        [group(GROUP, min=size.min, max=size.max, price=price, labels=labels, resources={SLOTS: slots, **devices})]
    )[0]


def _given_groups(groups: Sequence[NamedGroup], accelerator: object, slots: int | None) -> tuple[Group, ...]:
    if accelerator is not None or slots is not None:
        raise BadPool(
            "accelerator and slots are for a pool with one kind of machine; with groups, say it in each: "
            "group('gpu', slots=4, gpu=4, max=2)"
        )
    if not groups:
        raise BadPool("groups is empty; give at least one, such as groups=[group('small', slots=4, max=8)]")
    named = []
    for one in groups:
        match one:
            case (str(name), dict(data)):
                resources = {SLOTS: 1, **data.get("resources", {})}
                named.append((name, {**data, "resources": resources}))
            case _:
                raise BadPool(f"groups: {one!r} is not a group; make one with group('small', slots=4, max=8)")
    return _read(named)


def _read(named: Sequence[NamedGroup]) -> tuple[Group, ...]:
    try:
        return read_plain({"groups": Doubled.of(list(named))}).groups
    except ScenarioError as error:
        raise BadPool("; ".join(error.mistakes)) from None


def _accelerators(given: str | Mapping[str, Quantity] | None) -> tuple[dict[str, Quantity], dict[str, str]]:
    """Return the resources and labels of nodes from ``gpu``, ``gpu:4``, ``A100:4`` or ``{"gpu": 4}``."""
    if given is None:
        return {}, {}
    if isinstance(given, Mapping):
        return dict(given), {}
    name, _, count = given.partition(":")
    if not name or (count and not count.isdecimal()) or count == "0":
        raise BadPool(f"accelerator must be such as 'gpu', 'gpu:4', 'A100:4' or {{'gpu': 4}}, is {given!r}")
    if name in ("gpu", "tpu"):
        return {name: int(count or 1)}, {}
    return {"gpu": int(count or 1)}, {"accelerator": name}


def _budget(given: float | str | None, groups: Sequence[Group]) -> int | None:
    if given is None:
        return None
    text: Any = given.strip().removesuffix("/h").removesuffix("per hour") if isinstance(given, str) else given
    try:
        ceiling = parse_money(text)
    except BadQuantity as error:
        raise BadPool(f"budget {error}; write it as '$20/h'") from None
    if all(one.price is None for one in groups):
        raise BadPool("budget: nothing in this pool has a price; give one: Local(price='$0.50/h') or group(price=0.5)")
    floor = sum((one.price or 0) * one.min for one in groups)
    if floor > ceiling:
        raise BadPool(f"budget: the nodes that are always there cost ${floor / 1e9:g}/h already, more than {given}")
    return ceiling
