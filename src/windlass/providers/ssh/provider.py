"""The SSH provider has a list of machines and assigns each of them to one slice at a time.

The assignment is stored on the machine itself. So every controller of the cluster finds it, and a machine in the lists
of two clusters is used by one of them only. The machines also store the highest epoch: ``launch`` and ``terminate``
read it from all machines that answer, and are refused if their own epoch is lower.

A machine that does not answer is out of stock. If one of our slices runs there, the list shows the slice in its last
known state. After ``lost_after`` seconds without an answer the host counts as dead and its tunnel is closed. A program
with a lease (in a pool) has ended on its own by then, so a slice that was terminated meanwhile is gone. A slice whose
program has no lease stays in the list as ``ending`` until its machine answers and confirms the end.
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
from windlass.providers.remote.preparation import Death, Phases, Preparations, ProgramRules, checked, death_of, phase_of
from windlass.providers.ssh.machine_list import BadMachine, MachineSpec, read_machines

log = logging.getLogger(__name__)

LOST_AFTER: Final = 60.0
_MARGIN: Final = 10.0
"""Seconds that a supervisor needs at most to end its program after the lease."""
POLL_LIMIT: Final = 20.0
PATIENCE: Final = 5.0
"""Seconds that ``list`` waits for machines; the controller's own limit for the call is ten."""
_NAMED: Final = 5
"""A reason names at most this many machines."""
_LAST_TIME: Final = 2.0**32
"""The latest time that is accepted from a machine, whose answers are untrusted."""
SLOTS: Final = "slots"
"""A resource that a pool's nodes add themselves; no machine reports it."""


@dataclass(slots=True)
class _Seen:
    """The last known state of a machine."""

    machine: RemoteMachine
    spec: MachineSpec
    report: dict[str, Any] | None = None
    """The agent's last answer; None: the machine has never answered."""
    resources: Amounts | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    is_silent: bool = True
    """Whether the machine does not answer; False if a login or a host key was refused."""
    poll: asyncio.Task[None] | None = None

    @property
    def assignment(self) -> Mapping[str, Any] | None:
        return (self.report or {}).get("assignment")

    @property
    def silent_for(self) -> float:
        since = self.machine.silent_since
        return 0.0 if since is None else time.monotonic() - since

    def holds(self, slice_id: str) -> bool:
        assignment = self.assignment
        return assignment is not None and not assignment.get("foreign") and assignment["slice"] == slice_id


