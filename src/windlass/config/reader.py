"""The reader turns the text of a configuration into a ``Config``, or lists every mistake with its path.

``cluster`` and ``groups`` are read by the reader of the scenario file; all else by the table in ``schema``. Reading
uses the text, the path of the file, the name of this process, the files that images include, and the catalogues of
providers for groups with ``offers``. It opens nothing else.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any, Final, TypeVar

from windlass._registry import BadRegistration
from windlass.control.settings import BackOff, GroupSettings, Interval, Leadership, Policy, Settings
from windlass.core.model.reasons import nearest_name
from windlass.core.model.snapshot import Family, Group, Snapshot
from windlass.scenario.declarations import WRONG, Form
from windlass.scenario.durations import format_duration
from windlass.scenario.parser import plain_data
from windlass.scenario.reader import FileError, FileKind, Path, is_name, shown, still_marked
from windlass.scenario.value_types import write_amounts
from windlass.setting_types import (
    Duration,
)
from windlass.workloads.registry import WORKLOAD_TYPES

from .groups.images import read_image, refused_image
from .groups.offers import OFFERS, Seller, has_offers, members, offered_groups, without_offered
from .registry import PROVIDERS, WORKLOADS, Types
from .schema import (
    CONFIG,
    CONFIGURED_CLUSTER,
    CONFIGURED_GROUP,
    GROUP_SETTINGS,
    JOURNAL,
    LAUNCHES,
    LEADER,
    OFFERED_GROUP,
    POLICY,
)
from .server import NOTIFY, SERVER, ServerConfig, Webhook, read_server, read_webhook
from .setting_values import SettingReader

T = TypeVar("T")


class ConfigError(FileError):
    """A configuration has mistakes; ``mistakes`` has one message with its path for each."""


_NOT_CONFIGURED: Final = {
    "availability": "is observed by the controller; leave it out",
    "frozen": "is an order to a running controller: windlass freeze GROUP",
}
_FACTS: Final = frozenset({"now", "slices", "demands", "requests"})
CONFIG_FILE: Final = FileKind(
    "configuration", ConfigError, "a configuration has at least groups, providers and a workload"
)


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """The type of a provider, with every setting of that type."""

    name: str
    type: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WorkloadConfig:
    """The type of the workload, with every setting of that type."""

    type: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class JournalConfig:
    location: str
    """An absolute path, ``:memory:`` or the URL of a database, for ``open_journal``."""
    retention: float


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of a controller."""

    settings: Settings
    """The settings of the loop."""
    providers: Mapping[str, ProviderConfig]
    workload: WorkloadConfig
    journal: JournalConfig
    leader: Leadership
    shadow: bool = False
    server: ServerConfig = field(default_factory=ServerConfig)
    notify: tuple[Webhook, ...] = ()
    images: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    """By group with an image of its own: what its machines need. It may hold secrets."""

    def empty_snapshot(self) -> Snapshot:
        """Return the cluster without machines and demand. A plan for it launches the minimums."""
        return Snapshot(groups=tuple(one.group for one in self.settings.groups), cluster=self.settings.cluster)


def read_config(text: str | bytes, *, path: str | os.PathLike[str]) -> Config:
    """Read the text of a configuration (YAML or JSON); ``ConfigError`` names every mistake with its path.

    ``path`` is the path of the file; relative paths in it start at its directory.
    """
    return read_config_data(plain_data(text, CONFIG_FILE), path=path)


def read_config_data(data: object, *, path: str | os.PathLike[str]) -> Config:
    """Read a configuration from mappings, lists, text and numbers."""
    return _ConfigReader(FilePath(os.fspath(path)).absolute().parent).config(data)


