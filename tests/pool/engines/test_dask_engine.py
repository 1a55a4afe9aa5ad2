"""The Dask engine keeps the contract of an engine, with real processes."""

from windlass.testing.engine_conformance import EngineConformance
from windlass.testing.engine_stage import ProcessStage
from windlass.workloads.pool.dask_engine import DaskEngine


class TestDaskEngine(EngineConformance):
    alone = "windlass.workloads.pool.dask_engine:DaskEngine"

    def stage(self):
        return ProcessStage(DaskEngine)
