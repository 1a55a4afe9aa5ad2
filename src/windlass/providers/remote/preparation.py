"""This module prepares a machine for its slice: it checks Python, installs the image, starts program and tunnel.

A preparation retries after broken connections until its limit. When it fails for good, the reason is stored on the
machine, so that every controller lists the slice as dead with that reason.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Mapping
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
    """Whether a program's connections to us go through the SSH connection; False: it connects directly."""
    lease: float | None = None
    """Seconds without a controller after which a program ends itself."""
    grace: float = 5.0
    images: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The image of each group. It is not in the orders, because orders are journalled and images may have secrets."""
    image: Mapping[str, Any] | None = None
    """The image of the other groups."""

    def image_of(self, group: str) -> Mapping[str, Any] | None:
        return self.images.get(group, self.image)


def image_of(host: HostOrder, given: Mapping[str, Any] | None) -> ImageSpec | None:
    """Return the image for a host; None if its command needs none. Raises ``InvalidRequest`` if it can never work."""
    ours = is_ours(host)
    if not ours and not given:
        return None
    image = ImageSpec.of(given, host.requirements)
    if ours and "/" not in image.python and image.python != HERE:
        raise InvalidRequest(
            f"image: python is {image.python}, and this program runs on Python {HERE}. Functions that are sent from "
            f"one minor version do not run on another: leave python out, or run the program on Python {image.python}"
        )
    return image


def is_ours(host: HostOrder) -> bool:
    """Whether a host's program is a part of this package, which the image then installs."""
    return bool(host.command) and host.command[0] == sys.executable


def checked(order: LaunchOrder, rules: ProgramRules) -> None:
    """Refuse an order that no machine can carry out."""
    if not order.hosts:
        raise InvalidRequest(f"slice {order.slice_id} has no hosts; order at least one")
    for number, host in enumerate(order.hosts):
        if not host.command or not host.command[0]:
            raise InvalidRequest(f"host {number} of slice {order.slice_id} has no command; give the program to run")
        image_of(host, rules.image_of(order.group))


async def prepare(machine: RemoteMachine, order: LaunchOrder, number: int, epoch: int, rules: ProgramRules) -> str:
    """Prepare one host. Returns when its program runs, or when the reason of the failure is stored.

    Returns the reason if the machine could not store it, as on a full disk.
    """
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
            log.warning("%s cannot start: %s", order.slice_id, error)
        except AgentRefused as error:
            if error.kind not in ("gone", "stale"):
                text = plain_lines(redacted(str(error), hidden))
                log.info("%s cannot start on %s: %s", order.slice_id, machine.login.name, text)
                try:
                    await machine.ask("failed", slice=order.slice_id, epoch=epoch, text=text)
                except (Unreachable, AgentRefused):
                    return text
        return ""


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
        environment.pop("PYTHONPATH", None)  # it is for this computer; the image sets its own
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
    """Refuse a machine without the right Python, before anything is sent."""
    if "/" in image.python:
        return
    facts = await machine.ask("facts", limit=60)
    found = [str(version) for version in facts["pythons"]]
    if image.python not in found and not facts.get("uv") and not image.apt:
        has = f"has Python {', '.join(found)}" if found else "has no Python on its PATH"
        raise AgentRefused(
            "python",
            f"{machine.login.name} {has}, and this program needs Python {image.python}: functions that are sent from "
            f"one minor version do not run on another. Install Python {image.python} or uv there, or give the full "
            "path of one as python of the image",
        )


def phase_of(report: Mapping[str, Any]) -> str:
    """Return the phase of a machine's preparation; empty when its program runs."""
    assignment = report.get("assignment") or {}
    return "" if assignment.get("failed") else plain(assignment.get("phase") or "", 120)


class Death(NamedTuple):
    """The reason why a machine's program does not run, its exit code and its last output, and the step of the
    preparation that failed."""

    why: str
    exit_code: int | None = None
    last_output: str = ""
    failed_phase: str = ""


def death_of(report: Mapping[str, Any], failure: str = "") -> Death | None:
    """Return how a program ended or why it did not start; None while it runs or is being prepared.

    ``failure``: the reason of a failed preparation that the machine could not store.
    """
    assignment = report.get("assignment") or {}
    if failed := assignment.get("failed") or failure:
        return Death(plain_lines(failed), failed_phase=plain(assignment.get("phase") or "", 120))
    if not assignment.get("started") or report.get("running"):
        return None
    exited = report.get("exited") or {}
    code, output = exited.get("code"), plain_lines(exited.get("tail") or "")
    code = code if type(code) is int else None
    ended = "its program ended" if code is None else f"its program ended with code {code}"
    return Death(f"{ended}: {output[-500:]}" if output else ended, code, output)


class Phases:
    """Remembers when each slice entered its phase, by our own clock: a machine's clock may be wrong."""

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
    """Runs preparations, one for each host of a slice."""

    def __init__(self, rules: ProgramRules) -> None:
        self.rules = rules
        self._tasks: dict[tuple[str, int], asyncio.Task[str]] = {}
        self._failures: dict[tuple[str, int], str] = {}
        """The reasons of failures that the machines could not store, by slice and host."""

    def failure(self, slice_id: str, number: int) -> str:
        """Return the reason why a host cannot be prepared, if its machine could not store it; empty otherwise."""
        return self._failures.get((slice_id, number), "")

    def begin(self, machine: RemoteMachine, order: LaunchOrder, number: int, epoch: int) -> None:
        """Start to prepare a host, unless that is in progress."""
        key = (order.slice_id, number)
        if key in self._tasks or key in self._failures:
            return
        task = self._tasks[key] = asyncio.create_task(prepare(machine, order, number, epoch, self.rules))
        task.add_done_callback(lambda done: self._done(key, done))

    def _done(self, key: tuple[str, int], task: asyncio.Task[str]) -> None:
        self._tasks.pop(key, None)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            log.error("the preparation of %s failed: %s", key[0], error, exc_info=error)
        elif failure := task.result():
            self._failures[key] = failure

    def under_way(self, slice_id: str) -> bool:
        return any(key[0] == slice_id for key in self._tasks)

    async def stop(self, slice_id: str | None = None) -> None:
        """Cancel the preparations of a slice, or all of them."""
        found = [task for key, task in self._tasks.items() if slice_id in (None, key[0])]
        for task in found:
            task.cancel()
        await asyncio.gather(*found, return_exceptions=True)
        for key in [key for key in self._failures if slice_id in (None, key[0])]:
            del self._failures[key]
