"""This module prepares a machine for its slice: it checks Python, bootstraps the image, starts the program and joins
the tunnel.

A preparation goes on over broken connections until its limit. When it finally fails, the reason is written down on the
machine, so that every controller lists the slice as dead with that reason.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from windlass.providers.protocol import HostOrder, InvalidRequest, LaunchOrder
from windlass.providers.remote.connection import Unreachable, plain, plain_lines, redacted
from windlass.providers.remote.image import HERE, ImageSpec
from windlass.providers.remote.machine import AgentRefused, RemoteMachine
from windlass.providers.remote.supervisor import PYTHON

log = logging.getLogger(__name__)

LIMIT: Final = 1800.0
_AGAIN: Final = 1.0


@dataclass(frozen=True, slots=True)
class ProgramRules:
    """How programs are started on the machines of one provider."""

    tunnel: bool = True
    """Whether what a program reaches is carried over the SSH connection; False: it has a route of its own."""
    lease: float | None = None
    """Seconds without a controller after which a program ends itself."""
    grace: float = 5.0
    images: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The image of each group. Kept here and not in orders, because orders are written down and images have secrets."""
    image: Mapping[str, Any] | None = None
    """Of the groups that have none."""

    def image_of(self, group: str) -> Mapping[str, Any] | None:
        return self.images.get(group, self.image)


def image_of(host: HostOrder, given: Mapping[str, Any] | None) -> ImageSpec | None:
    """What a host must have; None if its command needs nothing. ``InvalidRequest`` if it can never run here."""
    ours = is_ours(host)
    if not ours and not given:
        return None
    image = ImageSpec.of(given, host.requirements)
    if ours and "/" not in image.python and image.python != HERE:
        raise InvalidRequest(
            f"image: python is {image.python}, and this program runs on {HERE}: functions that are sent from one minor "
            f"version do not run on another. Leave python out, or run the program on {image.python}"
        )
    return image


def is_ours(host: HostOrder) -> bool:
    """Whether a host's program is a part of this package, which the image then brings along."""
    return bool(host.command) and host.command[0] == sys.executable


def checked(order: LaunchOrder, rules: ProgramRules) -> None:
    """Refuse an order that no machine can carry out."""
    if not order.hosts:
        raise InvalidRequest(f"slice {order.slice_id} has no hosts; order at least one")
    for number, host in enumerate(order.hosts):
        if not host.command or not host.command[0]:
            raise InvalidRequest(f"host {number} of slice {order.slice_id} has no command; give the program to run")
        image_of(host, rules.image_of(order.group))


async def prepare(machine: RemoteMachine, order: LaunchOrder, number: int, epoch: int, rules: ProgramRules) -> None:
    """Bring one host's program up. Returns when it runs, or when the reason why it does not is written down."""
    host = order.hosts[number]
    image = image_of(host, rules.image_of(order.group))
    hidden = (*(image.secrets if image else ()), *(one for one in host.environment.values() if len(one) >= 6))
    deadline = time.monotonic() + LIMIT
    while True:
        try:
            await _prepare(machine, order, host, number, epoch, image, rules)
        except Unreachable as error:
            if time.monotonic() < deadline:
                await asyncio.sleep(_AGAIN)
                continue
            log.warning("%s does not come up: %s", order.slice_id, error)
        except AgentRefused as error:
            if error.kind not in ("gone", "stale"):
                text = redacted(plain_lines(error), hidden)
                log.warning("%s does not come up on %s: %s", order.slice_id, machine.login.name, text)
                with suppress(Unreachable, AgentRefused):
                    await machine.ask("failed", slice=order.slice_id, epoch=epoch, text=text)
        return


