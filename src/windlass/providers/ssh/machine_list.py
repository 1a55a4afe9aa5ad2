"""This module reads the list of machines with SSH. A mistake is reported with its place in the list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from windlass.core.model.quantities import BadQuantity, parse_quantity
from windlass.core.model.reasons import nearest_name
from windlass.core.model.snapshot import Amounts, amounts
from windlass.scenario.reader import shown

KEYS: Final = ("address", "port", "user", "resources", "labels")
EXAMPLE: Final = "[gpu1.example.org, ada@gpu2.example.org, {address: gpu3.example.org, port: 2222}]"


class BadMachine(ValueError):
    """A mistake in the list. ``place``: where in the list, such as ``[0].port``."""

    def __init__(self, place: str, text: str) -> None:
        super().__init__(f"hosts{place}: {text}")
        self.place, self.text = place, text


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """One machine of the list. ``resources`` None: read from the machine."""

    address: str
    port: int = 22
    user: str = ""
    resources: Amounts | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


def read_machines(given: object, user: str = "") -> list[MachineSpec]:
    """Read a list; raise ``BadMachine`` at the first mistake. ``user``: the user name of entries without one."""
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        raise BadMachine("", f"must be a list of machines, such as {EXAMPLE}")
    if not given:
        raise BadMachine("", f"there are no hosts; give at least one, such as {EXAMPLE}")
    found: list[MachineSpec] = []
    for number, one in enumerate(given):
        spec = _machine(one, f"[{number}]", user)
        if any((spec.address, spec.port) == (other.address, other.port) for other in found):
            raise BadMachine(f"[{number}]", f"{spec.address}:{spec.port} is in the list twice; name each machine once")
        found.append(spec)
    return found


def directory_mistake(directory: str) -> str:
    """Return what is wrong with the directory for files on the machines; empty if it is right."""
    if directory.startswith(("/", "~/")) and directory.strip("/~ "):
        return ""
    return f"must be a full path, or one in the home directory such as ~/.windlass, is {shown(directory)}"


def mistakes_in(given: object) -> list[str]:
    """Return every mistake of a list, each with its place."""
    wrong = []
    if isinstance(given, Sequence) and not isinstance(given, str):
        for number, one in enumerate(given):
            try:
                _machine(one, f"[{number}]", "")
            except BadMachine as error:
                wrong.append(str(error))
    if not wrong:
        try:
            read_machines(given)
        except BadMachine as error:
            wrong.append(str(error))
    return wrong


def _machine(given: object, at: str, user: str) -> MachineSpec:
    if isinstance(given, MachineSpec):
        return given if given.user else MachineSpec(given.address, given.port, user, given.resources, given.labels)
    if isinstance(given, str):
        name, sign, address = given.rpartition("@")
        if sign and not name:
            raise BadMachine(at, f"has no user before the @; write user@{address}, or {address} alone")
        return MachineSpec(_address(address, at), user=name or user)
    if not isinstance(given, Mapping):
        raise BadMachine(at, f"must be an address, user@address or a mapping with {', '.join(KEYS)}, is {shown(given)}")
    for key in given:
        if key not in KEYS:
            meant = nearest_name(str(key)[:80], KEYS)
            hint = f"did you mean {meant}?" if meant else f"a host has {', '.join(KEYS)}"
            raise BadMachine(at, f"{shown(key)} is not known; {hint}")
    if given.get("address") is None:
        raise BadMachine(at, "address is missing; give the machine's name or IP address")
    port = given.get("port")
    if port is not None and (type(port) is not int or not 0 < port < 2**16):
        raise BadMachine(f"{at}.port", f"must be a whole number from 1 to 65535, is {shown(port)}")
    login = given.get("user")
    if login is not None and not (isinstance(login, str) and login.strip()):
        raise BadMachine(f"{at}.user", f"must be a user name, is {shown(login)}")
    return MachineSpec(
        _address(given["address"], f"{at}.address"),
        port or 22,
        login or user,
        _resources(given.get("resources"), f"{at}.resources"),
        _labels(given.get("labels"), f"{at}.labels"),
    )


def _address(given: object, at: str) -> str:
    if not isinstance(given, str) or not given or any(one.isspace() or not one.isprintable() for one in given):
        raise BadMachine(at, f"must be the name or IP address of a machine, is {shown(given)}")
    name, sign, rest = given.rpartition("@")
    if sign:
        raise BadMachine(at, f"must not have a user; write {{address: {rest}, user: {name}}}")
    if "/" in given:
        raise BadMachine(at, f"must be the name or IP address of a machine, not a URL or a path, is {shown(given)}")
    if given.startswith("["):
        inside, _, port = given[1:].partition("]")
        port = port.removeprefix(":")
        write = f"{{address: '{inside}', port: {port}}}" if port else f"'{inside}'"
        raise BadMachine(at, f"must not have brackets; write {write}")
    host, colon, port = given.rpartition(":")
    if colon and ":" not in host and port.isdecimal():
        raise BadMachine(at, f"must not have a port; write {{address: {host}, port: {port}}}")
    return given


def _resources(given: object, at: str) -> Amounts | None:
    if given is None or isinstance(given, tuple):
        return given
    if not isinstance(given, Mapping):
        raise BadMachine(at, f"must be a mapping such as {{cpu: 16, memory: 64Gi, gpu: 2}}, is {shown(given)}")
    try:
        return amounts({str(name): parse_quantity(value, str(name)) for name, value in given.items()})
    except (BadQuantity, TypeError, ValueError) as error:
        raise BadMachine(at, str(error)) from None


def _labels(given: object, at: str) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(value, str | int) for value in given.values()):
        raise BadMachine(at, f"must be a mapping of strings such as {{rack: r2}}, is {shown(given)}")
    return {str(name): str(value) for name, value in given.items()}
