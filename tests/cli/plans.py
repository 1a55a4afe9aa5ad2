"""A plan made by hand, with something in every list, for tests of how a plan looks."""

from __future__ import annotations

from windlass import builders as wl
from windlass.core.model.plan import Change, HourlyCost, Launch, Placement, Plan, Unblock, Waiting
from windlass.core.model.quantities import NANO
from windlass.core.model.reasons import Code, Reason
from windlass.core.model.snapshot import Snapshot


def a_snapshot(idle: int = 12) -> Snapshot:
    return wl.snapshot(
        groups=[
            wl.group("gpu-a", cpu=32, gpu=4, max=8, price=12.0),
            wl.group("gpu-b", cpu=32, gpu=8, max=8, price=30.0),
            wl.group("cpu", cpu=16, max=5000, price=1.0),
        ],
        slices=[
            *(wl.slice_(f"c-{index:04}", "cpu") for index in range(1, idle + 1)),
            *(wl.slice_(f"b-{index}", "cpu", used={"cpu": 1}) for index in range(1, 10)),
            wl.slice_("g-1", "gpu-a", "draining"),
            wl.slice_("g-2", "gpu-a", marked_until=50),
            wl.slice_("g-3", "gpu-a"),
            wl.slice_("q-1", "gpu-b", "queued"),
        ],
        demands=[wl.demand("train", {"gpu": 1}, count=3), wl.demand("big", {"memory": "512Gi"})],
        now=100,
    )


def a_plan(idle: int = 12) -> Plan:
    demand = Reason(Code.DEMAND, "for 3 tasks of train that fit on no running slice")
    dearer = Reason(Code.DEARER, "1 slice for the same tasks costs $30.00/h, gpu-a $24.00/h")
    return Plan(
        now=100,
        strategy="cheapest",
        launches=(
            Launch(
                "gpu-a",
                0,
                2,
                demand,
                24 * NANO,
                {"cpu": Reason(Code.TOO_SMALL, "needs 1 gpu, a node has none"), "gpu-b": dearer},
            ),
        ),
        cancel=(Change("q-1", Reason(Code.SURPLUS, "no demand, floor or request needs it")),),
        drain=tuple(
            Change(f"c-{index:04}", Reason(Code.IDLE, f"idle {100 + index} s, limit 60 s"))
            for index in range(1, idle + 1)
        ),
        uncordon=(Change("g-1", demand),),
        mark=(Change("g-3", Reason(Code.LOW_UTILIZATION, "1 of 3 slices in use, target 80 percent"), 700),),
        unmark=(Change("g-2", demand),),
        stays=(),
        waiting=(
            Waiting(
                "big",
                1,
                Reason(Code.NO_SHAPE_FITS, "needs 512Gi memory, the largest node has none"),
                {name: Reason(Code.TOO_SMALL, "needs 512Gi memory, a node has none") for name in ("cpu", "gpu-a")},
            ),
        ),
        hourly_cost=HourlyCost(45 * NANO, 57 * NANO),
        mistakes=(),
        _busy=lambda: tuple(Change(f"b-{index}", Reason(Code.BUSY, "1 task runs there")) for index in range(1, 10)),
        _placements=lambda: (Placement("train", 3, "new:gpu-a:0"),),
        _unblocks=lambda: {
            "big": (Unblock("memory 512Gi -> 0", ((("demands", "big", "needs"), {"memory": "0"}),), 12 * NANO),)
        },
    )
