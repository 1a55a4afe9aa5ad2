"""The SSH provider has a list of machines, each sold to one slice at a time.

What is sold is written down on the machines themselves, so that any controller of the cluster finds it, and a machine
that is in the lists of two clusters is sold to one of them. The highest epoch is kept there too; a launch and an end
ask all machines that answer, and a lower epoch than any has seen is refused.

A machine that does not answer is out of stock. If it has a slice of ours, the slice is shown as it was last seen; after
``lost_after`` seconds its host counts as dead, and the connections of its program are closed. Where programs have a
lease (those of a pool), a machine that is silent for longer than that runs nothing of ours any more, and a slice that
was ended meanwhile is gone; where they have none it stays in the list as ending until the machine answers and confirms
it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from windlass.core.model.snapshot import Amounts, amounts
from windlass.providers.protocol import (
    ClusterIdentity,
    Host,
    Instance,
    InsufficientCapacity,
    InvalidRequest,
    LaunchOrder,
    Offering,
    ProviderError,
    StaleEpoch,
)
from windlass.providers.remote.background import BackgroundTasks
from windlass.providers.remote.connection import Login, Unreachable, plain
from windlass.providers.remote.machine import AgentRefused, RemoteMachine
from windlass.providers.remote.preparation import Phases, Preparations, ProgramRules, checked, death_of, phase_of
from windlass.providers.ssh.machine_list import BadMachine, MachineSpec, read_machines

log = logging.getLogger(__name__)

LOST_AFTER: Final = 60.0
_MARGIN: Final = 10.0
"""Seconds beyond a lease within which its supervisor has ended the program for certain."""
LOOK_LIMIT: Final = 20.0
PATIENCE: Final = 5.0
"""Seconds that a list waits for machines; a controller gives all of it ten."""
SLOTS: Final = "slots"
"""A resource that a pool's nodes make themselves; no machine has it."""


@dataclass(slots=True)
class _Seen:
    """A machine as it was last seen."""

    machine: RemoteMachine
    spec: MachineSpec
    looked: dict[str, Any] | None = None
    """What it said last; None: it never answered."""
    resources: Amounts | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    trouble: str = ""
    looking: asyncio.Task[None] | None = None

    @property
    def sold(self) -> Mapping[str, Any] | None:
        return (self.looked or {}).get("sold")

    @property
    def silent_for(self) -> float:
        since = self.machine.silent_since
        return 0.0 if since is None else time.monotonic() - since

    def holds(self, slice_id: str) -> bool:
        sold = self.sold
        return sold is not None and not sold.get("foreign") and sold["slice"] == slice_id


