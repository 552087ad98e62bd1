"""What goes wrong in training::

    TrainingFailedError
    ├── WorkerGroupError        workers failed, more often than FailureConfig allows
    │   └── NCCLHangError       they were stuck in a collective
    ├── ControllerError         the workers could not be started, or made a group; a callback failed
    └── PreemptionError         the machine was taken away
    StorageError                a file could not be read or written
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["ControllerError", "NCCLHangError", "PreemptionError", "PreemptionInfo", "SessionMisuseError", "StorageError",
           "TrainingFailedError", "WorkerGroupError"]


class SessionMisuseError(Exception):
    """A function for training workers was used in a way it does not allow."""


class StorageError(OSError):
    """A file could not be read or written; says which, and on which storage."""


class TrainingFailedError(RuntimeError):
    """Training ended without a result; ``__cause__`` is what a worker raised."""


class WorkerGroupError(TrainingFailedError):
    """Workers failed.

    Parameters
    ----------
    error_message : str
        What happened.
    worker_failures : dict of int to Exception
        The errors by rank.
    """

    def __init__(self, error_message: str, worker_failures: dict[int, Exception]) -> None:
        super().__init__(error_message)
        self.worker_failures = worker_failures

    def __reduce__(self) -> Any:
        return type(self), (self.args[0], self.worker_failures)


class NCCLHangError(WorkerGroupError):
    """Workers were stuck in a collective of NCCL."""


class ControllerError(TrainingFailedError):
    """The driver's side of a run failed: workers could not be started, or made a group, or a callback raised.

    Parameters
    ----------
    controller_failure : Exception
        Why.
    """

    def __init__(self, controller_failure: Exception) -> None:
        super().__init__(str(controller_failure))
        self.controller_failure = controller_failure

    def __reduce__(self) -> Any:
        return type(self), (self.controller_failure,)


@dataclass
class PreemptionInfo:
    """Machines that are about to be taken away.

    Parameters
    ----------
    deadline_ms : int
        When, as milliseconds since 1970.
    preempted_node_to_ranks : dict of str to list of int
        The ranks on each of these machines.
    """

    deadline_ms: int
    preempted_node_to_ranks: dict[str, list[int]]

    @property
    def preempted_node_ids(self) -> list[str]:
        """The machines."""
        return list(self.preempted_node_to_ranks)

    @property
    def preempted_ranks(self) -> list[int]:
        """The ranks on them."""
        return sorted(rank for ranks in self.preempted_node_to_ranks.values() for rank in ranks)


class PreemptionError(TrainingFailedError):
    """Machines were taken away.

    Parameters
    ----------
    preemption_info : PreemptionInfo
        Which.
    drain_timed_out : bool
        Whether the workers on them had not come to an end in time.
    """

    def __init__(self, preemption_info: PreemptionInfo, drain_timed_out: bool = False) -> None:
        super().__init__(f"the machines {', '.join(preemption_info.preempted_node_ids)} of the ranks {preemption_info.preempted_ranks} were taken away"
                         + (" before the workers had come to an end" if drain_timed_out else ""))
        self.preemption_info = preemption_info
        self.drain_timed_out = drain_timed_out

    def __reduce__(self) -> Any:
        return type(self), (self.preemption_info, self.drain_timed_out)
