"""A Ray cluster as a workload passes the kit, on a real head of each version."""

from __future__ import annotations

import pytest

from tests.workloads.ray_stage import RayHead, RayStage
from windlass.testing.workload_conformance import WorkloadConformance


@pytest.mark.ray
class TestNewestRay(WorkloadConformance):
    patience = 60.0
    final = True
    exact = False
    which = "RAY_NEW"

    @pytest.fixture(autouse=True)
    def _head(self):
        self.head = RayHead(self.which).start()
        self.driver = self.head.driver()
        yield
        self.driver.close()
        self.head.stop()

    def stage(self):
        return RayStage(self.head, self.driver)


class TestOldRay(TestNewestRay):
    which = "RAY_OLD"
