"""The controller is killed at each of its writes in turn: nothing is bought twice, nothing is left behind."""

from __future__ import annotations

from itertools import count

import pytest

from windlass.kubernetes_api.api import ApiError

from .stage import PROVISIONERS, Stage, provisioner, staged


class Killer:
    """Lets some writes pass; from then on none gets through, as from a process that is dead.

    ``stored``: the write at which it dies is carried out, and its answer is lost.
    """

    def __init__(self, stage: Stage, after: int, *, stored: bool) -> None:
        self._stage, self._left, self._stored = stage, after, stored
        self.struck = False
        stage.fake.on_write, stage.fake.on_written = self._before, self._after

    def _before(self, method: str, path: str) -> None:
        if self.struck or (self._left == 0 and not self._stored):
            self.struck = True
            raise ApiError(0, f"killed before {method} {path}")

    def _after(self, method: str, path: str) -> None:
        if self._left == 0:
            self.struck = True
            raise ApiError(0, f"killed after {method} {path}")
        self._left -= 1

    def rest(self) -> None:
        self.struck = False
        self._stage.fake.on_write = self._stage.fake.on_written = lambda _method, _path: None


async def life(stage: Stage, writes: int, *, stored: bool, lose_journal: bool) -> bool:
    """Two pods get machines and end; the controller dies after so many writes. Whether it died at all."""
    stage.fake.put(PROVISIONERS, provisioner(minGPUUtilizationPercent=100, scaleDownDelay="10s"))
    stage.pending("a")
    stage.pending("b")
    killer = Killer(stage, writes, stored=stored)

    async def tick() -> None:
        await stage.tick()
        if killer.struck:
            killer.rest()
            await stage.restart(lose_journal=lose_journal)
            deaths.append(1)

    deaths: list[int] = []
    for _ in range(40):
        await tick()
        stage.advance(2)
        for name in ("a", "b"):
            ready = [one for one in stage.nodes if not stage.fake.get(f"/api/v1/namespaces/default/pods/on-{one}")]
            pod = stage.fake.get(f"/api/v1/namespaces/default/pods/{name}")
            if pod is not None and not pod["spec"].get("nodeName") and ready:
                stage.fake.remove(f"/api/v1/namespaces/default/pods/{name}")
                stage.run_on(ready[0])
        assert len(stage.nodes) <= 2
        if len([one for one in stage.fake.all("pods") if one["spec"].get("nodeName")]) == 2:
            break
    assert len(stage.nodes) == 2
    stage.finish(*[f"on-{name}" for name in stage.nodes])
    for _ in range(60):
        await tick()
        stage.advance(15)
        if not stage.nodes and not stage.claims:
            break
    assert stage.nodes == []
    assert stage.claims == []
    return bool(deaths)


@pytest.mark.parametrize("lose_journal", [False, True], ids=["with its journal", "without its journal"])
@pytest.mark.parametrize("stored", [False, True], ids=["before the write", "before its answer"])
def test_a_controller_that_is_killed_at_any_write_continues_where_it_was(stored: bool, lose_journal: bool):
    """Every number of writes, from none until the last one of a whole life."""
    killed = 0
    for writes in count():
        died: list[bool] = []

        async def test(stage: Stage, writes: int = writes, died: list[bool] = died) -> None:
            died.append(await life(stage, writes, stored=stored, lose_journal=lose_journal))

        staged(test)
        if not died[0]:
            break
        killed += 1
    assert killed > 30
