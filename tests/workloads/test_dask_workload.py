"""A Dask scheduler keeps the contract, with real workers and real tasks."""

from __future__ import annotations

import pytest

from tests.workloads.dask_stage import DaskStage
from windlass.testing.waiting import run
from windlass.testing.workload_conformance import WorkloadConformance


class TestDaskWorkload(WorkloadConformance):
    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path):
        self.directory = tmp_path

    def _on_stage(self, test):
        """The stage needs an event loop to be set up."""

        async def whole():
            stage = await DaskStage(self.directory).start()
            try:
                await test(stage, stage.workload)
            finally:
                await stage.break_off()

        run(whole())
