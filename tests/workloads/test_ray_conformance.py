"""A Ray cluster as a workload passes the kit, on a real head of each version."""

from __future__ import annotations

import pytest

from tests.workloads.ray_stage import RayStage
from windlass.testing.workload_conformance import WorkloadConformance
from windlass.workloads.protocol import Workload, WorkloadView


@pytest.mark.ray
class TestNewestRay(WorkloadConformance):
    patience = 60.0
    final = True
    exact = False
    which = "RAY_NEW"

    @pytest.fixture(autouse=True)
    def _head(self, shared_heads):
        shared_heads.clear(self.which, nodes=False)
        self.head, self.driver = shared_heads.of(self.which)

    def stage(self):
        return RayStage(self.head, self.driver)

    def test_it_has_the_shape_of_a_workload(self):
        async def test(stage, workload):
            assert isinstance(workload, Workload)
            view = await self._seen(stage, lambda view: isinstance(view, WorkloadView))
            # A head that other tests have used remembers the nodes that they have drained: they stay acknowledged.
            assert (view.demands, view.nodes) == ((), ())
            assert all(one.final and not one.running for one in view.acknowledged)

        self._on_stage(test)


class TestOldRay(TestNewestRay):
    which = "RAY_OLD"
