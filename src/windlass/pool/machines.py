"""``SSH(...)`` and similar classes place the nodes of a pool on other machines.

Each class describes machines, and creates the provider that starts nodes on them. Every pool is a separate cluster, so
two pools with the same machine in their lists never touch each other's nodes.
"""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from windlass.core.model.quantities import BadQuantity, parse_money
from windlass.core.model.snapshot import Amounts
from windlass.offers import MachineOffer, in_region, is_model, machine_resources, price_given, read_catalogue
from windlass.offers.catalogue import NANO
from windlass.pool.engines.registry import need
from windlass.pool.errors import BadPool
from windlass.providers.aws.machine_types import fitting_types, ranked_by
from windlass.providers.aws.settings_check import all_mistakes
from windlass.providers.protocol import Provider, ProviderError
from windlass.providers.ssh.machine_list import BadMachine, directory_mistake, read_machines
from windlass.setting_types import Name, Place, Section, Setting

LEASE = 30.0
"""Seconds without contact to the pool's program after which its nodes end themselves, so that none outlives it."""


LOOPBACK = "127.0.0.1"
_ELSEWHERE = "192.0.2.1"
"""An address that no machine has: the route to it is the default route."""


def _address_towards(address: str) -> str:
    """Return the address of this computer from which packets to another one are sent. Nothing is sent."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            found: str = probe.getsockname()[0]
            return found
    except OSError as error:
        raise BadPool(f"connect='direct': this computer has no route to {address}: {error}") from None


class RemoteMachines(ABC):
    """Remote machines, in the form in which a user gives them to a pool."""

    price: float | str | None = None
    connect: Literal["tunnel", "direct"] = "tunnel"

    def own_address(self) -> str:
        """Return the address of this computer that nodes connect to: the loopback address if they connect through a
        tunnel.
        """
        return LOOPBACK if self.connect == "tunnel" else _address_towards(self._far_address())

    def _far_address(self) -> str:
        """Return an address in the network of the machines."""
        return _ELSEWHERE

    def offers(self, model: str, devices: Amounts, slots: int) -> list[MachineOffer]:  # noqa: ARG002
        """Return the machine types that a node may have, best first; none if they are not from a catalogue.

        ``model``: the accelerator of a node. ``devices``: thousandths of each device.
        """
        return []

    def highest_price(self, offer: MachineOffer) -> float:
        """Return the most that a node of this type may cost, in dollars per hour."""
        return offer.dollars

    def without_price(self) -> str:
        """Return a message for people about nodes whose price is not known; empty if there is nothing to say."""
        return ""

    def price_source(self, offer: MachineOffer) -> str:
        """Return where the price of an offer is from, for people."""
        return f"price of {offer.region}, {offer.as_of}"

    @abstractmethod
    def provider(self, image: Mapping[str, Any]) -> Provider:
        """Return the provider of one pool's machines, which prepares them with the pool's image. Called on the pool's
        event loop.
        """


def _check_settings(kind: str, section: Section, given: Mapping[str, Any]) -> None:
    """Refuse values that a configuration would refuse; the message names the argument. Empty means left out."""
    from windlass.config.setting_values import SettingReader
    from windlass.scenario.reader import SCENARIO_FILE

    reader = SettingReader(SCENARIO_FILE, Path.cwd())
    found: dict[str, Any] = {}
    for one in section.settings:
        if not isinstance(one, Setting) or one.name not in given:
            continue
        value = given[one.name]
        if isinstance(one.kind, Place) and isinstance(value, os.PathLike):
            value = os.fspath(value)
        if isinstance(one.kind, Name | Place) and not isinstance(value, str):
            raise BadPool(f"{kind}: {one.name} must be text, is {value!r}")
        if one.default is None and isinstance(value, Sequence | Mapping) and not value:
            continue
        found[one.name] = value
    reader.settings_of((), found, section)
    if reader.mistakes:
        raise BadPool(f"{kind}: {reader.mistakes[0]}")


@dataclass(frozen=True, slots=True)
class SSH(RemoteMachines):
    """Nodes on machines that exist already and have SSH.

    ``hosts``: addresses, ``user@address``, or ``{"address": ..., "port": ..., "user": ..., "resources": ...,
    "labels": ...}``. ``known_hosts``: the file with the machines' host keys, by default ``~/.ssh/known_hosts``; a key
    that is not in it is never accepted. ``key_file``: the private key; by default the SSH agent and the usual files.
    ``connect``: ``"tunnel"`` carries everything over the SSH connection, ``"direct"`` needs a network in which nodes
    can reach this program. ``directory``: for files on the machines. ``price``: dollars per hour of a machine.
    """

    hosts: Sequence[str | Mapping[str, Any]]
    user: str = ""
    key_file: str | os.PathLike[str] = ""
    known_hosts: str | os.PathLike[str] = ""
    connect: Literal["tunnel", "direct"] = "tunnel"
    directory: str = "~/.windlass"
    price: float | str | None = None

    def __post_init__(self) -> None:
        from windlass.providers.ssh.registration import SSH_MACHINES

        try:
            read_machines(self.hosts)
        except BadMachine as error:
            raise BadPool(f"SSH: {error}") from None
        if self.connect not in ("tunnel", "direct"):
            raise BadPool(f"SSH: connect must be 'tunnel' or 'direct', is {self.connect!r}")
        names = ("user", "key_file", "known_hosts", "directory")
        _check_settings("SSH", SSH_MACHINES.section, {name: getattr(self, name) for name in names})
        if wrong := directory_mistake(self.directory):
            raise BadPool(f"SSH: directory: {wrong}")
        try:
            parse_money(self.price.removesuffix("/h") if isinstance(self.price, str) else self.price or 0)
        except BadQuantity as error:
            raise BadPool(f"SSH: price {error}") from None
        for name in ("key_file", "known_hosts"):
            if (given := getattr(self, name)) and not Path(given).expanduser().is_file():
                raise BadPool(f"SSH: {name}: there is no file {os.fspath(given)}")
        need("asyncssh", "ssh")

    def _far_address(self) -> str:
        first = self.hosts[0]
        return str(first["address"] if isinstance(first, Mapping) else first).rpartition("@")[2]

    def provider(self, image: Mapping[str, Any]) -> Provider:
        from windlass.providers.ssh.provider import SSHProvider

        try:
            return SSHProvider(
                self.hosts,
                user=self.user,
                key_file=os.fspath(self.key_file),
                known_hosts=os.fspath(self.known_hosts),
                connect=self.connect,
                directory=self.directory,
                lease=LEASE,
                image=image,
            )
        except ProviderError as error:
            raise BadPool(str(error)) from None


@dataclass(frozen=True, slots=True)
class AWS(RemoteMachines):
    """Nodes on EC2 instances.

    Credentials are found as in any program that uses boto3; ``profile`` names a profile of ``~/.aws/config``. ``zones``
    or ``subnets``: where instances may be; by default anywhere in the region's default network. ``security_group``: one
    that allows SSH from this computer; by default one is created. ``image_id``: a Linux image whose Python has the
    minor version of this program, by default Ubuntu. ``user``: its login. ``market``: ``"on-demand"``,
    ``"spot"``, or ``"spot-first"``, which takes on-demand instances where there is no spot capacity. ``max_price``: the
    most that a spot instance may cost, in dollars per hour. ``instance_type``: the machine type; by default the
    cheapest of the catalogue that has what nodes need (``windlass offers --provider aws``). ``prices``: dollars per
    hour by machine type, in place of the catalogue's. ``endpoint_url``: the URL of another EC2 API, such as a fake one.
    """

    region: str = "us-east-1"
    zones: Sequence[str] = ()
    subnets: Sequence[str] = ()
    security_group: str = ""
    image_id: str = ""
    profile: str = ""
    market: Literal["spot", "on-demand", "spot-first"] = "on-demand"
    max_price: float | None = None
    endpoint_url: str = ""
    user: str = "ubuntu"
    key_file: str | os.PathLike[str] = ""
    connect: Literal["tunnel", "direct"] = "tunnel"
    ssh_from: str = ""
    disk: int = 50
    instance_type: str = ""
    prices: Mapping[str, float] = field(default_factory=dict)
    metadata_url: str = "http://169.254.169.254"
    directory: str = "~/.config/windlass"

    def __post_init__(self) -> None:
        from windlass.providers.aws.registration import AWS_INSTANCES

        if self.market not in ("spot", "on-demand", "spot-first"):
            raise BadPool(f"AWS: market must be 'spot', 'on-demand' or 'spot-first', is {self.market!r}")
        for name in ("zones", "subnets"):
            if isinstance(getattr(self, name), str):
                raise BadPool(f"AWS: {name} must be a list, such as {name}=[{getattr(self, name)!r}]")
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        _check_settings("AWS", AWS_INSTANCES.section, given)
        if wrong := all_mistakes(given, "AWS: "):
            raise BadPool(wrong[0])
        for name in ("instance_type", "directory"):
            if not isinstance(given[name], str) or not (given[name] or name == "instance_type"):
                raise BadPool(f"AWS: {name} must be text, is {given[name]!r}")
        need("boto3", "aws")
        need("asyncssh", "aws")

    def _catalogue(self) -> list[MachineOffer]:
        return in_region(read_catalogue(["aws"], prices=self.prices), self.region)

    def offers(self, model: str, devices: Amounts, slots: int) -> list[MachineOffer]:
        if self.instance_type:
            return self._named(model, devices)
        found = fitting_types(
            self._catalogue(), self.market, model=model, devices=devices, cpus=slots, max_price=self.max_price
        )
        if not found:
            what = _accelerators_text(model, devices) or f"{slots} CPUs"
            limit = f" for at most ${self.max_price:g}/h" if self.max_price is not None else ""
            raise BadPool(
                f"AWS: no machine type of the catalogue has {what}{limit} ({ranked_by(self.market)}); see windlass "
                "offers --provider aws, or name an instance_type"
            )
        return found

    def _named(self, model: str, devices: Amounts) -> list[MachineOffer]:
        """Return the machine type of the settings; none if neither the catalogue nor ``prices`` has a price of it."""
        kind, market = self.instance_type, ranked_by(self.market)
        known = [one for one in self._catalogue() if one.type == kind]
        if not known:
            price = price_given(self.prices, kind, market)
            return [] if price is None else [MachineOffer("aws", kind, market, price, self.region)]
        has = known[0]
        enough = all(dict(machine_resources(has)).get(name, 0) >= amount for name, amount in devices)
        if (model and not is_model(has.accelerator, model)) or (devices and not model and not enough):
            there = f"{has.count:g} {has.accelerator}" if has.accelerator else "no accelerators"
            raise BadPool(
                f"AWS: instance_type {kind} has {there}, and nodes need {_accelerators_text(model, devices)}; "
                "leave instance_type out, or name one that has it: windlass offers --provider aws"
            )
        return [one for one in known if one.market == market]

    def without_price(self) -> str:
        kind = self.instance_type
        return (
            f"each node is a {kind}, which is not in the catalogue ({ranked_by(self.market)}): its price is not known, "
            f"and the bill leaves it out; give prices={{'{kind}': ...}}"
        )

    def highest_price(self, offer: MachineOffer) -> float:
        if self.market != "spot-first":
            return offer.dollars
        on_demand = price_given(self.prices, offer.type, "on-demand") or 0
        return max(offer.price, on_demand, *(one.price for one in self._catalogue() if one.type == offer.type)) / NANO

    def price_source(self, offer: MachineOffer) -> str:
        if price_given(self.prices, offer.type, offer.market) is not None:
            return "your price"
        source = f"price of {offer.region}, {offer.as_of}"
        if offer.region == self.region:
            return source
        return (
            f"{source}: no prices of {self.region} are known; read them with windlass offers --refresh --region "
            f"{self.region}, or give prices={{'{offer.type}': ...}}"
        )

    def provider(self, image: Mapping[str, Any]) -> Provider:
        from windlass.providers.aws.buying import AWSSettings
        from windlass.providers.aws.provider import AWSProvider

        settings = AWSSettings(
            region=self.region,
            zones=tuple(self.zones),
            subnets=tuple(self.subnets),
            security_group=self.security_group,
            image_id=self.image_id,
            profile=self.profile,
            market=self.market,
            max_price=self.max_price,
            endpoint_url=self.endpoint_url,
            user=self.user,
            key_file=os.fspath(self.key_file),
            directory=self.directory,
            ssh_from=self.ssh_from,
            connect=self.connect,
            disk=self.disk,
            instance_type=self.instance_type,
            prices=self.prices,
            metadata_url=self.metadata_url,
        )
        return AWSProvider(settings, lease=LEASE, image=image)


def _accelerators_text(model: str, devices: Amounts) -> str:
    """Return the accelerators of a node for people, such as ``4 A100``."""
    return " and ".join(f"{amount / 1000:g} {model or name}" for name, amount in devices)
