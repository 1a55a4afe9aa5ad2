"""This adapter offers a pool as a joblib backend: ``with joblib.parallel_config(backend=pool.as_joblib()): ...``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from windlass.pool.engines.registry import need

if TYPE_CHECKING:
    from windlass.pool.pool import ComputePool

    PoolBackend = Any


def backend_of(pool: ComputePool) -> PoolBackend:
    """The backend. joblib makes its own batches; each is one task of the pool."""
    need("joblib", "pool")
    from joblib.parallel import (  # type: ignore[import-untyped]
        AutoBatchingMixin,
        ParallelBackendBase,
        parallel_config,
    )

    class Backend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
        """Runs joblib's batches on the pool."""

        supports_retrieve_callback = True
        supports_inner_max_num_threads = False
        default_n_jobs = -1

        def effective_n_jobs(self, n_jobs: int | None) -> int:
            """As many as the pool may ever run at once, so that it is asked to grow; or as many as were asked for."""
            most = pool.most_slots
            if n_jobs == 0:
                raise ValueError("n_jobs == 0 in Parallel has no meaning")
            return most if n_jobs is None or n_jobs < 0 else min(n_jobs, most)

        def submit(self, func: Callable[[], Any], callback: Callable[[Any], Any] | None = None) -> Any:
            future = pool.submit(func)
            if callback is not None:
                future.add_done_callback(callback)
            return future

        def retrieve_result_callback(self, out: Any) -> Any:
            return out.result()

        def configure(self, n_jobs: int = 1, parallel: Any = None, **_: Any) -> int:
            self.parallel = parallel
            return self.effective_n_jobs(n_jobs)

        def abort_everything(self, ensure_ready: bool = True) -> None:
            """joblib itself cancels what it submitted."""

        def __enter__(self) -> Any:
            self._config = parallel_config(backend=self, n_jobs=-1)
            return self._config.__enter__()

        def __exit__(self, *error: object) -> None:
            self._config.__exit__(*error)

    return Backend()
