"""Random histories of a task book: nodes join, die and are fenced, tasks are cancelled; invariants always hold."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from itertools import count

import pytest

from windlass.core.model.snapshot import Group
from windlass.pool.engines.protocol import Call
from windlass.pool.errors import NodeLost, TaskCancelled, TaskError
from windlass.pool.scaling.workload import PoolWorkload
from windlass.pool.scheduler.gangs import TaskGang
from windlass.pool.scheduler.task_book import TaskBook
from windlass.pool.scheduler.tasks import Kind, ScheduledTask
from windlass.pool.transport.serialization import ItemResult, pack_arguments, pack_function, result_of
from windlass.sim.run.virtual_loop import run_virtually
from windlass.testing.fake_engine import FakeEngine

from .worlds import same

GROUPS = (
    Group("small", (("slots", 2000),), 10),
    Group("gpu", (("gpu", 2000), ("slots", 4000)), 10),
)
KINDS = (
    Kind("plain", pack_function(same), (("slots", 1000),)),
    Kind("twice", pack_function(same), (("slots", 1000),), retries=2),
    Kind("half", pack_function(same), (("gpu", 500), ("slots", 1000))),
    Kind("whole", pack_function(same), (("gpu", 1000), ("slots", 1000)), timeout=30.0),
    Kind("wide", pack_function(same), (("slots", 2000),)),
)


class Told:
    """A ticket that must be told exactly once."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.answers: list[ItemResult | TaskError] = []

    def on_began(self) -> None: ...

    def on_value(self, blob: bytes) -> None: ...

    def on_ended(self, output: object) -> None:
        self.answers.append(result_of(output))

    def on_failed(self, error: TaskError) -> None:
        self.answers.append(error)


class Watched(FakeEngine):
    """Sees that no call is begun on a node after its cordon, and none is given there."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(seconds=lambda _: chance.choice((0.01, 0.1, 1.0, 20.0)))
        self.task_book: TaskBook
        self.cordoned: set[str] = set()
        self.given: Counter[str] = Counter()

    def run(self, call: Call) -> None:
        assert call.node.partition("/")[0] not in self.cordoned, "a call was placed behind a fence"
        self.given[call.id] += 1
        super().run(call)


class Life:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.engine = Watched(self.chance)
        self.workload = PoolWorkload(self.engine, GROUPS, now=asyncio.get_running_loop().time)
        self.task_book = self.engine.task_book = self.workload.task_book
        self.numbers, self.slices = count(1), count(1)
        self.tickets: list[Told] = []
        self.tasks: list[ScheduledTask] = []
        self.there: dict[str, int] = {}
        """Slices that have not been lost, and the epoch of their last fence."""

    def task(self, kind: Kind) -> ScheduledTask:
        number = next(self.numbers)
        ticket = Told(number)
        task = ScheduledTask(number, kind, pack_arguments((number,)), ticket, 0.0)
        self.tickets.append(ticket)
        self.tasks.append(task)
        return task

    # -- what may happen ----------------------------------------------------------------------------------------------

    def submit(self) -> None:
        kind = self.chance.choice(KINDS)
        self.task_book.submit([self.task(kind) for _ in range(self.chance.choice((1, 3, 40)))])

    def submit_gang(self) -> None:
        gang = TaskGang(f"gang-{next(self.numbers)}", self.chance.random() < 0.5, 0.0)
        for rank in range(self.chance.choice((2, 3))):
            member = self.task(KINDS[0])
            member.gang, member.rank = gang, rank
            gang.members.append(member)
        self.task_book.submit_gang(gang)

    def join(self) -> None:
        if len(self.there) < 6:
            name = f"s-{next(self.slices)}"
            self.there[name] = 0
            self.engine.arrive(self.workload.join(name, self.chance.choice(GROUPS).name, 0))

    def lose(self) -> None:
        if self.there:
            name = self.chance.choice(sorted(self.there))
            del self.there[name]
            self.engine.lose(f"{name}/0")

    def cordon(self) -> None:
        if self.there:
            name = self.chance.choice(sorted(self.there))
            self.there[name] += 1
            self.engine.cordoned.add(name)
            self.task_book.cordon(name, self.there[name])

    def uncordon(self) -> None:
        for name in sorted(self.engine.cordoned & self.there.keys()):
            self.engine.cordoned.discard(name)
            self.task_book.uncordon(name, self.there[name])

    def evict(self) -> None:
        for name in sorted(self.engine.cordoned & self.there.keys()):
            self.task_book.evict(name)

    def cancel(self) -> None:
        if self.tasks:
            self.task_book.cancel(self.chance.sample(self.tasks, min(3, len(self.tasks))))

    # -- what must always be so ---------------------------------------------------------------------------------------

    def check(self) -> None:
        view = self.task_book.view()
        waiting = sum(demand.count for demand in view.demands)
        running = sum(node.tasks for node in view.nodes)
        output = sum(len(ticket.answers) for ticket in self.tickets)
        assert all(len(ticket.answers) <= 1 for ticket in self.tickets), "a task was told twice"
        ended_in_gangs = sum(len(task.gang.results) for task in self.tasks if task.gang and task.rank == 0)
        assert waiting + running + output <= len(self.tasks)
        assert waiting + running + output + ended_in_gangs + self._between() >= len(self.tasks), "a task was lost"
        for node in self.task_book.nodes.values():
            has = dict(node.group.resources)
            assert all(0 <= amount <= has[name] for name, amount in node.used()), "more is used than there is"
            assert all(len(slot.calls) <= 2 for slot in node.slots)
            assert (node.idle_since is None) == bool(node.running())
        for word in view.acknowledged:
            here = [node for node in self.task_book.nodes.values() if node.slice_id == word.slice_id]
            calls = [call for node in here for call in node.calls()]
            assert word.running == sum(len(call.left) for call in calls)
            assert all(call.began_at is not None or call.ending for call in calls), "not taken back behind a fence"
        assert max(self.engine.given.values(), default=0) <= 1, "a call was given twice"

    def _between(self) -> int:
        """Members of gangs that have ended without a result while others of the gang have not."""
        gangs = {id(task.gang): task.gang for task in self.tasks if task.gang and task.gang.calls}
        return sum(len(gang.members) - len(gang.calls) - len(gang.results) for gang in gangs.values())


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_every_task_ends_once_and_with_its_own_result(seed):
    async def whole() -> None:
        life = Life(seed)
        await life.workload.start()
        steps = [life.submit, life.submit_gang, life.join, life.join, life.lose, life.cordon, life.uncordon]
        steps += [life.evict, life.cancel]
        for _ in range(150):
            life.chance.choice(steps)()
            await asyncio.sleep(life.chance.choice((0, 0.01, 0.5, 5.0)))
            life.check()
        life.uncordon()
        for group in GROUPS:  # in the end there is room for everything
            for _ in range(3):
                name = f"s-{next(life.slices)}"
                life.engine.arrive(life.workload.join(name, group.name, 0))
        for _ in range(5000):
            if all(ticket.answers for ticket in life.tickets):
                break
            await asyncio.sleep(1.0)
            life.check()
        for ticket in life.tickets:
            (answer,) = ticket.answers
            if isinstance(answer, ItemResult):
                assert answer.value() == ticket.number, "a result came to another task"
            else:
                assert isinstance(answer, TaskCancelled | NodeLost), answer
        assert not any(node.used() for node in life.task_book.nodes.values()), "room was not given back"

    run_virtually(whole())
