"""``global_worker`` and the mode constants, as libraries know them."""

from __future__ import annotations

from typing import Any

from raygo import _binding, _session
from raygo._api import cancel, get, get_actor, get_gpu_ids, kill, put, remote, wait
from raygo._ids import ActorID, JobID, NodeID, TaskID, WorkerID
from raygo._init import init, is_initialized, shutdown

SCRIPT_MODE, WORKER_MODE, LOCAL_MODE, SPILL_WORKER_MODE, RESTORE_WORKER_MODE = 0, 1, 2, 3, 4

__all__ = [
    "LOCAL_MODE",
    "RESTORE_WORKER_MODE",
    "SCRIPT_MODE",
    "SPILL_WORKER_MODE",
    "WORKER_MODE",
    "Worker",
    "cancel",
    "get",
    "get_actor",
    "get_gpu_ids",
    "global_worker",
    "init",
    "is_initialized",
    "kill",
    "put",
    "remote",
    "shutdown",
    "wait",
]


class Worker:
    """This process, as a member of the session."""

    @property
    def mode(self) -> int | None:
        """SCRIPT_MODE in a driver, WORKER_MODE in a worker, None without a session."""
        if not _binding.connected():
            return None
        return WORKER_MODE if _binding.is_worker() else SCRIPT_MODE

    @property
    def connected(self) -> bool:
        """Whether there is a session."""
        return _binding.connected()

    def check_connected(self) -> None:
        """Raise unless there is a session."""
        if not _binding.connected():
            raise _session.not_initialized()

    @property
    def node_ip_address(self) -> str:
        """The node's address."""
        return _session.get().node_ip

    @property
    def current_job_id(self) -> JobID:
        """The job."""
        return JobID.from_int(_session.get().job)

    @property
    def current_node_id(self) -> NodeID:
        """The node."""
        return NodeID.from_hex(_session.get().node_id)

    @property
    def current_task_id(self) -> TaskID:
        """The running task."""
        return TaskID._of_number(_binding.current_task())

    @property
    def worker_id(self) -> bytes:
        """The process."""
        return _session.get().worker_id

    @property
    def actor_id(self) -> ActorID:
        """The actor whose method runs, or nil."""
        from raygo import runtime_context

        number = runtime_context.task_info().get("actor")
        return ActorID._of_number(number) if number else ActorID.nil()

    @property
    def namespace(self) -> str:
        """The namespace of this job's named actors."""
        return _session.get().namespace

    @property
    def runtime_env(self) -> str:
        """The job's runtime environment as JSON."""
        return _session.get().runtime_env or "{}"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"raygo's global_worker has no attribute {name!r}", name=name, obj=self)


global_worker = Worker()
_ = WorkerID