class SSHProvider:
    """Launches slices on the machines of a list, one machine for each host."""

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
        read_only: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``lease``: seconds without a controller after which a program ends itself; None: it keeps running.

        ``lost_after``: seconds without an answer after which a host counts as dead; by default a little more than the
        lease.

        ``images``: the image of each group; ``image``: that of the groups that are not in ``images``.

        ``read_only``: ``list`` repairs nothing.
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
        self._read_only = read_only
        self._lease = lease
        self._lost_after = lost_after or (LOST_AFTER if lease is None else lease + _MARGIN)
        self._rules = ProgramRules(connect == "tunnel", lease, grace, images or {}, image)
        self._preparations = Preparations(self._rules)
        self._now = now
        self._phases = Phases(now)
        self._choosing = asyncio.Lock()
        self._ended: set[str] = set()
        """Slices that were terminated while one of their machines did not answer."""
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
        # In a task of its own, so that a cancelled caller leaves no machine that is assigned and never prepared.
        await asyncio.shield(self._tasks.begin(self._launch(order, epoch)))

    async def _launch(self, order: LaunchOrder, epoch: int) -> None:
        async with self._choosing:
            await self._poll((order.slice_id,))
            self._check_epoch(epoch)
            if any(order.slice_id in (seen.report or {}).get("ended", ()) for seen in self._answering()):
                log.warning(
                    "%s is not launched: a slice with this id has ended, and an id is used once", order.slice_id
                )
                return
            held = {
                int(seen.assignment["host"]): seen
                for seen in self._machines
                if seen.assignment and seen.holds(order.slice_id)
            }
            if any(seen.assignment and seen.assignment.get("ending") for seen in held.values()):
                return
            missing = [number for number in range(len(order.hosts)) if number not in held]
            taken = await self._assign(order, epoch, missing) if missing else {}
        for number, seen in {**held, **taken}.items():
            assignment = seen.assignment or {}
            if not assignment.get("started") and not assignment.get("failed"):
                self._preparations.begin(seen.machine, order, number, epoch)

    async def terminate(self, slice_id: str, epoch: int) -> None:
        await asyncio.shield(self._tasks.begin(self._terminate(slice_id, epoch)))

    async def _terminate(self, slice_id: str, epoch: int) -> None:
        await self._preparations.stop(slice_id)
        await self._poll(())
        self._check_epoch(epoch)
        holding = [seen for seen in self._machines if seen.holds(slice_id)]
        await asyncio.gather(*(self._end(seen, slice_id, epoch) for seen in holding))

    async def list(self) -> Sequence[Instance]:
        await self._poll(())
        if not self._read_only:
            self._repair()
        slices: dict[str, list[_Seen]] = {}
        for seen in self._machines:
            assignment = seen.assignment
            if (
                assignment is not None
                and not assignment.get("foreign")
                and not self._is_over(seen, str(assignment["slice"]))
            ):
                slices.setdefault(str(assignment["slice"]), []).append(seen)
        return [self._instance(slice_id, found) for slice_id, found in sorted(slices.items())]

    async def confirm_ended(self, slice_ids: Collection[str]) -> Collection[str]:
        """Return slices that have ended and run on no machine. A machine that does not answer may still run one."""
        await self._poll(tuple(slice_ids))
        answering = self._answering()
        if len(answering) < len(self._machines):
            return ()
        ended = {name for seen in answering for name in (seen.report or {}).get("ended", ())}
        return [name for name in slice_ids if name in ended and not any(seen.holds(name) for seen in answering)]

    async def diagnose(self) -> Sequence[str]:
        """Return the reason of each machine that does not answer."""
        await self._poll(())
        return [seen.problem for seen in self._machines if seen.problem]

    async def offerings(self) -> Sequence[Offering]:
        await self._all(self._facts)
        found = [seen for seen in self._machines if seen.resources is not None]
        return tuple(Offering(seen.spec.address, seen.resources or (), zones=("ssh",)) for seen in found)

    async def close(self) -> None:
        await self._preparations.stop()
        await self._tasks.close()
        await asyncio.gather(*(seen.machine.close() for seen in self._machines))

    # -- polling ----------------------------------------------------------------------------------------------------

    async def _poll(self, ids: Sequence[str]) -> None:
        """Poll all machines for a few seconds. A machine that needs longer counts as silent until it answers."""

        async def read_status(seen: _Seen) -> None:
            report = await seen.machine.ask("status", ids=list(ids), limit=POLL_LIMIT)
            assignment = report.get("assignment")
            if assignment is not None and not self._cluster.owns(
                str(assignment.get("cluster_name")), str(assignment["cluster"])
            ):
                report["assignment"] = {
                    "cluster": assignment.get("cluster_name") or assignment["cluster"],
                    "foreign": True,
                }
            seen.report = report

        for seen in self._machines:
            if seen.poll is None or seen.poll.done():
                seen.poll = self._tasks.begin(self._asked(seen, read_status))
        under_way = [seen.poll for seen in self._machines if seen.poll is not None]
        await asyncio.wait(under_way, timeout=PATIENCE)
        for seen in self._machines:
            if seen.poll is not None and seen.poll.done():
                seen.poll.result()
            elif not seen.problem:
                seen.problem = f"{seen.machine.login.name}: no answer within {PATIENCE:g} s"
        for seen in self._machines:
            if seen.silent_for > self._lost_after:
                await seen.machine.leave_tunnel()  # so that its streams are closed on this side

    async def _all(self, ask: Callable[[_Seen], Awaitable[None]]) -> None:
        await asyncio.gather(*(self._asked(seen, ask) for seen in self._machines if not seen.problem))

    async def _asked(self, seen: _Seen, ask: Callable[[_Seen], Awaitable[None]]) -> None:
        """Send one request to a machine; store an error in its ``problem``."""
        try:
            await ask(seen)
            seen.problem = ""
        except Unreachable as error:
            seen.problem, seen.is_silent = plain(error), error.kind == "silent"
        except AgentRefused as error:
            seen.problem, seen.is_silent = f"{seen.machine.login.name}: {plain(error)}", False
        except (KeyError, TypeError, ValueError):
            seen.problem = f"{seen.machine.login.name}: its agent sent an invalid answer"

    async def _facts(self, seen: _Seen) -> None:
        if not seen.facts:
            seen.facts = await seen.machine.ask("facts", limit=60)
        if seen.resources is None:
            seen.resources = resources_of(seen.facts)

    def _answering(self) -> Sequence[_Seen]:
        return [seen for seen in self._machines if not seen.problem and seen.report is not None]

    def _check_epoch(self, epoch: int) -> None:
        highest = max((int(seen.report["epoch"]) for seen in self._answering() if seen.report), default=0)
        if epoch < highest:
            raise StaleEpoch.of(epoch, highest)

    def _is_over(self, seen: _Seen, slice_id: str) -> bool:
        """Whether a slice on a silent machine has ended: it was terminated, and its lease is over."""
        lease = self._lease
        return slice_id in self._ended and lease is not None and seen.silent_for > lease + _MARGIN

    def _repair(self) -> None:
        """End slices that were terminated while their machine did not answer."""
        for seen in self._answering():
            assignment = seen.assignment
            if assignment is None or assignment.get("foreign"):
                continue
            slice_id = str(assignment["slice"])
            if slice_id in self._ended or assignment.get("ending"):
                self._tasks.begin(self._end(seen, slice_id, int((seen.report or {}).get("epoch", 0))))

    def _instance(self, slice_id: str, found: Sequence[_Seen]) -> Instance:
        by_number = {int(seen.assignment["host"]): seen for seen in found if seen.assignment}
        assignment = found[0].assignment or {}
        count = max(int(assignment.get("hosts", 1)), max(by_number, default=0) + 1)
        hosts, phases, problems = [], [], []
        for number in range(count):
            seen = by_number.get(number)
            name = f"{slice_id}/{number}"
            if seen is None:
                hosts.append(Host(name, running=False))
                continue
            death = death_of(seen.report or {}, self._preparations.failure(slice_id, number))
            hosts.append(self._host(name, seen, death))
            phases.append("" if death is not None else phase_of(seen.report or {}))
            problems.append(death.why if death is not None else seen.problem)
        ending = slice_id in self._ended or any(bool((seen.assignment or {}).get("ending")) for seen in found)
        whole = len(by_number) == count
        phase = "" if ending else next(filter(None, phases), "")
        return Instance(
            slice_id,
            str(assignment["group"]),
            "ending" if ending else "running" if whole else "pending",
            tuple(hosts),
            zone="ssh",
            phase=phase,
            phase_since=self._phases.since(slice_id, phase),
            trouble="; ".join(filter(None, problems)),
            started_at=min(filter(None, (_time(seen.assignment or {}) for seen in found)), default=None),
        )

    def _host(self, name: str, seen: _Seen, death: Death | None) -> Host:
        """A host is up while it is being prepared and while its program runs."""
        if death is not None:
            return Host(name, False, seen.spec.address, death.exit_code, death.last_output, death.failed_phase)
        return Host(name, seen.silent_for <= self._lost_after, seen.spec.address)

    # -- assigning machines -----------------------------------------------------------------------------------------

    async def _assign(self, order: LaunchOrder, epoch: int, missing: Sequence[int]) -> dict[int, _Seen]:
        """Assign a machine to each missing host, or none at all."""
        await self._all(self._facts)
        taken: dict[int, _Seen] = {}
        reasons: dict[str, list[str]] = {}
        free = iter(self._machines)
        for number in missing:
            for seen in free:
                why = self._unfit(seen, order) or await self._assign_machine(seen, order, number, epoch)
                if not why:
                    taken[number] = seen
                    break
                reasons.setdefault(why, []).append(seen.machine.login.name)
        if len(taken) < len(missing):
            for seen in taken.values():
                await self._ask(seen, "unassign", slice=order.slice_id, epoch=epoch)
            said = "; ".join(f"{_names(names)}: {why}" for why, names in reasons.items())
            raise InsufficientCapacity(f"no machine is free for group {order.group}: {said}")
        return taken

    def _unfit(self, seen: _Seen, order: LaunchOrder) -> str:
        if seen.problem:
            what = "does not answer" if seen.is_silent else "cannot be used"
            return f"{what}: {seen.problem.removeprefix(f'{seen.machine.login.name}: ')}"
        assignment = seen.assignment
        if assignment is not None:
            if assignment.get("foreign"):
                return f"in use by cluster {plain(assignment['cluster'], 60)}"
            return f"in use by {plain(assignment['slice'], 60)}"
        has = dict(seen.resources or ())
        for name, amount in order.resources:
            if name != SLOTS and has.get(name, 0) < amount:
                return f"has too little {name}"
        model, devices = order.labels.get("accelerator", ""), seen.facts.get("accelerators") or ()
        if model and devices and not all(model.lower() in str(device).lower() for device in devices):
            return f"its accelerators are {plain(devices[0], 60)}, not {model}"
        wrong = [name for name, value in order.labels.items() if seen.spec.labels.get(name, value) != value]
        return f"its label {wrong[0]} is {seen.spec.labels[wrong[0]]}" if wrong else ""

    async def _assign_machine(self, seen: _Seen, order: LaunchOrder, number: int, epoch: int) -> str:
        """Assign one machine; return the reason if that is not possible."""
        assignment: dict[str, Any] = {
            "slice": order.slice_id,
            "group": order.group,
            "host": number,
            "hosts": len(order.hosts),
            "assigned_at": self._now(),
        }
        try:
            await seen.machine.ask(
                "assign", epoch=epoch, lease=self._lease, cluster_name=self._cluster.name, **assignment
            )
        except Unreachable as error:
            return plain(error).removeprefix(f"{seen.machine.login.name}: ")
        except AgentRefused as error:
            if error.kind == "stale":
                raise StaleEpoch(plain(error)) from error
            return plain(error)
        seen.report = {
            **(seen.report or {}),
            "assignment": {**assignment, "cluster": seen.machine.cluster, "phase": "connecting"},
        }
        return ""

    async def _end(self, seen: _Seen, slice_id: str, epoch: int) -> None:
        if not await self._ask(seen, "end", slice=slice_id, epoch=epoch, limit=40):
            self._ended.add(slice_id)
            return
        await seen.machine.leave_tunnel()
        if seen.holds(slice_id) and seen.report is not None:
            seen.report = {**seen.report, "assignment": None}
        if not any(one.holds(slice_id) for one in self._machines):
            self._ended.discard(slice_id)

    async def _ask(self, seen: _Seen, op: str, **fields: Any) -> bool:
        """Return whether a request was carried out; False if the machine did not answer."""
        try:
            await seen.machine.ask(op, **fields)
        except Unreachable as error:
            seen.problem = plain(error)
            return False
        except AgentRefused as error:
            if error.kind == "stale":
                raise StaleEpoch(plain(error)) from error
            if error.kind != "gone":
                raise ProviderError(f"{seen.machine.login.name}: {plain(error)}") from error
        return True


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _time(assignment: Mapping[str, Any]) -> float | None:
    """Return when a controller assigned the machine, by that controller's clock; None if it is not known."""
    at = assignment.get("assigned_at")
    return at if isinstance(at, float) and 0 < at < _LAST_TIME else None


def resources_of(facts: Mapping[str, Any]) -> Amounts:
    """Convert the facts that a machine reports: thousandths of a CPU, bytes, thousandths of an accelerator."""
    found = {"cpu": 1000 * int(facts["cpus"]), "memory": int(facts["memory"])}
    if facts["accelerators"]:
        found["gpu"] = 1000 * len(facts["accelerators"])
    return amounts(found)
