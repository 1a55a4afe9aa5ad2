"""The Ray engine keeps the contract of an engine, with real processes."""

import pytest

from windlass.testing.engine_conformance import EngineConformance
from windlass.testing.engine_stage import ProcessStage

pytest.importorskip(
    "ray",
    reason="Ray is not installed; these tests run in an environment that has it: pip install 'ray>=2.52', then again",
)

from windlass.workloads.pool.ray_engine import RayEngine

pytestmark = pytest.mark.slow

SMALL = 200 << 20
"""Bytes for each node's object store: several nodes share this machine."""


class TestRayEngine(EngineConformance):
    alone = "windlass.workloads.pool.ray_engine:RayEngine"
    patience = 120.0

    def stage(self):
        return ProcessStage(lambda: RayEngine(object_store=SMALL))
