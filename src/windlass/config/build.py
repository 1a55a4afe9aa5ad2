"""Assembling: the providers and the workload that a configuration names.

With ``look_only`` nothing that is made here changes anything when it is only looked at: for ``plan --live`` and
``doctor``, beside a controller that runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from windlass._extras import install_command
from windlass.core.model.snapshot import Demand, Group
from windlass.providers.protocol import ClusterIdentity, Offering, Provider
from windlass.scenario import ScenarioError
from windlass.scenario.parser import plain_data
from windlass.scenario.scenario import read_plain
from windlass.scenario.writer import write_scenario
from windlass.workloads.protocol import Workload

from .reader import Config, ConfigError, ProviderConfig

SELLER = {"queue": "local", "dask": "local", "simulated": "simulated"}
"""The providers on whose machines a workload can run."""


@dataclass(frozen=True, slots=True)
class Components:
    """What a controller works with."""

    config: Config
    providers: dict[str, Provider]
    workload: Workload

    async def close(self, but: Components | None = None) -> None:
        """Let go of everything that another plant has not taken over; slices and work go on."""
        kept = set() if but is None else {id(but.workload), *map(id, but.providers.values())}
        for provider in self.providers.values():
            if id(provider) not in kept:
                await provider.close()
        if id(self.workload) not in kept:
            await self.workload.close()


def incompatibilities(config: Config) -> list[str]:
    """Providers and a workload that cannot work together, in words."""
    kind, sellers = config.workload.type, {sold.provider for sold in config.settings.groups}
    if kind == "pool":
        here = "workload.type: the tasks of a pool are in the program that made it, and so is its controller; "
        return [f"{here}this file is for windlass status, why and events"]
    wrong = [
        f"workload.type: {kind} runs on {SELLER[kind]} machines only, and providers.{name} is {one.type}"
        for name, one in config.providers.items()
        if name in sellers and one.type != SELLER[kind]
    ]
    return wrong + (_dask_misfits(config) if kind == "dask" else [])


def _dask_misfits(config: Config) -> list[str]:
    missing = [module for module in ("distributed", "cloudpickle") if find_spec(module) is None]
    if missing:
        return [f"workload.type: dask needs {missing[0]}, which is not installed: {install_command('pool')}"]
    from windlass.workloads.dask_cluster.workload import unfit

    wrong = [
        f"groups.{sold.group.name}.resources: {why}" for sold in config.settings.groups if (why := unfit(sold.group))
    ]
    tls, scheduler = config.workload.settings["tls"], config.workload.settings["scheduler"]
    encrypted = scheduler.startswith("tls://")
    if encrypted and not (tls["ca_file"] and tls["cert"]):
        wrong.append(f"workload.tls: {scheduler} wants certificates: give ca_file and cert, and key if it is apart")
    if any(tls.values()) and not encrypted:
        wrong.append(f"workload.tls: is for a scheduler at tls://HOST:PORT, and it is at {scheduler}")
    return wrong


def build_components(
    config: Config,
    *,
    look_only: bool = False,
    tie_to: int | None = None,
    now: Callable[[], float] = time.time,
    like: Components | None = None,
) -> Components:
    """The plant of a configuration; ``ConfigError`` if its parts do not fit together.

    ``tie_to``: the number of a process with which machines that are bought on this computer end.
    ``like``: a plant whose parts go on where their part of the configuration is still the same.
    """
    if wrong := incompatibilities(config):
        raise ConfigError(wrong)
    groups = [sold.group for sold in config.settings.groups]
    providers: dict[str, Provider] = {}
    for name, one in config.providers.items():
        same = like is not None and like.config.providers.get(name) == one
        providers[name] = like.providers[name] if like and same else _provider(one, look_only, tie_to, now)
        if not same:
            # For those who only look. A controller binds it to its journal.
            providers[name].bind(ClusterIdentity(config.settings.cluster.name))
        _tell_groups(providers[name], [sold.group for sold in config.settings.groups if sold.provider == name])
    if like is not None and like.config.workload == config.workload:
        workload = like.workload
    else:
        workload = _workload(config, providers, look_only, now)
    _tell_groups(workload, groups)
    return Components(config, providers, workload)


def _tell_groups(part: Provider | Workload, groups: Iterable[Group]) -> None:
    """Parts that must know the groups by themselves have a ``regroup``."""
    regroup = getattr(part, "regroup", None)
    if regroup is not None:
        regroup(groups)


def _provider(one: ProviderConfig, look_only: bool, tie_to: int | None, now: Callable[[], float]) -> Provider:
    settings = one.settings
    if one.type == "local":
        from windlass.providers.local.provider import LocalProvider

        return LocalProvider(
            settings["directory"],
            boot_delay=settings["boot_delay"],
            grace=settings["grace"],
            repair=not look_only,
            tie_to=tie_to,
            now=now,
        )
    from windlass.sim.cloud.machines import MachineKind
    from windlass.sim.cloud.provider import SimulatedProvider

    class Simulated(SimulatedProvider):
        """A cloud that sells whatever the configuration has groups for."""

        def regroup(self, groups: Iterable[Group]) -> None:
            self.sell(
                MachineKind(
                    Offering(group.name, group.resources, group.hosts, group.price, preemptible=group.preemptible),
                    boot=settings["boot_delay"],
                    join=0,
                )
                for group in groups
            )

    return Simulated((), now=now, seed=settings["seed"])


def _workload(config: Config, providers: dict[str, Provider], look_only: bool, now: Callable[[], float]) -> Workload:
    settings = config.workload.settings
    if config.workload.type == "queue":
        from windlass.workloads.queue.workload import QueueWorkload

        return QueueWorkload(settings["directory"], look_only=look_only, now=now)
    if config.workload.type == "dask":
        from windlass.workloads.dask_cluster.workload import DaskWorkload

        return DaskWorkload(
            settings["scheduler"],
            tls=settings["tls"],
            silent=settings["heartbeat_timeout"],
            target=settings["target_duration"],
            look_only=look_only,
            now=now,
        )
    from windlass.sim.cloud.provider import SimulatedProvider
    from windlass.sim.workload.jobs import Job
    from windlass.sim.workload.workload import SimulatedWorkload

    clouds = [provider for provider in providers.values() if isinstance(provider, SimulatedProvider)]
    demands, requests = _demands(settings["demands"], config)
    return SimulatedWorkload(
        (),
        lambda: [host for cloud in clouds for host in cloud.live_hosts()],
        now=now,
        jobs=[Job(demand, now(), settings["duration"]) for demand in demands],
        requests=requests,
        seed=settings["seed"],
    )


def _demands(file: str | None, config: Config) -> tuple[tuple[Demand, ...], tuple[Demand, ...]]:
    """The demands and standing requests in a file; every mistake in it with the setting that names it."""
    if file is None:
        return (), ()
    try:
        data = plain_data(Path(file).read_bytes())
        groups = write_scenario(config.empty_snapshot())["groups"]
        snapshot = read_plain({**data, "groups": groups} if isinstance(data, Mapping) else data)
    except OSError as error:
        raise ConfigError([f"workload.demands: {file} cannot be read: {error.strerror}"]) from None
    except ScenarioError as error:
        raise ConfigError([f"workload.demands: {file}: {mistake}" for mistake in error.mistakes]) from None
    return snapshot.demands, snapshot.requests