class _ConfigReader(SettingReader):
    """Reads the parts of one configuration."""

    def __init__(self, home: FilePath) -> None:
        super().__init__(CONFIG_FILE, home)
        self._provider_names: tuple[str, ...] = ()
        self._images: dict[str, Mapping[str, Any]] = {}

    def config(self, data: object) -> Config:
        if isinstance(data, Mapping):
            for key in _FACTS:
                if key in data:
                    self.wrong((key,), "unknown key in a configuration: only windlass plan takes facts; leave it out")
            data = still_marked(data, {key: one for key, one in data.items() if key not in _FACTS})
        if isinstance(data, Mapping) and "groups" not in data and _defines_groups(data.get("workload")):
            data = still_marked(data, {**data, "groups": {}})
        fields = self.fields((), data, CONFIG)
        cluster = self.cluster(("cluster",), fields.get("cluster"), CONFIGURED_CLUSTER)
        cluster = replace(cluster, families=self.families(fields.get("families")))
        groups = self.groups(fields.get("groups"), cluster, CONFIGURED_GROUP)
        self._may_lack_providers = _defines_groups(fields.get("workload"))
        providers = self._providers(("providers",), fields.get("providers"))
        self._provider_names = tuple(providers)
        configured: list[GroupSettings] = []
        for name, group in groups.items():
            at, value = ("groups", name), fields["groups"][name]
            if has_offers(value):
                configured += self._offered(at, value, group, providers)
                if name in self.known_families:
                    self.wrong(
                        at,
                        f"becomes a family because it has offers, and families has {name} already; rename one of them",
                    )
                family = Family(name, group.max, min=group.min, spare=group.spare, section="groups")
                cluster = replace(cluster, families=(*cluster.families, family))
            else:
                configured.append(one := self._group_settings(at, value, group))
                self._image(at, value, {name: one.provider}, providers)
        config = Config(
            settings=Settings(
                groups=tuple(configured),
                cluster=cluster,
                policy=self._policy(("policy",), fields.get("policy")),
                **self._launches(("cluster",), fields.get("cluster")),
            ),
            providers=providers,
            workload=WorkloadConfig(*self._typed(("workload",), fields.get("workload"), WORKLOADS)),
            journal=JournalConfig(**self.section(("journal",), fields.get("journal"), JOURNAL)),
            leader=self._leader(("leader",), fields.get("leader")),
            shadow=self.boolean(("shadow",), fields.get("shadow"), False),
            server=read_server(self.section(("server",), fields.get("server"), SERVER), self._home, self.wrong),
            notify=self._notify(("notify",), fields.get("notify")),
            images=self._images,
        )
        self.finish()
        if config.workload.type == "kubernetes":
            config = replace(config, settings=_for_nodes(config.settings))
        return config

    # -- groups and their providers ----------------------------------------------------------------------------------

    def seconds(self, at: Path, value: object, default: T) -> float | T:
        """Read a duration, such as ``10m``."""
        return default if value is None else self.duration(at, value, Duration(), default)

    def group(self, at: Path, name: str, value: object, form: Form = CONFIGURED_GROUP) -> Group:
        if isinstance(value, Mapping):
            for key, remedy in _NOT_CONFIGURED.items():
                if value.get(key) is not None:
                    self.wrong((*at, key), remedy)
            value = still_marked(value, {key: one for key, one in value.items() if key not in _NOT_CONFIGURED})
            if has_offers(value):
                form, value = OFFERED_GROUP, without_offered(self, at, value)
        return super().group(at, name, value, form)

    def has_price(self, value: Mapping[str, Any]) -> bool:
        return has_offers(value) or super().has_price(value)

    def _offered(
        self, at: Path, value: Mapping[str, Any], group: Group, providers: Mapping[str, ProviderConfig]
    ) -> list[GroupSettings]:
        """Return one group for each offer that fits; none if there are mistakes."""
        given = self.section((*at, "offers"), value["offers"], OFFERS)
        if any(place[:2] == at or place[:1] == ("providers",) for place in self.places):
            return []
        sellers = {name: Seller(one.type, one.settings) for name, one in providers.items()}
        found = offered_groups(self, (*at, "offers"), group.name, given, sellers)
        if not found:
            return []
        rules = value.get("scale_down")
        if rules is not None:
            shaped = {"resources": write_amounts(found[0].resources), "scale_down": rules, "max": group.max}
            rules = super().group(at, group.name, shaped).scale_down
        base = replace(group, min=0, spare=0, scale_down=rules, family=group.name, max_of_family=True)
        self._image(at, value, {one.name: one.provider for one in found}, providers)
        one = self._group_settings(at, {**value, "provider": found[0].provider}, base)
        return members(found, one, given["market"])

    def _image(self, at: Path, value: object, made: Mapping[str, str], providers: Mapping[str, ProviderConfig]) -> None:
        """Store the image of a group for each of the groups that are made of it."""
        given = value.get("image") if isinstance(value, Mapping) else None
        image = read_image(self, (*at, "image"), given, self._home)
        if image is not None:
            self._images |= dict.fromkeys(made, image)
            for name in sorted({*made.values()} & providers.keys()):
                if why := refused_image(name, providers[name].type):
                    self.wrong((*at, "image"), why)

    def _group_settings(self, at: Path, value: object, group: Group) -> GroupSettings:
        found = self.values(at, value, GROUP_SETTINGS) if isinstance(value, Mapping) else {}
        if "provider" not in found:
            found["provider"] = next(iter(self._provider_names), "")
            if len(self._provider_names) > 1:
                known = ", ".join(self._provider_names)
                self.wrong((*at, "provider"), f"is required because there are several providers: {known}")
        return GroupSettings(group=group, **found)

    def _launches(self, at: Path, value: object) -> dict[str, Any]:
        return self.values(at, value, LAUNCHES) if isinstance(value, Mapping) else {}

    def provider_name(self, at: Path, value: object) -> str:
        """Read the name of a provider of the file."""
        name = self.name(at, value)
        if name and self._provider_names and name not in self._provider_names:
            meant = nearest_name(name[:80], self._provider_names)
            hint = f"did you mean {meant}?" if meant else f"there are {', '.join(self._provider_names)}"
            self.wrong(at, f"must be the name of a provider, is {shown(name)}; {hint}")
        return name

    def provider_settings(self, at: Path, value: object) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            self.mapping(at, value, "a mapping of settings for the provider")
            return {}
        found: Mapping[str, Any] = self.untouched(at, value)
        return found

    def speed(self, at: Path, value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 10**6:
            self.wrong(at, f"must be a number from 0 on, such as 1.0, is {shown(value)}")
            return WRONG
        return float(value)

    def _providers(self, at: Path, value: object) -> dict[str, ProviderConfig]:
        if value is None:
            return {}
        found = {}
        entries = self.mapping(at, value, "a mapping from names to providers")
        if isinstance(value, Mapping) and not entries and not self._may_lack_providers:
            self.wrong(at, "must have at least one provider, such as {local: {type: local}}")
        for name, one in entries.items():
            if not is_name(name):
                self.wrong(at, f"has a provider named {shown(name)}; a name must be visible text in one line")
            found[name] = ProviderConfig(name, *self._typed((*at, name), one, PROVIDERS))
        return found

    def _typed(self, at: Path, value: object, types: Types) -> tuple[str, dict[str, Any]]:
        """Read the type of a provider or workload, and its settings."""
        if value is None and at == ("workload",):
            return "", {}  # reported as missing
        options = ", ".join(types.known)
        if not isinstance(value, Mapping):
            self.wrong(at, f"must be {types.noun} with a type ({options}), is {shown(value)}")
            return "", {}
        kind = value.get("type")
        if kind is None:
            self.wrong((*at, "type"), f"is required in {types.noun}: one of {options}")
        elif not isinstance(kind, str) or kind not in types.known:
            self.wrong((*at, "type"), f"must be one of {options}, is {shown(kind)}; {_remedy(kind, types)}")
        else:
            try:
                form, section = types.form(kind), types.section(kind)
            except BadRegistration as error:
                self.wrong((*at, "type"), str(error))
                return "", {}
            return kind, self.settings_of(at, self.fields(at, value, form), section)
        return "", {}

    # -- settings ----------------------------------------------------------------------------------------------------

    def _policy(self, at: Path, value: object) -> Policy:
        found = self.section(at, value, POLICY)
        interval = found.pop("evaluation_interval")
        least, most = interval["min"], interval["max"]
        if least is not None and most is not None and most < least:
            place = (*at, "evaluation_interval", "max")
            self.wrong(place, f"must be at least min ({format_duration(least)}), is {format_duration(most)}")
        backoff = BackOff(**found.pop("backoff"))
        if None not in (backoff.window, backoff.heal) and backoff.heal < backoff.window:
            place = (*at, "backoff", "heal")
            self.wrong(
                place,
                f"must be at least window ({format_duration(backoff.window)}), is {format_duration(backoff.heal)}",
            )
        return Policy(evaluation_interval=Interval(**interval), backoff=backoff, **found)

    def _leader(self, at: Path, value: object) -> Leadership:
        found = self.section(at, value, LEADER)
        holder = found.pop("holder") or f"{socket.gethostname()}:{os.getpid()}"
        return Leadership(holder=holder, **found)

    def _notify(self, at: Path, value: object) -> tuple[Webhook, ...]:
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            self.wrong(at, f"must be a list of webhooks, is {shown(value)}")
            return ()
        found = (((*at, index), one) for index, one in enumerate(value))
        return tuple(read_webhook(here, self.section(here, one, NOTIFY), self.wrong) for here, one in found)


def _for_nodes(settings: Settings) -> Settings:
    """Set the limits of a cluster whose machines register as nodes.

    A machine that never registers is ended after ``requesting_timeout``.
    """
    policy = settings.policy
    boot, join = (min(one, policy.requesting_timeout) for one in (policy.boot_timeout, policy.initializing_timeout))
    return replace(settings, policy=replace(policy, boot_timeout=boot, initializing_timeout=join))


def _defines_groups(workload: object) -> bool:
    """Return whether a workload defines groups, so that the file needs none."""
    kind = workload.get("type") if isinstance(workload, Mapping) else None
    return isinstance(kind, str) and kind in WORKLOAD_TYPES and WORKLOAD_TYPES[kind].groups_optional


def _remedy(kind: object, types: Types) -> str:
    meant = nearest_name(kind[:80], list(types.known)) if isinstance(kind, str) else None
    return f"did you mean {meant}?" if meant else "an installed package can add another one"
