"""``DaskWorkload`` scales a Dask cluster: the user runs the scheduler, and Windlass buys workers for it.

Clients need no change. Windlass registers a plugin with the scheduler (``scheduler_plugin``), and this module converts
what it reports: waiting tasks are demands, by the name of their function and the resources that they need; a worker
that Windlass bought is a node; a fenced worker that reports that nothing runs is an acknowledgement. Windlass does not
touch workers that the user started.

Calls to the scheduler use connections of their own. The state of a scheduler that does not answer is unknown, not
empty; the next call connects again.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any, Final, TypeVar

import cloudpickle
from distributed.core import rpc
from distributed.security import Security

from windlass.core.model.conditions import Condition
from windlass.core.model.quantities import BYTES
from windlass.core.model.snapshot import Amounts, Bundle, Demand, Group, amounts
from windlass.workloads.protocol import Acknowledgement, Join, WorkloadError, WorkloadView, WorkNode

from . import scheduler_plugin, worker_plugin
from .scheduler_plugin import OURS, PLUGIN, slice_of

T = TypeVar("T")

CONNECTING: Final = 3.0
"""Timeout of a connection to the scheduler, in seconds."""
AGAIN: Final = 1.0
"""Seconds between two attempts to reach a scheduler that does not answer."""
DEATH: Final = 60
"""Seconds after which a worker that cannot reach the scheduler ends."""
SILENT: Final = 120.0
"""Seconds without a heartbeat after which a node is unhealthy. Long, because code that holds Python's lock sends none;
the scheduler notices a dead process at once."""
SAME_CLOCK: Final = 1.0
"""Seconds by which the scheduler's clock may differ from ours and still be taken for the same clock."""
ADDRESS: Final = "dask-worker"
"""The label with the address of a node's worker; tasks that must run on one worker select it."""
RESULTS: Final = "results-in-memory"
"""The standing request for one node with results of finished tasks that a client holds: without the last such node,
Dask would compute them again."""


