"""The reader turns the text of a configuration into a ``Config``, or lists every mistake with its path.

``cluster`` and ``groups`` are read by the reader of the scenario file; all else by the table in ``schema``. Reading
looks at the text, the place of the file, the name of this process, the files that images include, and the catalogues
of providers for groups with ``offers``. It opens nothing else.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any, Final, TypeVar

from windlass._registry import BadRegistration
from windlass.control.settings import BackOff, Interval, Leadership, Policy, Settings, SoldGroup
from windlass.core.model.reasons import nearest_name
from windlass.core.model.snapshot import Family, Group, Snapshot
from windlass.scenario.declarations import WRONG, Form
from windlass.scenario.durations import WANTED, format_duration, parse_duration
from windlass.scenario.groups import GroupReader
from windlass.scenario.parser import plain_data
from windlass.scenario.reader import FileError, FileKind, Path, is_name, shown
from windlass.scenario.value_types import write_amounts
from windlass.setting_types import (
    YEARS,
    Address,
    Data,
    Duration,
    Endpoint,
    Flag,
    HostPort,
    Kind,
    MachineImage,
    Name,
    Number,
    OneOf,
    Place,
    Prices,
    Section,
    Share,
    SubSection,
    Whole,
    Words,
)
from windlass.workloads.registry import WORKLOAD_TYPES

from .groups.images import read_image, refused_image
from .groups.offers import OFFERS, Seller, has_offers, members, offered_groups, read_prices, without_offered
from .registry import PROVIDERS, WORKLOADS, Types
from .schema import CONFIG, CONFIGURED_CLUSTER, CONFIGURED_GROUP, JOURNAL, LAUNCHES, LEADER, OFFERED_GROUP, POLICY, SOLD
from .server import NOTIFY, SERVER, ServerConfig, Webhook, read_server, read_webhook

T = TypeVar("T")


class ConfigError(FileError):
    """The configuration is wrong; ``mistakes`` has one message each, with its path."""


_NOT_CONFIGURED: Final = {
    "availability": "is observed by the controller; leave it out",
    "frozen": "is what an operator says to a running controller: windlass freeze GROUP",
}
_FACTS: Final = frozenset({"now", "slices", "demands", "requests"})
CONFIG_FILE: Final = FileKind("configuration", ConfigError, "it has at least groups, providers and a workload")


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """A provider by its type, with every setting of that type."""

    name: str
    type: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WorkloadConfig:
    """The workload by its type, with every setting of that type."""

    type: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class JournalConfig:
    location: str
    """What ``open_journal`` takes: an absolute path, ``:memory:``, or the URL of a database."""
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
    """What machines of each group must have, for groups with an image of their own. It may hold secrets."""

    def empty_snapshot(self) -> Snapshot:
        """The cluster with no machines and no demand: a plan for it launches the minimums."""
        return Snapshot(groups=tuple(one.group for one in self.settings.groups), cluster=self.settings.cluster)


def read_config(text: str | bytes, *, path: str | os.PathLike[str]) -> Config:
    """The configuration that a file holds (YAML or JSON); ``ConfigError`` names every mistake with its path.

    ``path`` is the path of the file; relative paths in it start at its directory.
    """
    return read_config_data(plain_data(text, CONFIG_FILE), path=path)


def read_config_data(data: object, *, path: str | os.PathLike[str]) -> Config:
    """The same from data that is already plain: mappings, lists, text and numbers."""
    return _ConfigReader(FilePath(os.fspath(path)).absolute().parent).config(data)


class _ConfigReader(GroupReader):
    """Reads the parts of one configuration."""

    def __init__(self, home: FilePath) -> None:
        super().__init__(CONFIG_FILE)
        self._home = home
        self._provider_names: tuple[str, ...] = ()
        self._images: dict[str, Mapping[str, Any]] = {}

    def config(self, data: object) -> Config:
        if isinstance(data, Mapping):
            for key in _FACTS:
                if key in data:
                    self.wrong((key,), "unknown key in a configuration: it is a fact for windlass plan; leave it out")
            data = {key: one for key, one in data.items() if key not in _FACTS} if _FACTS & data.keys() else data
        if isinstance(data, Mapping) and "groups" not in data and _defines_groups(data.get("workload")):
            data = {**data, "groups": {}}
        fields = self.fields((), data, CONFIG)
        cluster = self.cluster(("cluster",), fields.get("cluster"), CONFIGURED_CLUSTER)
        cluster = replace(cluster, families=self.families(fields.get("families")))
        groups = self.groups(fields.get("groups"), cluster, CONFIGURED_GROUP)
        self._may_lack_providers = _defines_groups(fields.get("workload"))
        providers = self._providers(("providers",), fields.get("providers"))
        self._provider_names = tuple(providers)
        sold: list[SoldGroup] = []
        for name, group in groups.items():
            at, value = ("groups", name), fields["groups"][name]
            if has_offers(value):
                sold += self._offered(at, value, group, providers)
                if name in self.known_families:
                    self.wrong(at, f"is a family by its offers, and families has {name}, too; rename one of them")
                family = Family(name, group.max, min=group.min, spare=group.spare, section="groups")
                cluster = replace(cluster, families=(*cluster.families, family))
            else:
                sold.append(one := self._sold(at, value, group))
                self._image(at, value, {name: one.provider}, providers)
        config = Config(
            settings=Settings(
                groups=tuple(sold),
                cluster=cluster,
                policy=self._policy(("policy",), fields.get("policy")),
                **self._launches(("cluster",), fields.get("cluster")),
            ),
            providers=providers,
            workload=WorkloadConfig(*self._typed(("workload",), fields.get("workload"), WORKLOADS)),
            journal=JournalConfig(**self._section(("journal",), fields.get("journal"), JOURNAL)),
            leader=self._leader(("leader",), fields.get("leader")),
            shadow=self.boolean(("shadow",), fields.get("shadow"), False),
            server=read_server(self._section(("server",), fields.get("server"), SERVER), self._home, self.wrong),
            notify=self._notify(("notify",), fields.get("notify")),
            images=self._images,
        )
        self.finish()
        if config.workload.type == "kubernetes":
            config = replace(config, settings=_for_nodes(config.settings))
        return config

    # -- groups and who sells them -----------------------------------------------------------------------------------

    def seconds(self, at: Path, value: object, default: T) -> float | T:
        """A span of time, such as ``10m``."""
        return default if value is None else self._duration(at, value, Duration(), default)

    def group(self, at: Path, name: str, value: object, form: Form = CONFIGURED_GROUP) -> Group:
        if isinstance(value, Mapping):
            for key, remedy in _NOT_CONFIGURED.items():
                if value.get(key) is not None:
                    self.wrong((*at, key), remedy)
            value = {key: one for key, one in value.items() if key not in _NOT_CONFIGURED}
            if has_offers(value):
                form, value = OFFERED_GROUP, without_offered(self, at, value)
        return super().group(at, name, value, form)

    def has_price(self, value: Mapping[str, Any]) -> bool:
        return has_offers(value) or super().has_price(value)

    def _offered(
        self, at: Path, value: Mapping[str, Any], group: Group, providers: Mapping[str, ProviderConfig]
    ) -> list[SoldGroup]:
        """One group for each offer that fits; none if there are mistakes."""
        given = self._section((*at, "offers"), value["offers"], OFFERS)
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
        base = replace(group, min=0, spare=0, scale_down=rules, family=group.name)
        self._image(at, value, {one.name: one.provider for one in found}, providers)
        one = self._sold(at, {**value, "provider": found[0].provider}, base)
        return members(found, one, given["market"])

    def _image(self, at: Path, value: object, sold: Mapping[str, str], providers: Mapping[str, ProviderConfig]) -> None:
        """Keep the image of a group for the groups that are made of it, each with its provider."""
        given = value.get("image") if isinstance(value, Mapping) else None
        image = read_image(self, (*at, "image"), given, self._home)
        if image is not None:
            self._images |= dict.fromkeys(sold, image)
            for name in sorted({*sold.values()} & providers.keys()):
                if why := refused_image(name, providers[name].type):
                    self.wrong((*at, "image"), why)

    def _sold(self, at: Path, value: object, group: Group) -> SoldGroup:
        found = self.values(at, value, SOLD) if isinstance(value, Mapping) else {}
        if "provider" not in found:
            found["provider"] = next(iter(self._provider_names), "")
            if len(self._provider_names) > 1:
                known = ", ".join(self._provider_names)
                self.wrong((*at, "provider"), f"is required because there are several providers: {known}")
        return SoldGroup(group=group, **found)

    def _launches(self, at: Path, value: object) -> dict[str, Any]:
        return self.values(at, value, LAUNCHES) if isinstance(value, Mapping) else {}

    def provider_name(self, at: Path, value: object) -> str:
        """The name of one of the providers of the file."""
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
        found: Mapping[str, Any] = self._untouched(at, value)
        return found

    def speed(self, at: Path, value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 10**6:
            self.wrong(at, f"must be a number from 0 on, such as 1.0, is {shown(value)}")
            return WRONG
        return float(value)

    def _untouched(self, at: Path, value: Any) -> Any:
        """The same data. A duplicate key is a mistake, because one of its values would be lost."""
        if isinstance(value, Mapping):
            entries = self.mapping(at, value)
            return {key: self._untouched((*at, key), one) for key, one in entries.items()}
        if isinstance(value, list | tuple):
            return [self._untouched((*at, index), one) for index, one in enumerate(value)]
        return value

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
        """The type of a provider or workload, and its settings."""
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
            return kind, self._values(at, self.fields(at, value, form), section)
        return "", {}

    # -- settings ----------------------------------------------------------------------------------------------------

    def _policy(self, at: Path, value: object) -> Policy:
        found = self._section(at, value, POLICY)
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
        found = self._section(at, value, LEADER)
        holder = found.pop("holder") or f"{socket.gethostname()}:{os.getpid()}"
        return Leadership(holder=holder, **found)

    def _section(self, at: Path, value: object, section: Section) -> dict[str, Any]:
        if section.short and isinstance(value, str):
            value = {section.short: value}
        return self._values(at, self.fields(at, {} if value is None else value, section.form), section)

    def _values(self, at: Path, fields: Mapping[str, Any], section: Section) -> dict[str, Any]:
        """Every setting of a section: as given, else its default; None for a wrong one, which is reported."""
        found: dict[str, Any] = {}
        for one in section.settings:
            here, given = (*at, one.name), fields.get(one.name)
            if isinstance(one, SubSection):
                found[one.name] = self._section(here, given, one.section)
            elif given is None and (one.default is None or one.name in section.form.required):
                found[one.name] = None
            else:
                found[one.name] = self._value(here, one.default if given is None else given, one.kind)
        return found

    def _value(self, at: Path, value: object, kind: Kind) -> Any:
        match kind:
            case Duration():
                return self._duration(at, value, kind, None)
            case Whole():
                return self.integer(at, value, None, low=kind.low, high=kind.high)
            case Share():
                return self._share(at, value, kind)
            case Flag():
                return self.boolean(at, value, False)
            case Name():
                return self.name(at, value)
            case Place():
                return self._place_of(at, value)
            case Address():
                return self._address(at, value)
            case Endpoint():
                return self._endpoint(at, value, kind)
            case HostPort():
                return self._host_port(at, value)
            case OneOf():
                return self._one_of(at, value, kind)
            case Number():
                return self._number(at, value, kind)
            case Words():
                return self._words(at, value)
            case Data():
                return self._untouched(at, value)
            case MachineImage():
                return read_image(self, at, value, self._home)
            case Prices():
                return read_prices(self, at, value)

    def _duration(self, at: Path, value: object, kind: Duration, default: T) -> float | T:
        seconds = self.parsed(at, value, parse_duration, WANTED)
        if seconds is None:
            return default
        if seconds < kind.low:
            self.wrong(at, f"must be at least {format_duration(kind.low)}, is {shown(value)}")
        elif seconds > kind.high:
            most = "10 years" if kind.high == YEARS else format_duration(kind.high)
            self.wrong(at, f"must be at most {most}, is {shown(value)}")
        else:
            return seconds
        return default

    def _share(self, at: Path, value: object, kind: Share) -> float | None:
        good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
        good = good and (value != 0 or kind.or_none)
        if good and not (kind.below_one and value == 1):
            return float(value)  # type: ignore[arg-type]
        most = "below 1" if kind.below_one else "up to 1"
        least = "from 0" if kind.or_none else "above 0"
        self.wrong(at, f"must be a number {least} and {most}, is {shown(value)}")
        return None

    def _place_of(self, at: Path, value: object) -> str | None:
        text = self.name(at, value)
        if not text:
            return None
        try:
            return str(self._home / FilePath(text).expanduser())
        except RuntimeError:
            self.wrong(at, f"starts with a home directory that is not known: {shown(text)}")
            return None

    def _endpoint(self, at: Path, value: object, kind: Endpoint) -> str | None:
        text = self.name(at, value)
        scheme, _, rest = text.partition("://")
        host, _, port = rest.rpartition(":")
        if scheme in kind.schemes and host and port.isascii() and port.isdecimal() and 0 < int(port) < 2**16:
            return text
        if text:
            options = " or ".join(f"{one}://HOST:PORT" for one in kind.schemes)
            self.wrong(at, f"must be {options}, is {shown(text)}")
        return None

    def _host_port(self, at: Path, value: object) -> str | None:
        text = self.name(at, value)
        host, _, port = text.rpartition(":")
        if host and "/" not in host and port.isascii() and port.isdecimal() and 0 < int(port) < 2**16:
            return text
        if text:
            self.wrong(at, f"must be HOST:PORT, is {shown(text)}")
        return None

    def _one_of(self, at: Path, value: object, kind: OneOf) -> str | None:
        if isinstance(value, str) and value in kind.choices:
            return value
        self.wrong(at, f"must be one of {', '.join(kind.choices)}, is {shown(value)}")
        return None

    def _number(self, at: Path, value: object, kind: Number) -> float | None:
        if isinstance(value, int | float) and not isinstance(value, bool) and kind.low <= value <= kind.high:
            return float(value)
        self.wrong(at, f"must be a number from {kind.low:g} to {kind.high:g}, is {shown(value)}")
        return None

    def _words(self, at: Path, value: object) -> list[str] | None:
        if not isinstance(value, list | tuple):
            self.wrong(at, f"must be a list of words, is {shown(value)}")
            return None
        return [self.name((*at, index), one) for index, one in enumerate(value)]

    def _notify(self, at: Path, value: object) -> tuple[Webhook, ...]:
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            self.wrong(at, f"must be a list of webhooks, is {shown(value)}")
            return ()
        found = (((*at, index), one) for index, one in enumerate(value))
        return tuple(read_webhook(here, self._section(here, one, NOTIFY), self.wrong) for here, one in found)

    def _address(self, at: Path, value: object) -> str | None:
        text = self.name(at, value)
        scheme, separator, rest = text.partition("://")
        if not text or text == ":memory:":
            return text or None
        if scheme in ("postgresql", "postgres") and separator:
            if rest.strip("/"):
                return text
            self.wrong(at, "must name a server or a database, such as postgresql://user@host/windlass")
        elif scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
            return self._place_of(at, rest[1:])
        elif separator:  # what follows may hold a password: it is not repeated
            self.wrong(at, f"must be a path or a postgresql:// URL, is {shown(scheme + '://...')}")
        else:
            return self._place_of(at, text)
        return None


def _for_nodes(settings: Settings) -> Settings:
    """Settings of a cluster whose machines register as nodes: one that never does is ended after requesting_timeout."""
    policy = settings.policy
    boot, join = (min(one, policy.requesting_timeout) for one in (policy.boot_timeout, policy.initializing_timeout))
    return replace(settings, policy=replace(policy, boot_timeout=boot, initializing_timeout=join))


def _defines_groups(workload: object) -> bool:
    """Whether a workload has groups of its own, so that the file need not have any."""
    kind = workload.get("type") if isinstance(workload, Mapping) else None
    return isinstance(kind, str) and kind in WORKLOAD_TYPES and WORKLOAD_TYPES[kind].groups_optional


def _remedy(kind: object, types: Types) -> str:
    meant = nearest_name(kind[:80], list(types.known)) if isinstance(kind, str) else None
    return f"did you mean {meant}?" if meant else "an installed package can add another one"
