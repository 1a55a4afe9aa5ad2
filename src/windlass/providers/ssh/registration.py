"""The declaration of the provider type ``ssh``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from windlass.providers.protocol import InvalidRequest, Provider
from windlass.providers.registry import ProviderContext, ProviderType
from windlass.providers.ssh.machine_list import BadMachine, read_machines
from windlass.scenario.declarations import REQUIRED
from windlass.setting_types import BadSettings, Data, Duration, MachineImage, Name, OneOf, Place, Section, Setting

IMAGE: Final = Setting(
    "image",
    MachineImage(),
    None,
    "",
    "What machines of groups without an `image` must have before their program starts: as `groups.NAME.image`. It is "
    "sent over SSH and never written down.",
    absent="nothing but what the workload needs",
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
            look_only=context.look_only,
            now=context.now,
        )
    except InvalidRequest as error:
        raise BadSettings([f"providers.{context.name}: {error}"]) from None


def check_network(settings: Mapping[str, Any], name: str, workload: str) -> list[str]:
    """A workload whose nodes talk to each other needs a network between them."""
    if workload != "dask" or settings["connect"] == "direct":
        return []
    why = (
        f"providers.{name}.connect: the workers of a Dask cluster connect to its scheduler and to each other; put them "
        "into one network and write connect: direct (a pool, wl.ComputePool, works through the tunnel)"
    )
    return [why]


def _check(settings: Mapping[str, Any], name: str, workload: str) -> list[str]:
    wrong = check_network(settings, name, workload)
    try:
        read_machines(settings["hosts"])
    except BadMachine as error:
        wrong.append(f"providers.{name}.{error}")
    return wrong


SSH_MACHINES: Final = ProviderType(
    summary="machines that exist already and have SSH, each sold to one slice at a time.",
    section=Section(
        "a provider of machines with SSH",
        (
            Setting(
                "hosts",
                Data(),
                REQUIRED,
                "",
                "The machines: `address`, `user@address`, or a mapping with `address`, `port`, `user`, `resources` (by "
                "default as the machine says) and `labels`.",
            ),
            Setting("user", Name(), None, "", "The login on all machines that name none.", absent="yours"),
            Setting("key_file", Place(), None, "", "Our private key.", absent="the SSH agent and the usual files"),
            Setting(
                "known_hosts",
                Place(),
                None,
                "",
                "The host keys of the machines. A key that is not in it is never accepted.",
                absent="`~/.ssh/known_hosts`",
            ),
            Setting(
                "connect",
                OneOf(("tunnel", "direct")),
                "tunnel",
                "",
                "`tunnel`: what a program reaches is carried over the SSH connection. `direct`: machines and the "
                "workload are in one network.",
            ),
            Setting("directory", Name(), "~/.windlass", "", "Where files go on the machines."),
            Setting(
                "lost_after",
                Duration(low=5, high=86400),
                "60s",
                "s",
                "How long a machine may be silent before its host counts as dead.",
            ),
            IMAGE,
        ),
    ),
    build=_build,
    runs=frozenset({"dask"}),
    check=_check,
    modules=("asyncssh",),
    extra="ssh",
    takes_images=True,
)