class DaskWorkload:
    """Runs the tasks of a Dask scheduler, ``tcp://HOST:PORT`` or ``tls://HOST:PORT``."""

    def __init__(
        self,
        scheduler: str,
        groups: Iterable[Group] = (),
        *,
        tls: Mapping[str, str | None] | None = None,
        silent: float = SILENT,
        target: float = 0.0,
        read_only: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``tls``: the paths ``ca_file``, ``cert`` and ``key``. ``silent``: seconds without a heartbeat after which a
        node is unhealthy. ``target``: seconds within which all waiting tasks of a kind should finish; 0: every waiting
        task gets a thread. ``read_only``: register nothing with the scheduler."""
        self._scheduler, self._silent, self._target, self._now = scheduler, silent, target, now
        self._look_only = read_only
        self._tls = {key: value for key, value in (tls or {}).items() if value is not None}
        self._link: rpc | None = None
        self._linking = asyncio.Lock()
        self._behind: float | None = None
        """Seconds by which the scheduler's clock is behind ours; None: unknown."""
        self._seen: tuple[str, int] = ("", 0)
        self._change, self._observed = asyncio.Event(), asyncio.Event()
        self._listening: asyncio.Task[None] | None = None
        self.regroup(groups)

    def regroup(self, groups: Iterable[Group]) -> None:
        """Replace the groups for hosts that join from now on; nodes that have joined do not change."""
        self._groups = {group.name: group for group in groups}

    # -- the contract ------------------------------------------------------------------------------------------------

    async def observe(self) -> WorkloadView:
        self._change.clear()
        if self._look_only:
            once = (scheduler_plugin.observe_once, _set_up(), self._target)
            answer = await self._call(lambda link: _run(link, *once), register=False)
        else:
            answer = await self._call(lambda link: link.windlass_observe(target=self._target))
        self._seen = answer["life"], answer["number"]
        self._observed.set()
        return self._view(answer)

    async def changed(self) -> None:
        if not self._look_only and self._listening is None:
            self._listening = asyncio.create_task(self._listen())
        await self._change.wait()

    def join(self, slice_id: str, group: str, host: int) -> Join:
        known = self._groups.get(group)
        if known is None:
            raise WorkloadError(
                f"host {host} of slice {slice_id} cannot join: there is no group {group}; "
                f"there are {', '.join(sorted(self._groups)) or 'none'}"
            )
        if wrong := unfit(known):
            raise WorkloadError(f"host {host} of slice {slice_id} cannot join: {wrong}")
        has = dict(known.resources)
        options = {
            "--name": f"{OURS}{slice_id}/{host}",
            "--nthreads": str(has["cpu"] // 1000),
            "--memory-limit": str(has.get("memory", 0)),
            "--death-timeout": str(DEATH),
            "--resources": " ".join(f"{name}={amount}" for name, amount in _offered(known)),
            "--tls-ca-file": self._tls.get("ca_file"),
            "--tls-cert": self._tls.get("cert"),
            "--tls-key": self._tls.get("key"),
        }
        given = [word for name, value in options.items() if value for word in (name, value)]
        # -P: import nothing from the directory of the host.
        start = (sys.executable, "-P", "-m", "distributed.cli.dask_worker", self._scheduler)
        return Join(
            (*start, "--no-nanny", "--no-dashboard", *given), requirements=(f"distributed=={version('distributed')}",)
        )

    async def cordon(self, slice_id: str, epoch: int) -> None:
        await self._call(lambda link: link.windlass_cordon(slice_id=slice_id, epoch=epoch))

    async def uncordon(self, slice_id: str, epoch: int) -> None:
        await self._call(lambda link: link.windlass_uncordon(slice_id=slice_id, epoch=epoch))

    async def drain(self, slice_id: str, epoch: int, *, evict: bool = False) -> None:
        if evict:
            await self._call(lambda link: link.windlass_evict(slice_id=slice_id, epoch=epoch))

    async def forget(self, slice_ids: Sequence[str]) -> None:
        await self._call(lambda link: link.windlass_forget(slice_ids=list(slice_ids)))

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
            self._listening = None
        await self._disconnect()

    # -- the scheduler -----------------------------------------------------------------------------------------------

    async def _call(self, call: Callable[[rpc], Awaitable[T]], *, register: bool = True) -> T:
        """Call the scheduler; raise ``WorkloadError`` for every failure.

        The plugin never answers with None. None means that the scheduler has no plugin because it was restarted.
        """
        try:
            link = await self._connect(register=register)
            answer = await call(link)
            if answer is None and register:
                await _register(link)
                answer = await call(link)
            if answer is None:
                raise WorkloadError(f"the Dask scheduler at {self._scheduler} did not register Windlass's plugin")
            return answer
        except (OSError, TimeoutError) as error:
            await self._disconnect()
            why = f"{error}" or type(error).__name__
            raise WorkloadError(f"the Dask scheduler at {self._scheduler} cannot be reached: {why}") from error
        except WorkloadError:
            raise
        except Exception as error:  # errors of the scheduler are raised here with their own type
            raise WorkloadError(
                f"the Dask scheduler at {self._scheduler} refused: {type(error).__name__}: {error}"
            ) from error

    async def _connect(self, *, register: bool) -> rpc:
        async with self._linking:
            if self._link is None:
                link = rpc(self._scheduler, timeout=CONNECTING, connection_args=self._security())
                try:
                    async with asyncio.timeout(CONNECTING):
                        self._check(await link.versions())
                        if register:
                            await _register(link)
                except BaseException:
                    await link.close_rpc()
                    raise
                self._link, self._behind = link, None
            return self._link

    def _security(self) -> dict[str, Any]:
        if not self._tls:
            return {}
        sides = {"tls_client_cert": self._tls.get("cert"), "tls_client_key": self._tls.get("key")}
        security = Security(tls_ca_file=self._tls.get("ca_file"), require_encryption=True, **sides)
        return dict(security.get_connection_args("client"))

    def _check(self, versions: Mapping[str, Any]) -> None:
        theirs = ".".join(str(versions["host"]["python"]).split(".")[:2])
        ours = f"{sys.version_info.major}.{sys.version_info.minor}"
        if theirs != ours:
            raise WorkloadError(
                f"the Dask scheduler at {self._scheduler} runs Python {theirs}, and Windlass and its nodes run Python "
                f"{ours}: tasks made for one crash in the other; run windlass with Python {theirs}"
            )

    async def _disconnect(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            with suppress(OSError):
                await link.close_rpc()

    async def _listen(self) -> None:
        """Wake the controller when something has changed since the last observation."""
        while True:
            self._observed.clear()
            life, number = self._seen
            try:
                await self._call(_wait_for(life, number))
            except WorkloadError:
                await asyncio.sleep(AGAIN)
                continue
            self._change.set()
            await self._observed.wait()

    # -- converting its answers --------------------------------------------------------------------------------------

    def _view(self, answer: Mapping[str, Any]) -> WorkloadView:
        if self._behind is None:
            behind = self._now() - answer["now"]
            self._behind = behind if abs(behind) > SAME_CLOCK else 0.0
        holders = answer["holders"]
        return WorkloadView(
            demands=tuple(_demand(self._behind, *one) for one in answer["demands"]),
            requests=(Demand(RESULTS, (Bundle(()),), where=_on(holders)),) if holders else (),
            nodes=tuple(self._node(one, self._behind) for one in answer["nodes"]),
            acknowledged=tuple(Acknowledgement(*one) for one in answer["fences"]),
        )

    def _node(self, worker: Mapping[str, Any], behind: float) -> WorkNode:
        name = worker["name"]
        return WorkNode(
            id=name.removeprefix(OURS),
            slice_id=slice_of(name) or "",
            used=_with_threads(worker["used"], worker["occupied"]),
            tasks=worker["tasks"],
            idle_since=None if worker["tasks"] else worker["idle_since"] + behind,
            labels={ADDRESS: worker["address"]},
            healthy=worker["silent"] <= self._silent,
            present=_with_threads(worker["resources"], worker["threads"]),
        )


def unfit(group: Group) -> str:
    """Return why the nodes of a group cannot be Dask workers; empty: they can."""
    if dict(group.resources).get("cpu", 0) < 1000:
        return f"{group.name} must have at least 1 cpu: it is the number of threads of its Dask workers"
    if odd := [name for name, _ in group.resources if not name.isprintable() or any(one in name for one in " ,=")]:
        return f"{group.name} has a resource name that Dask does not accept: {odd[0]!r}; leave out spaces, commas and ="
    return ""


def _offered(group: Group) -> list[tuple[str, int | float]]:
    """Return the resources of a worker. Dask distinguishes ``GPU`` from ``gpu``, so it has both."""
    found: list[tuple[str, int | float]] = []
    for name, amount in group.resources:
        exact = amount if name in BYTES else amount / 1000 if amount % 1000 else amount // 1000
        found += [(spelling, exact) for spelling in dict.fromkeys((name, name.upper()))]
    return found


def _demand(
    behind: float, prefix: str, resources: Sequence[tuple[str, float]], pinned: Sequence[str], count: int, since: float
) -> Demand:
    """Return a demand. Every task takes a thread."""
    asked = ",".join(f"{name}={amount:g}" for name, amount in resources)
    name = ":".join(part for part in (prefix, asked, ",".join(pinned)) if part)
    needs = dict(_with_threads(dict(resources), 1))
    return Demand(name, (Bundle(amounts(needs), count),), where=_on(pinned), since=since + behind)


def _on(addresses: Sequence[str]) -> tuple[Condition, ...]:
    return (Condition(ADDRESS, "in", tuple(addresses)),) if addresses else ()


def _with_threads(resources: Mapping[str, float], threads: int) -> Amounts:
    """Convert Dask's resources: names in lower case, a thread is a cpu."""
    found = {"cpu": 1000 * threads} if threads else {}
    for spelling, amount in resources.items():
        name = spelling.lower()
        exact = round(amount) if name in BYTES else max(1, round(1000 * amount)) if amount else 0
        found[name] = max(found.get(name, 0), exact)
    return amounts(found)


def _wait_for(life: str, number: int) -> Callable[[rpc], Awaitable[object]]:
    return lambda link: link.windlass_wait(life=life, seen=number)


async def _register(link: rpc) -> None:
    """Register the plugin with the scheduler, unless it has it."""
    plugin = _pickled(scheduler_plugin.WindlassPlugin(_set_up()))
    await link.register_scheduler_plugin(plugin=plugin, name=PLUGIN, idempotent=True)


def _set_up() -> bytes:
    return _pickled(worker_plugin.set_up)


async def _run(link: rpc, function: Callable[..., Any], *given: Any) -> Any:
    """Run a function in the scheduler."""
    answer = await link.run_function(function=_pickled(function), args=pickle.dumps(given))
    if answer["status"] != "OK":
        raise pickle.loads(answer["exception"])
    return answer["result"]


def _pickled(what: object) -> bytes:
    """Pickle something with its code: the receiver does not have this package."""
    for module in (scheduler_plugin, worker_plugin):
        cloudpickle.register_pickle_by_value(module)
    try:
        return cloudpickle.dumps(what)  # type: ignore[no-any-return, unused-ignore]
    finally:
        for module in (scheduler_plugin, worker_plugin):
            cloudpickle.unregister_pickle_by_value(module)
