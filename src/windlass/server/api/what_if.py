"""This module runs what-if replays: one child process at a time, with low priority and a time limit."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from windlass.server.problems import Problem

KEPT: Final = 32
"""How many replays are kept."""
MOST_WAITING: Final = 16
LONGEST: Final = 200


@dataclass
class WhatIfReplay:
    """One replay."""

    id: str
    words: tuple[str, ...]
    state: str = "waiting"
    progress: float = 0.0
    answer: dict[str, Any] | None = None
    problem: str | None = None
    task: asyncio.Task[None] | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "windlass.what-if/v1",
            "id": self.id,
            "state": self.state,
            "progress": round(self.progress, 3),
            "answer": self.answer,
            "problem": self.problem,
        }


def words_of(body: Any) -> tuple[str, ...]:
    """Returns the options of ``windlass replay`` for a request; reports all mistakes at once."""
    if not isinstance(body, dict):
        raise Problem("invalid", "The body is an object with set, policy, since and seed.", mistakes=["no object"])
    mistakes = [f"{key}: is not known" for key in body if key not in ("set", "policy", "since", "seed")]
    changes, since, seed, policy = body.get("set") or [], body.get("since"), body.get("seed"), body.get("policy")
    words: list[str] = []
    if not isinstance(changes, list) or not all(_is_change(one) for one in changes) or len(changes) > 50:
        mistakes.append("set: must be a list of PATH=VALUE, such as gpu.max=8")
    else:
        words += [word for one in changes for word in ("--set", one)]
    if since is not None:
        if isinstance(since, bool) or not isinstance(since, int | float) or not 0 <= since < 1e11:
            mistakes.append("since: must be seconds since 1970")
        else:
            words += ["--since", repr(float(since))]
    if seed is not None:
        if isinstance(seed, bool) or not isinstance(seed, int) or abs(seed) > 2**63:
            mistakes.append("seed: must be a whole number")
        else:
            words += ["--seed", str(seed)]
    if policy is not None and not isinstance(policy, dict):
        mistakes.append("policy: must be a piece of a configuration, as an object")
    if not changes and policy is None:
        mistakes.append("set: give at least one change, such as gpu.max=8")
    if mistakes:
        raise Problem("invalid", "; ".join(mistakes), mistakes=mistakes)
    return tuple(words)


def _is_change(one: Any) -> bool:
    return isinstance(one, str) and "=" in one and len(one) <= LONGEST and one.isprintable() and one[0] not in "-="


class WhatIf:
    """Runs replays of one journal, one after the other."""

    def __init__(self, location: str, timeout: float) -> None:
        self._location, self._timeout = location, timeout
        self._replays: OrderedDict[str, WhatIfReplay] = OrderedDict()
        self._turn = asyncio.Lock()

    def start(self, body: Any) -> WhatIfReplay:
        words = words_of(body)
        waiting = sum(one.state in ("waiting", "running") for one in self._replays.values())
        if waiting >= MOST_WAITING:
            raise Problem("rate-limited", f"{waiting} replays wait already: try again later.", retry_after=30)
        policy = body.get("policy")
        replay = WhatIfReplay(secrets.token_hex(8), words)
        self._replays[replay.id] = replay
        while len(self._replays) > KEPT:
            _, old = self._replays.popitem(last=False)
            if old.task is not None:
                old.task.cancel()
        replay.task = asyncio.create_task(self._run(replay, policy))
        return replay

    def get(self, name: str) -> WhatIfReplay:
        found = self._replays.get(name)
        if found is None:
            raise Problem("not-found", "There is no such replay any more. POST /api/v1/what-if starts one.")
        return found

    def end(self, name: str) -> None:
        found = self.get(name)
        if found.task is not None:
            found.task.cancel()
        del self._replays[name]

    async def close(self) -> None:
        tasks = [one.task for one in self._replays.values() if one.task is not None]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task

    async def _run(self, replay: WhatIfReplay, policy: dict[str, Any] | None) -> None:
        async with self._turn:
            replay.state = "running"
            try:
                async with asyncio.timeout(self._timeout):
                    await self._replay(replay, policy)
            except TimeoutError:
                replay.state = "failed"
                replay.problem = f"It took longer than what_if_timeout ({self._timeout:g} s): choose a later since."
            except OSError as error:
                replay.state, replay.problem = "failed", f"The replay could not be started: {error}"

    async def _replay(self, replay: WhatIfReplay, policy: dict[str, Any] | None) -> None:
        command = [sys.executable, "-P", "-m", "windlass", "replay", self._location, *replay.words, "--json"]
        if policy is not None:
            command += ["--policy", "-"]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            preexec_fn=lambda: os.nice(10),
        )
        progress = asyncio.create_task(self._guess_progress(replay))
        try:
            given = None if policy is None else json.dumps(policy).encode()
            output, errors = await process.communicate(given or b"")
        finally:
            progress.cancel()
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        try:
            replay.answer = json.loads(output)
            replay.state, replay.progress = "done", 1.0
        except ValueError:
            text = errors.decode(errors="replace").strip()
            replay.state, replay.problem = "failed", text.splitlines()[-1] if text else "The replay gave no answer."

    async def _guess_progress(self, replay: WhatIfReplay) -> None:
        """Estimates the progress: the child reports none, so the value approaches 1 and never reaches it."""
        while True:
            await asyncio.sleep(0.5)
            replay.progress += (0.95 - replay.progress) * 0.08