class SSHProvider:
    """Sells the machines of a list. Several hosts of a slice are several machines."""

    def __init__(
        self,
        hosts: Iterable[MachineSpec | Mapping[str, Any] | str],
        *,
        user: str = "",
        key_file: str = "",
        known_hosts: str = "",
        connect: Literal["tunnel", "direct"] = "tunnel",
        directory: str = "~/.windlass",
        lease: float | None = None,
        grace: float = 5.0,
        lost_after: float | None = None,
        images: Mapping[str, Mapping[str, Any]] | None = None,
        image: Mapping[str, Any] | None = None,
        look_only: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``lease``: seconds without a controller after which programs end themselves; None: they go on.

        ``lost_after``: seconds of silence after which a host counts as dead; by default a little more than the lease.

        ``images``: what machines of each group must have; ``image``: of the groups that are not among them.

        ``look_only``: the list repairs nothing.
        """
        try:
            specs = read_machines(list(hosts), user)
        except BadMachine as error:
            raise InvalidRequest(f"ssh: {error}") from None
        self._machines = [
            _Seen(
                RemoteMachine(Login(spec.address, spec.port, spec.user, key_file, known_hosts), "windlass", directory),
                spec,
                resources=spec.resources,
            )
            for spec in specs
        ]
        self._cluster = ClusterIdentity()
        self._look_only = look_only
        self._lease = lease
        self._lost_after = lost_after or (LOST_AFTER if lease is None else lease + _MARGIN)
        self._rules = ProgramRules(connect == "tunnel", lease, grace, images or {}, image)
        self._preparations = Preparations(self._rules)
        self._phases = Phases(now)
        self._choosing = asyncio.Lock()
        self._ended: set[str] = set()
        """Slices whose end was asked for while a machine of theirs was silent."""
        self._tasks = BackgroundTasks()

    # -- the contract -----------------------------------------------------------------------------------------------

    def bind(self, cluster: ClusterIdentity) -> None:
        self._cluster = cluster
        for seen in self._machines:
            seen.machine.cluster = cluster.id or cluster.name

    def use_images(self, images: Mapping[str, Mapping[str, Any]]) -> None:
        self._rules = self._preparations.rules = replace(self._rules, images=dict(images))

    async def launch(self, order: LaunchOrder, epoch: int) -> None:
        checked(order, self._rules)
        if len(order.hosts) > len(self._machines):
            raise InvalidRequest(
                f"slice {order.slice_id} has {len(order.hosts)} hosts and there are {len(self._machines)} machines"
            )
        # In a task of its own: a caller that goes away leaves no machine that is sold and never prepared.
        await asyncio.shield(self._tasks.begin(self._launch(order, epoch)))

    async def _launch(self, order: LaunchOrder, epoch: int) -> None:
        async with self._choosing:
            await self._look((order.slice_id,))
            self._check_epoch(epoch)
            if any(order.slice_id in (seen.looked or {}).get("ended", ()) for seen in self._answering()):
                log.warning(
                    "%s starts nothing: a slice of that id has ended already, and an id buys once", order.slice_id
                )
                return
            held = {int(seen.sold["host"]): seen for seen in self._machines if seen.sold and seen.holds(order.slice_id)}
            if any(seen.sold and seen.sold.get("ending") for seen in held.values()):
                return
            missing = [number for number in range(len(order.hosts)) if number not in held]
            taken = await self._take(order, epoch, missing) if missing else {}
        for number, seen in {**held, **taken}.items():
            sold = seen.sold or {}
            if not sold.get("started") and not sold.get("failed"):
                self._preparations.begin(seen.machine, order, number, epoch)

    async def terminate(self, slice_id: str, epoch: int) -> None:
        await asyncio.shield(self._tasks.begin(self._terminate(slice_id, epoch)))

    async def _terminate(self, slice_id: str, epoch: int) -> None:
        await self._preparations.stop(slice_id)
        await self._look(())
        self._check_epoch(epoch)
        holding = [seen for seen in self._machines if seen.holds(slice_id)]
        await asyncio.gather(*(self._end(seen, slice_id, epoch) for seen in holding))

    async def list(self) -> Sequence[Instance]:
        await self._look(())
        if not self._look_only:
            self._repair()
        slices: dict[str, list[_Seen]] = {}
        for seen in self._machines:
            sold = seen.sold
            if sold is not None and not sold.get("foreign") and not self._is_over(seen, str(sold["slice"])):
                slices.setdefault(str(sold["slice"]), []).append(seen)
        return [self._instance(slice_id, found) for slice_id, found in sorted(slices.items())]

    async def confirm_ended(self, slice_ids: Collection[str]) -> Collection[str]:
        """Slices that ended on a machine and that no machine holds. A machine that is silent may still hold one."""
        await self._look(tuple(slice_ids))
        answering = self._answering()
        if len(answering) < len(self._machines):
            return ()
        ended = {name for seen in answering for name in (seen.looked or {}).get("ended", ())}
        return [name for name in slice_ids if name in ended and not any(seen.holds(name) for seen in answering)]

    async def diagnose(self) -> Sequence[str]:
        """Machines that do not answer, and why."""
        await self._look(())
        return [seen.trouble for seen in self._machines if seen.trouble]

    async def offerings(self) -> Sequence[Offering]:
        await self._all(self._facts)
        found = [seen for seen in self._machines if seen.resources is not None]
        return tuple(Offering(seen.spec.address, seen.resources or (), zones=("ssh",)) for seen in found)

    async def close(self) -> None:
        await self._preparations.stop()
        await self._tasks.close()
        await asyncio.gather(*(seen.machine.close() for seen in self._machines))

    # -- looking ----------------------------------------------------------------------------------------------------

    async def _look(self, ids: Sequence[str]) -> None:
        """Ask all machines, and wait for a few seconds. A machine that needs longer is silent until it has answered."""

        async def look(seen: _Seen) -> None:
            looked = await seen.machine.ask("look", ids=list(ids), limit=LOOK_LIMIT)
            sold = looked.get("sold")
            if sold is not None and not self._cluster.owns(str(sold.get("cluster_name")), str(sold["cluster"])):
                looked["sold"] = {"cluster": sold.get("cluster_name") or sold["cluster"], "foreign": True}
            seen.looked = looked

        for seen in self._machines:
            if seen.looking is None or seen.looking.done():
                seen.looking = self._tasks.begin(self._asked(seen, look))
        under_way = [seen.looking for seen in self._machines if seen.looking is not None]
        await asyncio.wait(under_way, timeout=PATIENCE)
        for seen in self._machines:
            if seen.looking is not None and seen.looking.done():
                seen.looking.result()
            elif not seen.trouble:
                seen.trouble = f"{seen.machine.login.name}: no answer within {PATIENCE:g} s"
        for seen in self._machines:
            if seen.silent_for > self._lost_after:
                await seen.machine.leave_tunnel()  # what it carried must see that the other end is gone

    async def _all(self, ask: Callable[[_Seen], Awaitable[None]]) -> None:
        await asyncio.gather(*(self._asked(seen, ask) for seen in self._machines if not seen.trouble))

    async def _asked(self, seen: _Seen, ask: Callable[[_Seen], Awaitable[None]]) -> None:
        """Ask one machine; what goes wrong is its trouble."""
        try:
            await ask(seen)
            seen.trouble = ""
        except Unreachable as error:
            seen.trouble = plain(error)
        except AgentRefused as error:
            seen.trouble = f"{seen.machine.login.name}: {plain(error)}"
        except (KeyError, TypeError, ValueError):
            seen.trouble = f"{seen.machine.login.name}: its agent sent an answer that is none"

    async def _facts(self, seen: _Seen) -> None:
        if not seen.facts:
            seen.facts = await seen.machine.ask("facts", limit=60)
        if seen.resources is None:
            seen.resources = resources_of(seen.facts)

    def _answering(self) -> Sequence[_Seen]:
        return [seen for seen in self._machines if not seen.trouble and seen.looked is not None]

    def _check_epoch(self, epoch: int) -> None:
        highest = max((int(seen.looked["epoch"]) for seen in self._answering() if seen.looked), default=0)
        if epoch < highest:
            raise StaleEpoch(f"a controller with epoch {highest} has taken over; this one has epoch {epoch}")

    def _is_over(self, seen: _Seen, slice_id: str) -> bool:
        """Whether a slice on a silent machine is gone: its end was asked for, and its lease is over."""
        lease = self._lease
        return slice_id in self._ended and lease is not None and seen.silent_for > lease + _MARGIN

    def _repair(self) -> None:
        """End what was ended while its machine was silent, and join the tunnels of programs that run."""
        for seen in self._answering():
            sold = seen.sold
            if sold is None or sold.get("foreign"):
                continue
            slice_id = str(sold["slice"])
            if slice_id in self._ended or sold.get("ending"):
                self._tasks.begin(self._end(seen, slice_id, int((seen.looked or {}).get("epoch", 0))))

    def _instance(self, slice_id: str, found: Sequence[_Seen]) -> Instance:
        by_number = {int(seen.sold["host"]): seen for seen in found if seen.sold}
        sold = found[0].sold or {}
        count = max(int(sold.get("hosts", 1)), max(by_number, default=0) + 1)
        hosts, phases, troubles = [], [], []
        for number in range(count):
            seen = by_number.get(number)
            name = f"{slice_id}/{number}"
            if seen is None:
                hosts.append(Host(name, running=False))
                continue
            hosts.append(self._host(name, seen))
            phases.append(phase_of(seen.looked or {}))
            death = death_of(seen.looked or {})
            troubles.append(death.trouble if death is not None else seen.trouble)
        ending = slice_id in self._ended or any(bool((seen.sold or {}).get("ending")) for seen in found)
        whole = len(by_number) == count
        phase = "" if ending else next(filter(None, phases), "")
        return Instance(
            slice_id,
            str(sold["group"]),
            "ending" if ending else "running" if whole else "pending",
            tuple(hosts),
            zone="ssh",
            phase=phase,
            phase_since=self._phases.since(slice_id, phase),
            trouble="; ".join(filter(None, troubles)),
        )

    def _host(self, name: str, seen: _Seen) -> Host:
        """A host is up while it is being prepared and while its program runs."""
        death = death_of(seen.looked or {})
        if death is not None:
            return Host(name, False, seen.spec.address, death.exit_code, death.last_output)
        return Host(name, seen.silent_for <= self._lost_after, seen.spec.address)

    # -- selling ----------------------------------------------------------------------------------------------------

    async def _take(self, order: LaunchOrder, epoch: int, missing: Sequence[int]) -> dict[int, _Seen]:
        """Sell a machine for each missing host, or none."""
        await self._all(self._facts)
        taken: dict[int, _Seen] = {}
        reasons: list[str] = []
        free = iter(self._machines)
        for number in missing:
            for seen in free:
                why = self._unfit(seen, order) or await self._taken(seen, order, number, epoch)
                if not why:
                    taken[number] = seen
                    break
                reasons.append(f"{seen.spec.address}: {why}")
        if len(taken) < len(missing):
            for seen in taken.values():
                await self._ask(seen, "untake", slice=order.slice_id, epoch=epoch)
            raise InsufficientCapacity(f"no machine is free for {order.group}: " + "; ".join(reasons))
        return taken

    def _unfit(self, seen: _Seen, order: LaunchOrder) -> str:
        if seen.trouble:
            return f"does not answer ({seen.trouble})"
        sold = seen.sold
        if sold is not None:
            if sold.get("foreign"):
                return f"sold to cluster {plain(sold['cluster'], 60)}"
            return f"sold to slice {plain(sold['slice'], 60)}"
        has = dict(seen.resources or ())
        for name, amount in order.resources:
            if name != SLOTS and has.get(name, 0) < amount:
                return f"has too little {name}"
        model, devices = order.labels.get("accelerator", ""), seen.facts.get("accelerators") or ()
        if model and devices and not all(model.lower() in str(device).lower() for device in devices):
            return f"its accelerators are {plain(devices[0], 60)}, not {model}"
        wrong = [name for name, value in order.labels.items() if seen.spec.labels.get(name, value) != value]
        return f"its label {wrong[0]} is {seen.spec.labels[wrong[0]]}" if wrong else ""

    async def _taken(self, seen: _Seen, order: LaunchOrder, number: int, epoch: int) -> str:
        """Sell one machine; the reason if that is not possible."""
        sold: dict[str, Any] = {
            "slice": order.slice_id,
            "group": order.group,
            "host": number,
            "hosts": len(order.hosts),
        }
        try:
            await seen.machine.ask("take", epoch=epoch, lease=self._lease, cluster_name=self._cluster.name, **sold)
        except Unreachable as error:
            return plain(error)
        except AgentRefused as error:
            if error.kind == "stale":
                raise StaleEpoch(plain(error)) from error
            return plain(error)
        seen.looked = {**(seen.looked or {}), "sold": {**sold, "cluster": seen.machine.cluster, "phase": "connecting"}}
        return ""

    async def _end(self, seen: _Seen, slice_id: str, epoch: int) -> None:
        if not await self._ask(seen, "end", slice=slice_id, epoch=epoch, limit=40):
            self._ended.add(slice_id)
            return
        await seen.machine.leave_tunnel()
        if seen.holds(slice_id) and seen.looked is not None:
            seen.looked = {**seen.looked, "sold": None}
        if not any(one.holds(slice_id) for one in self._machines):
            self._ended.discard(slice_id)

    async def _ask(self, seen: _Seen, op: str, **fields: Any) -> bool:
        """Whether a request was carried out; a machine that does not answer is asked again later."""
        try:
            await seen.machine.ask(op, **fields)
        except Unreachable as error:
            seen.trouble = plain(error)
            return False
        except AgentRefused as error:
            if error.kind == "stale":
                raise StaleEpoch(plain(error)) from error
            if error.kind != "gone":
                raise ProviderError(f"{seen.machine.login.name}: {plain(error)}") from error
        return True


def resources_of(facts: Mapping[str, Any]) -> Amounts:
    """What a machine has, as it says: thousandths of a CPU, bytes, thousandths of an accelerator."""
    found = {"cpu": 1000 * int(facts["cpus"]), "memory": int(facts["memory"])}
    if facts["accelerators"]:
        found["gpu"] = 1000 * len(facts["accelerators"])
    return amounts(found)
