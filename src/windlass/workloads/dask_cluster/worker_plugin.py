"""This plugin runs in a worker that is to leave: it is the worker's side of the fence.

It is sent there by value, so a node needs Dask and not this package, and it is sent only when a fence is raised. The
worker itself is asked because only it knows: the scheduler does not see when a task that it has assigned starts,
nor that code of a task which was cancelled still runs.
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
    """Give a worker its side of the fence; again is harmless, and forgets nothing."""
    # A closure, so that all of it travels in one function.
    returned: dict[Any, None] = getattr(dask_worker, "windlass_returned", {})
    dask_worker.windlass_returned = returned

    def stand(fenced: bool, settled: tuple[Any, ...]) -> dict[str, Any]:
        """Start nothing any more, or start tasks again; and how it stands.

        What was assigned and has not started is handed back, and reported until the scheduler confirms that it has
        settled it: an answer may be lost, and a task must not be lost with it.
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
        """End the process, with whatever runs in it: there is no other way to end the code of a task."""
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGKILL)

    dask_worker.handlers |= {"windlass_stand": stand, "windlass_end": end}
