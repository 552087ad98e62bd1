"""XGBoost's collective over the workers."""
from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from raygo.train._worker_group import WorkerGroup
from raygo.train.backend import Backend, BackendConfig

__all__ = ["XGBoostConfig"]

log = logging.getLogger("raygo.train")

# How long the tracker waits for the workers to take leave.
_LEAVE_S = 5


@dataclass
class XGBoostConfig(BackendConfig):
    """How the workers are joined.

    Parameters
    ----------
    xgboost_communicator : str
        "rabit", XGBoost's own.
    """

    xgboost_communicator: str = "rabit"

    def __post_init__(self) -> None:
        if self.xgboost_communicator != "rabit":
            raise NotImplementedError(f"XGBoostConfig: xgboost_communicator is {self.xgboost_communicator!r}: there is only 'rabit'")

    @property
    def backend_cls(self) -> type[Backend]:
        """The backend."""
        return _XGBoostBackend

    @property
    def train_func_context(self) -> Any:
        """Where the training function finds the collective: XGBoost's is a thread's, so it is joined in the function's own."""
        return _joined

    @property
    def framework(self) -> str:
        """The framework's name."""
        return "xgboost"

    @property
    def preload(self) -> tuple[str, ...]:
        """Workers are forked from a process that has them."""
        return ("pandas", "pyarrow", "xgboost")


class _XGBoostBackend(Backend):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._tracker: Any = None

    def on_training_start(self, worker_group: WorkerGroup, backend_config: XGBoostConfig) -> None:
        workers = worker_group.workers
        if len(workers) == 1:
            return       # alone, there is nobody to agree with
        from xgboost.tracker import RabitTracker

        import raygo

        # The tracker runs here, so that a worker that dies does not take it along.
        one_machine = len({w.metadata.node_id for w in workers}) == 1
        host = "127.0.0.1" if one_machine else raygo.util.get_node_ip_address()
        self._tracker = RabitTracker(n_workers=len(workers), host_ip=host, sortby="task")
        self._tracker.start()
        # XGBoost numbers its ranks by the order of these names.
        raygo.get([worker_group.execute_single_async(rank, _remember, {**self._tracker.worker_args(), "dmlc_task_id": f"{rank:08d}"})
                   for rank in range(len(workers))])

    def on_shutdown(self, worker_group: WorkerGroup, backend_config: XGBoostConfig) -> None:
        tracker, self._tracker = self._tracker, None
        if tracker is None:
            return
        try:
            tracker.wait_for(timeout=_LEAVE_S)
        except Exception as error:
            log.warning("XGBoost's tracker did not end cleanly: %s", error)
        tracker.free()


_arguments: dict[str, Any] | None = None


def _remember(arguments: dict[str, Any]) -> None:
    global _arguments
    _arguments = arguments


@contextlib.contextmanager
def _joined() -> Iterator[None]:
    if _arguments is None:
        yield
        return
    from xgboost.collective import CommunicatorContext

    with CommunicatorContext(**_arguments):
        yield
