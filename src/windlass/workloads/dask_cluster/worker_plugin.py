"""This plugin runs in a worker that is cordoned: it is the worker's part of the fence.

The scheduler's plugin sends it by value when a fence is raised, so a node needs Dask but not this package. Only the
worker knows what runs: the scheduler does not see when an assigned task starts, nor that the code of a cancelled task
still runs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

from distributed import Status, Worker
from distributed.worker_state_machine import CancelComputeEvent


def set_up(dask_worker: Worker) -> None:
    """Install the worker's part of the fence. A second call changes nothing."""
    # Closures, because one function is sent.
    returned: dict[Any, None] = getattr(dask_worker, "windlass_returned", {})
    dask_worker.windlass_returned = returned

    def stand(fenced: bool, settled: tuple[Any, ...]) -> dict[str, Any]:
        """Set the fence, and return the state of the worker.

        A fenced worker starts nothing, and returns tasks that have not started. It reports them until the scheduler
        confirms (``settled``) that it has rescheduled them: otherwise a lost answer would lose a task.
        """
        for key in settled:
            returned.pop(key, None)
        if fenced and dask_worker.status in (Status.running, Status.paused):
            dask_worker.status = Status.closing_gracefully
        elif not fenced and dask_worker.status == Status.closing_gracefully:
            dask_worker.status = Status.running
        state = dask_worker.state
        if fenced:
            waiting = [task.key for task in state.tasks.values() if task.state in ("ready", "constrained", "waiting")]
            for key in waiting:
                task = state.tasks[key]
                dask_worker.handle_stimulus(CancelComputeEvent(key=key, stimulus_id=f"windlass-fence-{time.time()}"))
                if task.state in ("released", "forgotten"):
                    returned[key] = None
        return {
            "status": dask_worker.status.name,
            "running": [task.key for task in (*state.executing, *state.long_running)],
            "returned": list(returned),
        }

    def end() -> None:
        """End the process: there is no other way to end the code of a task."""
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGKILL)

    dask_worker.handlers |= {"windlass_stand": stand, "windlass_end": end}
