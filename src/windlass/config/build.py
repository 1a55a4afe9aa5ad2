"""Build makes the providers and the workload that a configuration names, through the registries.

With ``read_only`` what is built here only observes: for ``plan --live`` and ``doctor``, while a controller runs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec

from windlass._extras import install_command
from windlass._registry import BadRegistration
from windlass.providers.protocol import (
    ClusterIdentity,
    GroupAwareProvider,
    ImageAwareProvider,
    Provider,
    on_one_machine,
)
from windlass.providers.registry import PROVIDER_TYPES, ProviderContext, ProviderType
from windlass.scenario.reader import Path
from windlass.setting_types import BadSettings
from windlass.workloads.protocol import (
    DrainLimitedWorkload,
    GroupAwareWorkload,
    PlaceAwareWorkload,
    ProviderWrapper,
    Workload,
)
from windlass.workloads.registry import WORKLOAD_TYPES, WorkloadContext, WorkloadType

from .reader import Config, ConfigError


@dataclass(frozen=True, slots=True)
class Components:
    """The providers and the workload that a controller works with."""

    config: Config
    providers: dict[str, Provider]
    workload: Workload

    async def close(self, but: Components | None = None) -> None:
        """Close every component that ``but`` does not use. Machines and running work are not touched."""
        kept = set() if but is None else {id(but.workload), *map(id, but.providers.values())}
        for provider in self.providers.values():
            if id(provider) not in kept:
                await provider.close()
        if id(self.workload) not in kept:
            await self.workload.close()


def refuse_incompatible(config: Config) -> None:
    """Raise ``ConfigError`` if parts of a configuration cannot work together; every message has its path."""
    if wrong := incompatibilities(config):
        raise ConfigError(wrong, map(_place, wrong))


def _place(mistake: str) -> Path:
    """Return the path at the start of a message, such as ``providers.rack.hosts[0].port``, as keys and indexes."""
    words = re.findall(r"[^.\[\]]+", mistake.partition(": ")[0])
    return tuple(int(word) if word.isdecimal() else word for word in words)


def incompatibilities(config: Config) -> list[str]:
    """List the parts of a configuration that cannot work together, and the packages that are not installed."""
    kind, used = config.workload.type, {one.provider for one in config.settings.groups}
    workload = WORKLOAD_TYPES[kind]
    if workload.groups_optional:
        used = set(config.providers)  # the workload's own groups may name any of them
    if workload.build is None:
        here = f"workload.type: the tasks of a {kind} are in the program that made it, and so is its controller; "
        return [f"{here}this file is for windlass status, why and events"]
    wrong = _missing("workload.type", kind, workload)
    for name, one in config.providers.items():
        if name in used:
            provider = PROVIDER_TYPES[one.type]
            wrong += _missing(f"providers.{name}.type", one.type, provider)
            if kind not in provider.runs and one.type not in workload.runs_on:
                able = [known for known in PROVIDER_TYPES if _fit(known, kind)]
                wrong.append(
                    f"workload.type: {kind} runs on {' or '.join(able) or 'no known'} machines only, "
                    f"and providers.{name} is {one.type}"
                )
            wrong += provider.check(one.settings, name, kind)
    wrong += dict.fromkeys(
        f"groups.{sold.group.family or sold.group.name}.settings.{key}: {text}"
        for sold in config.settings.groups
        if not sold.from_workload and sold.provider in config.providers
        for key, text in PROVIDER_TYPES[config.providers[sold.provider].type].check_group(sold.settings).items()
    )
    return wrong or workload.check(config.workload.settings, [sold.group for sold in config.settings.groups])


def _fit(provider: str, workload: str) -> bool:
    return workload in PROVIDER_TYPES[provider].runs or provider in WORKLOAD_TYPES[workload].runs_on


def _missing(path: str, name: str, kind: ProviderType | WorkloadType) -> list[str]:
    missing = [module for module in kind.modules if find_spec(module) is None]
    if not missing:
        return []
    remedy = f": {install_command(kind.extra)}" if kind.extra else ""
    return [f"{path}: {name} needs {missing[0]}, which is not installed{remedy}"]


@contextmanager
def _usable(path: str) -> Iterator[None]:
    """Turn an error of the operating system, such as a directory without permission, into a mistake of the file."""
    try:
        yield
    except OSError as error:
        place = f"{error.filename} cannot be used: " if error.filename else ""
        remedy = "; give a directory that this user may write to" if isinstance(error, PermissionError) else ""
        raise BadSettings([f"{path}: {place}{error.strerror or error}{remedy}"]) from error


def build_components(
    config: Config,
    *,
    read_only: bool = False,
    tie_to: int | None = None,
    now: Callable[[], float] = time.time,
    like: Components | None = None,
) -> Components:
    """Build what a configuration names; ``ConfigError`` if its parts do not fit together.

    ``tie_to``: the number of a process with which machines that are bought on this computer end.
    ``like``: components that go on where their part of the configuration is still the same.
    """
    try:
        refuse_incompatible(config)
        providers: dict[str, Provider] = {}
        for name, one in config.providers.items():
            if like is not None and like.config.providers.get(name) == one:
                providers[name] = like.providers[name]
            else:
                context = ProviderContext(name, read_only, tie_to, now)
                with _usable(f"providers.{name}"):
                    providers[name] = PROVIDER_TYPES[one.type].build(one.settings, context)
                # Only for readers. A controller replaces it with the identity in its journal.
                providers[name].bind(ClusterIdentity(config.settings.cluster.name))
            of_it = [one.group for one in config.settings.groups if one.provider == name]
            if isinstance(provider := providers[name], GroupAwareProvider):
                provider.regroup(of_it)
            if isinstance(provider, ImageAwareProvider):
                provider.use_images({one.name: config.images[one.name] for one in of_it if one.name in config.images})
        if like is not None and like.config.workload == config.workload:
            workload = like.workload
        else:
            build = WORKLOAD_TYPES[config.workload.type].build
            assert build is not None, "incompatibilities() has refused a workload that cannot be built"
            with _usable("workload"):
                workload = build(
                    config.workload.settings, WorkloadContext(providers, config.empty_snapshot(), read_only, now)
                )
        if isinstance(workload, ProviderWrapper):
            providers = {name: workload.wrap_provider(name, provider) for name, provider in providers.items()}
        if isinstance(workload, GroupAwareWorkload):
            workload.regroup([one.group for one in config.settings.groups])
        if isinstance(workload, PlaceAwareWorkload):
            here = {name for name, one in providers.items() if on_one_machine(one)}
            workload.run_here([one.group.name for one in config.settings.groups if one.provider in here])
        if isinstance(workload, DrainLimitedWorkload):
            policy = config.settings.policy
            workload.limit_drains(policy.drain_timeout if policy.allow_eviction else None)
    except BadSettings as error:
        raise ConfigError(error.mistakes) from None
    except BadRegistration as error:
        raise ConfigError([str(error)]) from None
    return Components(config, providers, workload)
