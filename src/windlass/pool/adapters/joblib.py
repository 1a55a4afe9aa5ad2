"""This adapter offers a pool as a joblib backend: ``with joblib.parallel_config(backend=pool.as_joblib()): ...``."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from windlass.pool.client.api import compute_of
from windlass.pool.client.submission import is_large
from windlass.pool.engines.registry import need

if TYPE_CHECKING:
    from windlass.pool.client.handles import Handle
    from windlass.pool.pool import ComputePool

    PoolBackend = Any


def _run_batch(batch: Callable[[], Any]) -> Any:
    """Run a batch of joblib on a node."""
    return batch()


_RUN_BATCH = compute_of(_run_batch)


class _LargeArguments:
    """The large arguments of one call of ``Parallel``. Each is sent once, even if it changes, as with loky."""

    def __init__(self, pool: ComputePool) -> None:
        self._pool = pool
        self._sent: dict[int, tuple[Any, Handle]] = {}
        """By identity, with the value itself, so that no other value gets its identity."""

    def clear(self) -> None:
        self._sent = {}

    def _light(self, value: Any) -> Any:
        if not is_large(value):
            return value
        if id(value) not in self._sent:
            self._sent[id(value)] = value, self._pool.put(value)
        return self._sent[id(value)][1]

    def without(self, batch: Any) -> Any:
        """Return a copy of a batch that has handles in place of its large arguments."""
        lighter = copy.copy(batch)
        lighter.items = [
            (function, tuple(map(self._light, args)), {name: self._light(value) for name, value in kwargs.items()})
            for function, args, kwargs in batch.items
        ]
        return lighter


def backend_of(pool: ComputePool) -> PoolBackend:
    """Return the joblib backend of a pool. joblib makes its own batches; each is one task of the pool."""
    need("joblib", "pool")
    from joblib.parallel import (  # type: ignore[import-untyped]
        AutoBatchingMixin,
        ParallelBackendBase,
        parallel_config,
    )

    large = _LargeArguments(pool)

    class Backend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
        """Runs joblib's batches on the pool."""

        supports_retrieve_callback = True
        supports_inner_max_num_threads = False
        default_n_jobs = -1

        def effective_n_jobs(self, n_jobs: int | None) -> int:
            """Return ``n_jobs``, or by default the most tasks that the pool may run at once, so that it grows."""
            most = pool.most_slots
            if n_jobs == 0:
                raise ValueError("n_jobs == 0 in Parallel has no meaning")
            return most if n_jobs is None or n_jobs < 0 else min(n_jobs, most)

        def submit(self, func: Callable[[], Any], callback: Callable[[Any], Any] | None = None) -> Any:
            batch = large.without(func)
            function = batch.items[0][0]
            named = _RUN_BATCH.options(name=getattr(function, "__name__", type(function).__name__))
            future = pool.submit(named(batch))
            if callback is not None:
                future.add_done_callback(callback)
            return future

        def retrieve_result_callback(self, out: Any) -> Any:
            return out.result()

        def configure(self, n_jobs: int = 1, parallel: Any = None, **_: Any) -> int:
            self.parallel = parallel
            return self.effective_n_jobs(n_jobs)

        def stop_call(self) -> None:
            large.clear()

        def abort_everything(self, ensure_ready: bool = True) -> None:
            """joblib itself cancels the futures that it submitted."""

        def __enter__(self) -> Any:
            self._config = parallel_config(backend=self, n_jobs=-1)
            return self._config.__enter__()

        def __exit__(self, *error: object) -> None:
            self._config.__exit__(*error)

    return Backend()
