"""Where the running code stands: its job, node, worker, task and actor."""

from __future__ import annotations

import warnings
from typing import Any

from raygo import _binding, _session
from raygo._ids import ActorID, JobID, NodeID, PlacementGroupID, TaskID

__all__ = ["RuntimeContext", "get_runtime_context", "task_info"]


def _no_task() -> dict[str, Any]:
    return {}


#: What is known of the running task (PROTOCOL.md, "What Python puts into templates"); a worker puts its own function here.
task_info: Any = _no_task


class RuntimeContext:
    """Give ids in hexadecimal by the ``get_…`` methods; the properties of the same names give objects and are deprecated, as in Ray."""

    def __init__(self, worker: Any = None) -> None:
        self.worker = worker

    def get(self) -> dict[str, Any]:
        """Deprecated: job, node, namespace, and in a worker task and actor, as objects."""
        out: dict[str, Any] = {"job_id": self._job(), "node_id": self._node(), "namespace": self.namespace}
        if _binding.is_worker():
            for key, value in (("task_id", self._task()), ("actor_id", self._actor())):
                if value is not None:
                    out[key] = value
        return out

    # ---- objects

    def _job(self) -> JobID:
        return JobID.from_int(_session.get().job)

    def _node(self) -> NodeID:
        return NodeID.from_hex(_session.get().node_id)

    def _task(self) -> TaskID | None:
        number = _binding.current_task()
        return TaskID._of_number(number) if number else None

    def _actor(self) -> ActorID | None:
        number = task_info().get("actor")
        return ActorID._of_number(number) if number else None

    @property
    def job_id(self) -> JobID:
        """Deprecated: use `get_job_id`."""
        _deprecated("job_id", "get_job_id()")
        return self._job()

    @property
    def node_id(self) -> NodeID:
        """Deprecated: use `get_node_id`."""
        _deprecated("node_id", "get_node_id()")
        return self._node()

    @property
    def task_id(self) -> TaskID | None:
        """Deprecated: use `get_task_id`."""
        _deprecated("task_id", "get_task_id()")
        return self._task()

    @property
    def actor_id(self) -> ActorID | None:
        """Deprecated: use `get_actor_id`."""
        _deprecated("actor_id", "get_actor_id()")
        return self._actor()

    @property
    def current_placement_group_id(self) -> PlacementGroupID:
        """Deprecated: use `get_placement_group_id`."""
        _deprecated("current_placement_group_id", "get_placement_group_id()")
        number = task_info().get("pg")
        return PlacementGroupID._of_number(number) if number else PlacementGroupID.nil()

    # ---- the session

    @property
    def namespace(self) -> str:
        """The namespace of this job's named actors."""
        return _session.get().namespace

    @property
    def gcs_address(self) -> str:
        """Where other processes of this machine join: for `raygo.init`."""
        return f"unix:{_session.get().socket}"

    @property
    def runtime_env(self) -> Any:
        """The runtime environment that this code runs in."""
        from raygo.runtime_env import RuntimeEnv

        return RuntimeEnv.deserialize(self.get_runtime_env_string())

    def get_runtime_env_string(self) -> str:
        """`runtime_env` as JSON."""
        return task_info().get("runtime_env") or _session.get().runtime_env or "{}"

    def get_job_id(self) -> str:
        """The job: one driver's work."""
        return self._job().hex()

    def get_node_id(self) -> str:
        """The node this code runs on."""
        return _session.get().node_id

    def get_worker_id(self) -> str:
        """This process."""
        return _session.get().worker_id.hex()

    def get_session_name(self) -> str:
        """The last part of the session folder's path."""
        return _session.get().session_name

    def get_temp_dir(self) -> str:
        """The folder that the session's folder is in."""
        return _session.get().session_dir.rstrip("/").rpartition("/")[0]

    def get_node_labels(self) -> dict[str, str]:
        """The labels of this node."""
        from raygo._calls import call

        me = self.get_node_id()
        return next((dict(node.get("Labels") or {}) for node in call("nodes") if node.get("NodeID") == me), {})

    # ---- the task

    def get_task_id(self) -> str | None:
        """The running task; None in a driver."""
        task = self._task() if _binding.is_worker() else None
        return task.hex() if task else None

    def get_task_name(self) -> str | None:
        """Its name, as set by ``options(name=…)``; None in a driver."""
        return task_info().get("name")

    def get_task_function_name(self) -> str | None:
        """The function behind it, with its module; None in a driver."""
        return task_info().get("function")

    def is_canceled(self) -> bool:
        """Whether `raygo.cancel` was called for the running task: for a method of an actor to look at, as those are not interrupted.

        Raises
        ------
        RuntimeError
            No task runs here; or a call of an asynchronous actor, which is told by ``asyncio.CancelledError``.
        """
        info = task_info()
        if "canceled" not in info or info.get("is_async"):
            where = "an asynchronous actor, whose calls get an asyncio.CancelledError" if info.get("is_async") else "a driver"
            raise RuntimeError(f"is_canceled() is for tasks and for actors that are not asynchronous; this is {where}.")
        return bool(info["canceled"])

    def get_assigned_resources(self) -> dict[str, float]:
        """What the running task or actor holds."""
        if not _binding.is_worker():
            raise AssertionError("This method is only available when the process is a worker; a driver holds no resources.")
        return {name: float(amount) for name, amount in (task_info().get("resources") or {}).items()}

    def get_resource_ids(self) -> dict[str, list[str]]:
        """Deprecated: as `get_accelerator_ids`."""
        return self.get_accelerator_ids()

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        """The accelerators assigned to this code, by resource."""
        gpus = [str(gpu) for gpu in task_info().get("gpus") or []]
        return {"GPU": gpus, "neuron_cores": [], "TPU": [], "NPU": [], "HPU": [], "RBLN": []}

    def get_placement_group_id(self) -> str | None:
        """The placement group that the running task or actor is in."""
        number = task_info().get("pg")
        return PlacementGroupID._of_number(number).hex() if number else None

    @property
    def should_capture_child_tasks_in_placement_group(self) -> bool:
        """Whether tasks called from here go to the same placement group."""
        return bool(task_info().get("capture", not _binding.is_worker()))

    # ---- the actor

    def get_actor_id(self) -> str | None:
        """The actor whose method runs; None outside of actors."""
        actor = self._actor()
        return actor.hex() if actor else None

    def get_actor_name(self) -> str | None:
        """Its name, "" without one; None outside of actors."""
        info = task_info()
        return (info.get("actor_name") or "") if info.get("actor") else None

    @property
    def current_actor(self) -> Any:
        """A handle on the actor whose method runs.

        Raises
        ------
        RuntimeError
            No actor's method runs here.
        """
        from raygo._calls import call
        from raygo.actor import handle_of

        number = task_info().get("actor")
        if not number:
            raise RuntimeError("This method is only available in an actor.")
        return handle_of(call("actor.lookup", {"actor": number}))

    @property
    def was_current_actor_reconstructed(self) -> bool:
        """Whether this actor was restarted."""
        from raygo._calls import call

        actor = self.get_actor_id()
        if actor is None:
            raise AssertionError("This method should't be called inside Ray tasks: it is about the running actor.")
        rows = call("state.actors", {"limit": 1, "filters": [["actor_id", "=", actor]], "detail": True})
        return bool(rows and rows[0].get("num_restarts"))


def _deprecated(name: str, instead: str) -> None:
    warnings.warn(f"RuntimeContext.{name} is deprecated: use {instead}", DeprecationWarning, stacklevel=3)


_context = RuntimeContext()


def get_runtime_context() -> RuntimeContext:
    """Give the context of the code that calls.

    Examples
    --------
    >>> raygo.get_runtime_context().get_node_id()  # doctest: +SKIP
    """
    from raygo._init import ensure

    ensure()
    return _context
