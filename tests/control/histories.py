"""Random histories of a cluster: jobs, dying machines, failing lists, operator orders, killed controllers."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from tests.control.worlds import Survivor, World
from windlass.control.reconcile.operator_orders import Order, give
from windlass.control.settings import BackOff, GroupSettings, Policy, Settings
from windlass.core.model.snapshot import Cluster, Group, ScaleDown
from windlass.providers.protocol import Host, Instance, InsufficientCapacity, ProviderError

GPUS = (("gpu", 8000),)
BUDGET = 4 * 1_700_000_003
CHEAP = Group("cheap", GPUS, 3, rank=1, price=1_700_000_003, scale_down=ScaleDown(idle_timeout=30))
DEAR = Group("dear", GPUS, 2, rank=2, price=2_100_000_001, spare=1, scale_down=ScaleDown(idle_timeout=50))
SETTINGS = Settings(
    (GroupSettings(CHEAP, "north"), GroupSettings(DEAR, "south")),
    Cluster(choose="rank", max_nodes=4, max_hourly_cost=BUDGET),
    Policy(vanish_timeout=5, unhealthy_timeout=40, requesting_timeout=60, backoff=BackOff(pause=3)),
)

Step = tuple[str, int, float]

OFTEN = ("arrive", "arrive", "finish", "nothing", "kill")
FAULTS = ("die", "vanish", "fail", "stock-out", "sicken", "deafen", "find")
RELIEFS = ("heal", "restock", "recover")
ORDERS = ("freeze", "resume", "drain", "undrain")

steps = st.lists(
    st.tuples(
        st.sampled_from((*OFTEN, *OFTEN, *FAULTS, *RELIEFS, *ORDERS)),
        st.integers(0, 9),
        st.sampled_from([0.3, 1.0, 7.7, 31.0]),
    ),
    min_size=5,
    max_size=40,
)


def strike(world: World, step: Step, number: int, *, found: bool = True) -> None:
    """What one step does to the world. ``found``: whether machines with our tag may turn up from nowhere."""
    what, which, _ = step
    work, cloud = world.work, list(world.clouds.values())[which % 2]
    here, every = sorted(cloud.instances), sorted(world.instances)
    match what:
        case "arrive":
            work.waiting.extend(f"job-{number}-{index}" for index in range(which % 4 + 1))
        case "finish":
            work.finish(*sorted(work.running.values())[: which % 3 + 1])
        case "die" if here:
            cloud.kill(here[which % len(here)])
        case "vanish" if here:
            cloud.died.append(here[which % len(here)])
            del cloud.instances[cloud.died[-1]]
        case "fail":
            cloud.failing = ProviderError("the API is down")
        case "heal":
            cloud.failing = None
        case "stock-out":
            cloud.refusing = lambda _: InsufficientCapacity("none left")
        case "restock":
            cloud.refusing = lambda _: None
        case "sicken" if every:
            work.sick.add(f"{every[which % len(every)]}/0")
        case "recover":
            work.sick.clear()
            work.deaf = False
        case "deafen":
            work.deaf = True
        case "freeze" | "resume":
            order = Order(what, ("cheap", "dear", "*")[which % 3], "ann")
            give(world.journal(), order, world.time)
        case "drain" | "undrain" if every:
            give(world.journal(), Order(what, every[which % len(every)], "ann"), world.time)
        case "find" if found:
            group = ("cheap", "dear")[which % 2]
            cloud.instances[f"found-{number}"] = Instance(f"found-{number}", group, "running", (Host("h"),))
        case "kill":
            world.crash_at = (len(world.calls) + 1 + which,)
        case _:
            pass


async def live(world: World, life: list[Step], after_each: Callable[[Survivor], None], *, found: bool = True) -> None:
    """Every step and a pass after it."""
    alive = Survivor(world)
    after_each(alive)
    for number, step in enumerate(life):
        strike(world, step, number, found=found)
        await alive.tick(step[2])
        after_each(alive)


async def get_well(world: World, alive: Survivor) -> None:
    """All faults are over and all work is done; time goes on until nothing is left that is not wanted."""
    for cloud in world.clouds.values():
        cloud.failing, cloud.refusing = None, lambda _: None
    world.work.sick.clear()
    world.work.deaf = False
    for group in ("cheap", "dear", "*"):
        give(world.journal(), Order("resume", group, "ann"), world.time)
    for _ in range(250):
        world.work.finish()
        await alive.tick(10)  # less than the lease: a leader that is stopped for longer does not count the time
        if not world.work.waiting and not world.work.running and len(world.instances) == DEAR.spare:
            break
    for _ in range(10):  # what is over is over for good
        await alive.tick(10)
