"""A Ray cluster as a workload passes the kit, on a real head of each version."""

from __future__ import annotations

import pytest

from tests.workloads.ray_stage import RayStage
from windlass.testing.workload_conformance import WorkloadConformance


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
        return RayStage(self.head)


class TestOldRay(TestNewestRay):
    which = "RAY_OLD"

    def stage(self):
        return RayStage(self.head, self.driver)
