"""The EC2 provider launches a slice as a fleet of type ``instant`` and finds its instances by their tags.

A launch creates a launch template for its slice, with a new host key, and requests a fleet with the slice's id as the
client token: a repeated request returns the same instances. The list by tag is the truth. When an instance runs and
answers by SSH, it is prepared like any machine with SSH (`providers.remote`).

EC2 does not store our epoch. A controller that was replaced is refused by the machines and by the lease of the journal,
not by EC2. The id of an ended slice launches nothing while EC2 still lists its terminated instances or knows its token.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from windlass.offers import MachineOffer, in_region, machine_resources, price_given, read_catalogue
from windlass.providers.aws.api import EC2Api
from windlass.providers.aws.buying import TAG, AWSSettings, FleetBuyer, joins_by_itself
from windlass.providers.protocol import (
    ClusterIdentity,
    Host,
    Instance,
    InsufficientCapacity,
    InvalidRequest,
    LaunchOrder,
    Offering,
    QuotaExceeded,
)
from windlass.providers.remote.background import BackgroundTasks
from windlass.providers.remote.connection import Login, Unreachable, plain
from windlass.providers.remote.machine import AgentRefused, RemoteMachine
from windlass.providers.remote.preparation import Death, Phases, Preparations, ProgramRules, checked, death_of, phase_of

log = logging.getLogger(__name__)

LIVE: Final = ("pending", "running", "shutting-down", "stopping", "stopped")
POLL_LIMIT: Final = 5.0
LOST_AFTER: Final = 60.0
_REASON_TIME: Final = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")
ENDED_ITSELF: Final = "no controller connected to it for longer than the lease, so it ended its program"
ORPHAN_AFTER: Final = 60.0
"""Seconds after which a machine that answers and that no controller prepares counts as dead."""


@dataclass(slots=True)
class _Known:
    """The last known state of an instance."""

    machine: RemoteMachine
    since: float
    report: dict[str, Any] | None = None
    problem: str = ""

    @property
    def silent_for(self) -> float:
        since = self.machine.silent_since
        return 0.0 if since is None else time.monotonic() - since


class AWSProvider:
    """Launches slices as EC2 instances."""

    def __init__(
        self,
        settings: AWSSettings,
        *,
        lease: float | None = None,
        grace: float = 5.0,
        images: Mapping[str, Mapping[str, Any]] | None = None,
        image: Mapping[str, Any] | None = None,
        read_only: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``lease``: seconds without a controller after which a program ends itself; None: it keeps running."""
        self.settings = settings
        self._cluster = ClusterIdentity()
        self._api = EC2Api(settings.region, settings.profile, settings.endpoint_url)
        self._rules = ProgramRules(settings.connect == "tunnel", lease, grace, images or {}, image)
        self._preparations = Preparations(self._rules)
        self._phases = Phases(now)
        self._read_only = read_only
        self._lost_after = LOST_AFTER if lease is None else lease + 10
        self._orders: dict[str, tuple[LaunchOrder, int]] = {}
        """The orders that this controller has launched and not terminated, with their epochs."""
        self._known: dict[str, _Known] = {}
        self._launching: dict[str, asyncio.Task[None]] = {}
        self._tasks = BackgroundTasks()
        self._buyer = FleetBuyer(self._api, settings)

    # -- the contract -------------------------------------------------------------------------------------------------

    def bind(self, cluster: ClusterIdentity) -> None:
        self._cluster = cluster
        self._buyer.bind(cluster)

    @property
    def cluster(self) -> str:
        """The cluster's name for the agents on machines."""
        return self._cluster.id or self._cluster.name

    def use_images(self, images: Mapping[str, Mapping[str, Any]]) -> None:
        self._rules = self._preparations.rules = replace(self._rules, images=dict(images))

    async def launch(self, order: LaunchOrder, epoch: int) -> None:
        if not order.hosts or not joins_by_itself(order):
            checked(order, self._rules)
        if order.slice_id not in self._launching:
            task = self._launching[order.slice_id] = self._tasks.begin(self._launch(order, epoch))
            task.add_done_callback(lambda _: self._launching.pop(order.slice_id, None))
        await asyncio.shield(self._launching[order.slice_id])

    async def _launch(self, order: LaunchOrder, epoch: int) -> None:
        self._orders[order.slice_id] = (order, epoch)
        there = await self._instances(slice_id=order.slice_id)
        if there:
            if all(one["State"]["Name"] == "terminated" for one in there):
                self._orders.pop(order.slice_id, None)
                log.warning(
                    "%s is not launched: a slice with this id has ended, and an id is used once", order.slice_id
                )
            return
        try:
            await self._buyer.buy(order, epoch)
        except (InsufficientCapacity, QuotaExceeded, InvalidRequest):
            self._orders.pop(order.slice_id, None)
            raise

    async def terminate(self, slice_id: str, epoch: int) -> None:  # noqa: ARG002  # EC2 keeps no epoch
        await asyncio.shield(self._tasks.begin(self._terminate(slice_id)))

    async def _terminate(self, slice_id: str) -> None:
        self._orders.pop(slice_id, None)
        await self._preparations.stop(slice_id)
        found = [one for one in await self._instances(slice_id=slice_id) if one["State"]["Name"] != "terminated"]
        if found:
            await self._api.call("terminate_instances", InstanceIds=[one["InstanceId"] for one in found])
        await self._buyer.delete_template(slice_id)
        for one in found:
            await self._forget(one["InstanceId"])

    async def list(self) -> Sequence[Instance]:
        found = await self._instances(states=LIVE)
        for name in [name for name in self._known if name not in {one["InstanceId"] for one in found}]:
            await self._forget(name)
        await asyncio.gather(*(self._poll(one) for one in found if one["State"]["Name"] == "running"))
        slices: dict[str, list[Mapping[str, Any]]] = {}
        for one in found:
            slices.setdefault(_tags(one).get("slice", ""), []).append(one)
        return [self._instance(name, slices[name]) for name in sorted(slices) if name]

    async def confirm_ended(self, slice_ids: Collection[str]) -> Collection[str]:
        """Return slices whose instances EC2 lists as terminated, which it does for about an hour.

        The times are those that EC2 gives in its reasons; None where a reason has none, as after an interruption.
        """
        slices: dict[str, list[Mapping[str, Any]]] = {}
        for one in await self._instances():
            slices.setdefault(_tags(one).get("slice", ""), []).append(one)
        ended: dict[str, float | None] = {}
        for name in slice_ids:
            found = slices.get(name, [])
            if found and all(one["State"]["Name"] == "terminated" for one in found):
                times = [_ended_at(one) for one in found]
                ended[name] = None if None in times else max(at for at in times if at is not None)
        return ended

    async def offerings(self) -> Sequence[Offering]:
        """Return the machine types of the catalogue in the markets of the settings."""
        markets = {"spot-first": ("spot", "on-demand")}.get(self.settings.market, (self.settings.market,))
        return tuple(
            Offering(
                one.type, machine_resources(one), price=one.price, zones=one.zones, preemptible=one.market == "spot"
            )
            for one in self._catalogue()
            if one.market in markets
        )

    async def close(self) -> None:
        await self._preparations.stop()
        await self._tasks.close()
        for name in list(self._known):
            await self._forget(name)
        self._api.close()

    # -- polling ------------------------------------------------------------------------------------------------------

    async def _instances(self, slice_id: str = "", states: Sequence[str] = ()) -> Sequence[Mapping[str, Any]]:
        filters = [{"Name": "tag-key", "Values": [f"{TAG}cluster"]}]
        if states:
            filters.append({"Name": "instance-state-name", "Values": list(states)})
        reservations = await self._api.pages("describe_instances", "Reservations", Filters=filters)
        found = [one for reservation in reservations for one in reservation.get("Instances") or () if self._owns(one)]
        if slice_id:  # filtered here, so that every call notices another journal with our cluster name
            found = [one for one in found if _tags(one).get("slice") == slice_id]
        return sorted(found, key=lambda one: (_tags(one).get("slice", ""), str(one["InstanceId"])))

    def _owns(self, one: Mapping[str, Any]) -> bool:
        """Whether an instance belongs to our cluster.

        Raises ``ClusterConflict`` if a live instance has our cluster name and the id of another journal.
        """
        tags = _tags(one)
        name, id = tags.get("cluster", ""), tags.get("cluster-id", "")
        if (one.get("State") or {}).get("Name") == "terminated":
            return id == self._cluster.id if self._cluster.id else name == self._cluster.name
        return self._cluster.owns(name, id)

    async def _poll(self, one: Mapping[str, Any]) -> None:
        """Poll a running instance, and start to prepare it if we launched it."""
        name = str(one["InstanceId"])
        login = self._login(one)
        if login is None:
            return
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = _Known(RemoteMachine(login, self.cluster), time.monotonic())
            known.machine.label = _tags(one).get("slice", "")
        elif known.machine.login != login:  # it got a public address later, or another one
            await known.machine.move_to(login)
        try:
            known.report = await known.machine.ask("status", limit=POLL_LIMIT, metadata=self.settings.metadata_url)
            known.problem = ""
        except (Unreachable, AgentRefused) as error:
            known.problem = plain(error)
            if known.report is not None and known.silent_for > self._lost_after:
                await known.machine.leave_tunnel()
            return
        slice_id = _tags(one).get("slice", "")
        ordered = self._orders.get(slice_id)
        if self._read_only or ordered is None:
            return
        order, epoch = ordered
        assignment = known.report.get("assignment")
        numbers = self._numbers(slice_id)
        number = numbers.index(name) if name in numbers else 0
        if assignment is None:
            taking: dict[str, Any] = {
                "slice": slice_id,
                "group": order.group,
                "host": number,
                "hosts": len(order.hosts),
            }
            try:
                await known.machine.ask(
                    "assign", epoch=epoch, lease=self._rules.lease, cluster_name=self._cluster.name, **taking
                )
                known.report = {**known.report, "assignment": {**taking, "phase": "connecting"}}
            except AgentRefused as error:
                if error.kind == "ended":  # its lease was over: nothing runs there, and nothing will
                    known.report = {**known.report, "assignment": {**taking, "failed": ENDED_ITSELF}}
            except Unreachable:
                pass
        assignment = known.report.get("assignment") or {}
        if assignment and not assignment.get("started") and not assignment.get("failed"):
            self._preparations.begin(known.machine, order, int(assignment["host"]), epoch)

    def _numbers(self, slice_id: str) -> Sequence[str]:
        """Return the instances of a slice in the order of their host numbers."""
        return sorted(name for name, known in self._known.items() if known.machine.label == slice_id)

    def _login(self, one: Mapping[str, Any]) -> Login | None:
        """Return how to reach an instance; None while it has no address."""
        keys = ("PublicIpAddress", "PrivateIpAddress")
        order = keys if self.settings.connect == "tunnel" else keys[::-1]
        address = next((str(one[key]) for key in order if one.get(key)), "")
        host_key = _tags(one).get("host-key")
        if not address or not host_key:
            return None
        return Login(address, 22, self.settings.user, str(self._buyer.key_file), host_key=host_key)

    async def _forget(self, name: str) -> None:
        known = self._known.pop(name, None)
        if known is not None:
            await known.machine.close()

    def _instance(self, slice_id: str, found: Sequence[Mapping[str, Any]]) -> Instance:
        tags = _tags(found[0])
        count = max(len(found), int(tags.get("hosts") or 1) if (tags.get("hosts") or "1").isdecimal() else 1)
        states = [str(one["State"]["Name"]) for one in found]
        hosts, phases, problems, notices = [], [], [], []
        for number in range(count):
            if number >= len(found):
                hosts.append(Host(f"{slice_id}/{number}", running=False))
                problems.append(f"host {number} is gone")
                continue
            one, known = found[number], self._known.get(str(found[number]["InstanceId"]))
            failure = self._preparations.failure(slice_id, number)
            running, phase, problem = self._host(one, known, slice_id, failure)
            address = known.machine.login.address if known else ""
            report = (known.report or {}) if known and not running else {}
            death = (death_of(report, failure) if report else None) or Death("")
            hosts.append(
                Host(f"{slice_id}/{number}", running, address, death.exit_code, death.last_output, death.failed_phase)
            )
            phases.append(phase)
            problems.append(problem)
            notices.append(_notice((known.report or {}).get("notice")) if known else None)
        ending = all(state in ("shutting-down", "stopping", "stopped") for state in states)
        phase = next(filter(None, phases), "")
        return Instance(
            slice_id,
            tags.get("group") or "unknown",
            "ending" if ending else "pending" if "pending" in states else "running",
            tuple(hosts),
            preempted_at=min((at for at in notices if at is not None), default=None),
            zone=plain((found[0].get("Placement") or {}).get("AvailabilityZone", ""), 60),
            price=self._price(found),
            phase=phase,
            phase_since=self._phases.since(slice_id, phase),
            trouble="; ".join(filter(None, problems)),
            started_at=min(
                (at.timestamp() for one in found if isinstance(at := one.get("LaunchTime"), dt.datetime)), default=None
            ),
        )

    def _host(self, one: Mapping[str, Any], known: _Known | None, slice_id: str, failure: str) -> tuple[bool, str, str]:
        """Return whether a host is up, its phase, and its problem."""
        if one["State"]["Name"] != "running":
            return False, "", ""
        if _tags(one).get("joins"):
            return True, "", ""
        if known is None or known.report is None:
            waited = 0.0 if known is None else time.monotonic() - known.since
            return True, "waiting for SSH", known.problem if known and waited > ORPHAN_AFTER else ""
        report = known.report
        assignment = report.get("assignment") or {}
        if known.problem and known.silent_for > self._lost_after:
            return False, "", known.problem
        if (death := death_of(report, failure)) is not None:
            return False, "", death.why
        alone = not assignment.get("started") and slice_id not in self._orders and not self._read_only
        if alone and time.monotonic() - known.since > ORPHAN_AFTER:
            return False, "", "the controller that launched it ended before the machine was prepared"
        return True, phase_of(report) or ("" if assignment.get("started") else "connecting"), known.problem

    def _price(self, found: Sequence[Mapping[str, Any]]) -> int | None:
        market = "spot" if found[0].get("InstanceLifecycle") == "spot" else "on-demand"
        prices = {one.type: one.price for one in self._catalogue() if one.market == market}
        kinds = [str(one.get("InstanceType")) for one in found]
        each = [prices.get(kind, price_given(self.settings.prices, kind, market)) for kind in kinds]
        return None if None in each else sum(price for price in each if price is not None)

    def _catalogue(self) -> Sequence[MachineOffer]:
        if not hasattr(self, "_offers"):
            self._offers = in_region(read_catalogue(["aws"], prices=self.settings.prices), self.settings.region)
        return self._offers


def _tags(one: Mapping[str, Any]) -> dict[str, str]:
    found = {str(tag.get("Key")): str(tag.get("Value")) for tag in one.get("Tags") or ()}
    return {key.removeprefix(TAG): value for key, value in found.items() if key.startswith(TAG)}


def _ended_at(one: Mapping[str, Any]) -> float | None:
    """Return when an instance was terminated, by EC2's clock, from a text like "User initiated (TIME GMT)"."""
    found = _REASON_TIME.search(str(one.get("StateTransitionReason", ""))[:300])
    try:
        return None if found is None else dt.datetime.fromisoformat(f"{found[1]}+00:00").timestamp()
    except ValueError:
        return None


def _notice(notice: object) -> float | None:
    """Return when EC2 will take an instance away, by the notice of its metadata service; None without a notice."""
    if not isinstance(notice, Mapping):
        return None
    try:
        return dt.datetime.fromisoformat(str(notice.get("time")).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