async def _prepare(
    machine: RemoteMachine,
    order: LaunchOrder,
    host: HostOrder,
    number: int,
    epoch: int,
    image: ImageSpec | None,
    rules: ProgramRules,
) -> None:
    command = tuple(host.command)
    environment = dict(host.environment)
    if image is not None:
        await _check_python(machine, image)
        await machine.bootstrap(image, order.slice_id, epoch)
        environment = {**image.env, **environment}
    if is_ours(host):
        command = (PYTHON, *command[1:])
        environment.pop("PYTHONPATH", None)  # of this computer; the image has one of its own
    environment |= {
        "WINDLASS_SLICE": order.slice_id,
        "WINDLASS_GROUP": order.group,
        "WINDLASS_HOST": str(number),
        "WINDLASS_NODE": f"{order.slice_id}/{number}",
    }
    await machine.start(
        order.slice_id,
        epoch,
        command,
        environment,
        image=image.hash if image is not None else "",
        reach=host.reach if rules.tunnel else (),
        lease=rules.lease,
        grace=rules.grace,
    )


async def _check_python(machine: RemoteMachine, image: ImageSpec) -> None:
    """Before anything is sent: a machine without the right Python is of no use."""
    if "/" in image.python:
        return
    facts = await machine.ask("facts", limit=60)
    found = [str(version) for version in facts["pythons"]]
    if image.python not in found and not facts.get("uv") and not image.apt:
        has = f"has Python {', '.join(found)}" if found else "has no Python on its PATH"
        raise AgentRefused(
            "python",
            f"it {has}, and Python {image.python} is needed: functions that are sent from one minor version do not run "
            f"on another. Install Python {image.python} or uv there, or give the image the full path of one",
        )


def phase_of(looked: Mapping[str, Any]) -> str:
    """What a machine is doing before its program runs; empty when it is done."""
    sold = looked.get("sold") or {}
    return "" if sold.get("failed") else plain(sold.get("phase") or "", 120)


class Death(NamedTuple):
    """Why the program of a machine does not run, and what it left behind."""

    trouble: str
    exit_code: int | None = None
    last_output: str = ""


def death_of(looked: Mapping[str, Any]) -> Death | None:
    """How a program ended or failed to start, by what its machine says; None while it runs or is being prepared."""
    sold = looked.get("sold") or {}
    if sold.get("failed"):
        return Death(plain_lines(sold["failed"]))
    if not sold.get("started") or looked.get("running"):
        return None
    exited = looked.get("exited") or {}
    code, output = exited.get("code"), plain_lines(exited.get("tail") or "")
    code = code if type(code) is int else None
    ended = "its program ended" if code is None else f"its program ended with code {code}"
    return Death(f"{ended}: {output[-500:]}" if output else ended, code, output)


class Phases:
    """When the present phase of each slice was first seen. Clocks of machines are not asked: they may be off."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._seen: dict[str, tuple[str, float]] = {}

    def since(self, slice_id: str, phase: str) -> float | None:
        if not phase:
            self._seen.pop(slice_id, None)
            return None
        if self._seen.get(slice_id, ("", 0.0))[0] != phase:
            self._seen[slice_id] = (phase, self._now())
        return self._seen[slice_id][1]


class Preparations:
    """The preparations that are under way, one for each host of a slice."""

    def __init__(self, rules: ProgramRules) -> None:
        self.rules = rules
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}

    def begin(self, machine: RemoteMachine, order: LaunchOrder, number: int, epoch: int) -> None:
        """Prepare a host, unless that is under way."""
        key = (order.slice_id, number)
        if key in self._tasks:
            return
        task = self._tasks[key] = asyncio.create_task(prepare(machine, order, number, epoch, self.rules))
        task.add_done_callback(lambda done: self._done(key, done))

    def _done(self, key: tuple[str, int], task: asyncio.Task[None]) -> None:
        self._tasks.pop(key, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the preparation of %s failed: %s", key[0], error, exc_info=error)

    def under_way(self, slice_id: str) -> bool:
        return any(key[0] == slice_id for key in self._tasks)

    async def stop(self, slice_id: str | None = None) -> None:
        """End the preparations of a slice, or all."""
        found = [task for key, task in self._tasks.items() if slice_id in (None, key[0])]
        for task in found:
            task.cancel()
        await asyncio.gather(*found, return_exceptions=True)
