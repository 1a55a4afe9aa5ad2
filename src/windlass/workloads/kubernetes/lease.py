"""A Lease object elects the leader: one controller acts, the others stand by.

The holder renews every few seconds. If renewals fail for the whole duration, it stops acting before another controller
may start: the duration counts from the moment *before* its last successful renewal, by a monotonic clock. Another
controller takes over when it has seen the Lease unchanged for the whole duration, by its own clock, so that no two
clocks are compared. The number of changes of the holder is the fencing epoch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from windlass.kubernetes_api.api import Api, ApiError
from windlass.kubernetes_api.names import LEASE
from windlass.kubernetes_api.objects import rfc3339_micro

DURATION: Final = 15.0


class LeaseElection:
    """Competes for one Lease."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        holder: str,
        *,
        duration: float = DURATION,
        now: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._holder, self._duration, self._now, self._steady = api, holder, duration, now, steady
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self.epoch = 0
        self._held_until = -1.0
        self._seen: tuple[str, float] = ("", 0.0)
        """The resourceVersion of a Lease that another controller holds, and since when it has not changed."""
        self.lost = asyncio.Event()
        self._renewing: asyncio.Task[None] | None = None
        self.error = ""
        self._failures = 0
        """Renewals in a row that have failed."""

    def why_not_renewed(self) -> str:
        """Return why the last renewals have failed; empty after one that succeeded. A single failure is not
        reported.
        """
        return self.error if self._failures > 1 else ""

    def is_held(self) -> bool:
        """Whether this controller may act now."""
        return self._steady() < self._held_until

    async def acquire(self, on_wait: Callable[[str], None] = lambda _: None) -> None:
        """Wait until this controller holds the Lease, and renew it from then on until ``release``."""
        while True:
            try:
                if await self._try():
                    break
                on_wait(f"standing by: {self.error}")
            except ApiError as error:
                self.error = str(error)
                on_wait(f"standing by: the lease cannot be acquired: {error}")
            await asyncio.sleep(self._duration / 5)
        with suppress(ApiError):
            await self._try()  # connecting during the first call may have used up much of the lease's duration
        self.lost.clear()
        self._renewing = asyncio.create_task(self._renew(), name="renew the lease")

    async def release(self) -> None:
        """Release the Lease, so that another controller can take over at once."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
            self._renewing = None
        if self.is_held():
            self._held_until = -1.0
            with suppress(ApiError):
                current = await self._api.get_plain(f"{self._path}/{LEASE}")
                if current["spec"].get("holderIdentity") == self._holder:
                    current["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                    await self._api.replace(f"{self._path}/{LEASE}", current)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._duration / 5)
            try:
                if not await self._try():
                    break
            except ApiError as error:
                self.error = str(error)
                self._failures += 1
            if not self.is_held():
                break
        self._held_until = -1.0
        self.lost.set()

    async def _try(self) -> bool:
        """Take or renew the Lease once; False while another holds it."""
        began = self._steady()
        try:
            current = await self._api.get_plain(f"{self._path}/{LEASE}")
        except ApiError as error:
            if not error.is_missing:
                raise
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": LEASE},
                "spec": self._spec(0),
            }
            return self._took(await self._written(self._api.create(self._path, body)), began)
        spec: dict[str, Any] = current.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        transitions = int(spec.get("leaseTransitions") or 0)
        if holder == self._holder:
            if self.epoch and self.epoch != transitions + 1:
                return False
        elif holder and not self._is_over(current, spec):
            self.error = f"{holder} holds the lease"
            return False
        else:
            transitions += 1
        renewed = self._spec(transitions)
        if holder == self._holder:
            renewed["acquireTime"] = spec.get("acquireTime") or renewed["acquireTime"]
        current["spec"] = renewed
        return self._took(await self._written(self._api.replace(f"{self._path}/{LEASE}", current)), began)

    async def _written(self, call: Any) -> dict[str, Any] | None:
        try:
            written: dict[str, Any] = await call
            return written
        except ApiError as error:
            if error.is_conflict:
                self.error = "another controller has taken the lease"
                return None
            raise

    def _took(self, lease: dict[str, Any] | None, began: float) -> bool:
        if lease is None:
            return False
        self.epoch = int(lease["spec"].get("leaseTransitions") or 0) + 1
        self._held_until = began + self._duration
        self.error, self._failures = "", 0
        return True

    def _is_over(self, lease: dict[str, Any], spec: dict[str, Any]) -> bool:
        """Whether a Lease of another controller has not changed for its whole duration."""
        version = lease["metadata"]["resourceVersion"]
        if self._seen[0] != version:
            self._seen = (version, self._steady())
            return False
        return self._steady() - self._seen[1] > float(spec.get("leaseDurationSeconds") or self._duration)

    def _spec(self, transitions: int) -> dict[str, Any]:
        at = rfc3339_micro(self._now())
        return {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": max(1, round(self._duration)),
            "acquireTime": at,
            "renewTime": at,
            "leaseTransitions": transitions,
        }
