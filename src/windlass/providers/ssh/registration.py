"""This module declares the provider type ``ssh``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from windlass.providers.protocol import InvalidRequest, Provider
from windlass.providers.registry import ProviderContext, ProviderType
from windlass.providers.ssh.machine_list import directory_mistake, mistakes_in
from windlass.scenario.declarations import REQUIRED
from windlass.setting_types import BadSettings, Data, Duration, MachineImage, Name, OneOf, Place, Section, Setting

IMAGE: Final = Setting(
    "image",
    MachineImage(),
    None,
    "",
    "The image of groups that have no `image` of their own; keys as in `groups.NAME.image`. It is sent over SSH and "
    "never stored.",
    absent="only what the workload needs",
)


def _build(settings: Mapping[str, Any], context: ProviderContext) -> Provider:
    from .provider import SSHProvider

    try:
        return SSHProvider(
            settings["hosts"],
            user=settings["user"] or "",
            key_file=settings["key_file"] or "",
            known_hosts=settings["known_hosts"] or "",
            connect=settings["connect"],
            directory=settings["directory"],
            lost_after=settings["lost_after"],
            image=settings["image"],
            read_only=context.read_only,
            now=context.now,
        )
    except InvalidRequest as error:
        raise BadSettings([f"providers.{context.name}: {error}"]) from None


def check_network(settings: Mapping[str, Any], name: str, workload: str) -> list[str]:
    """Return a mistake if the workload's nodes connect to each other and ``connect`` is ``tunnel``."""
    if workload != "dask" or settings["connect"] == "direct":
        return []
    why = (
        f"providers.{name}.connect: the workers of a Dask cluster connect to its scheduler and to each other; put all "
        "of them into one network and set connect: direct (the tunnel is for pools, wl.ComputePool)"
    )
    return [why]


def _check(settings: Mapping[str, Any], name: str, workload: str) -> list[str]:
    found = mistakes_in(settings["hosts"])
    if wrong := directory_mistake(settings["directory"]):
        found.append(f"directory: {wrong}")
    return [*check_network(settings, name, workload), *(f"providers.{name}.{mistake}" for mistake in found)]


def _check_group(settings: Mapping[str, Any]) -> dict[str, str]:
    return dict.fromkeys(settings, "has no effect: a group of machines with SSH has no settings; leave it out")


SSH_MACHINES: Final = ProviderType(
    summary="existing machines with SSH, each used by one slice at a time.",
    section=Section(
        "a provider of machines with SSH",
        (
            Setting(
                "hosts",
                Data(),
                REQUIRED,
                "",
                "The machines: `address`, `user@address`, or a mapping with `address`, `port`, `user`, `resources` "
                "(default: read from the machine) and `labels`.",
            ),
            Setting(
                "user",
                Name(),
                None,
                "",
                "The user name on machines for which `hosts` gives none.",
                absent="your user name",
            ),
            Setting(
                "key_file",
                Place(),
                None,
                "",
                "The file with the private key.",
                absent="the SSH agent and the usual files of `~/.ssh`",
            ),
            Setting(
                "known_hosts",
                Place(),
                None,
                "",
                "The file with the host keys of the machines. A key that is not in it is never accepted.",
                absent="`~/.ssh/known_hosts`",
            ),
            Setting(
                "connect",
                OneOf(("tunnel", "direct")),
                "tunnel",
                "",
                "`tunnel`: programs connect to us through the SSH connection. `direct`: the machines and the workload "
                "are in one network.",
            ),
            Setting("directory", Name(), "~/.windlass", "", "The directory for files on the machines."),
            Setting(
                "lost_after",
                Duration(low=5, high=86400),
                "60s",
                "s",
                "A host counts as dead after its machine has not answered for this long.",
            ),
            IMAGE,
        ),
    ),
    build=_build,
    runs=frozenset({"dask"}),
    check=_check,
    check_group=_check_group,
    modules=("asyncssh",),
    extra="ssh",
    takes_images=True,
)
