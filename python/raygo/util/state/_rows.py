"""The rows of the state API.

Rows are dataclasses; a column says with `state_column` whether it can be filtered by and whether it is shown without ``detail``.
"""
from __future__ import annotations

import dataclasses
import datetime
from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any


class Humanify:
    """Numbers as people read them."""

    @staticmethod
    def timestamp(x: float) -> str | None:
        """Milliseconds since 1970 as a local time."""
        return str(datetime.datetime.fromtimestamp(x / 1000)) if x else None

    @staticmethod
    def memory(x: int) -> str:
        """Bytes with a unit."""
        size = float(x)
        for unit in ("B", "KiB", "MiB", "GiB"):
            if abs(size) < 1024:
                return f"{size:.0f} {unit}" if unit == "B" else f"{size:.3f} {unit}"
            size /= 1024
        return f"{size:.3f} TiB"

    @staticmethod
    def duration(x: int) -> str:
        """Milliseconds as hours, minutes and seconds."""
        return str(datetime.timedelta(milliseconds=x))

    @staticmethod
    def events(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Events with readable times."""
        return [{**e, "created_ms": Humanify.timestamp(e["created_ms"])} if e.get("created_ms") else e for e in events]

    @staticmethod
    def node_resources(resources: dict[str, Any]) -> dict[str, Any]:
        """Resources with readable amounts of memory."""
        return {k: Humanify.memory(int(v)) if "memory" in k else v for k, v in resources.items()}


def state_column(*, filterable: bool, detail: bool = False, format_fn: Callable[[Any], Any] | None = None, **kwargs: Any) -> Any:
    """A column of a row; further arguments go to `dataclasses.field`."""
    metadata = {"filterable": filterable, "detail": detail, "format_fn": format_fn, **kwargs.pop("metadata", {})}
    return field(metadata=metadata, **kwargs)


@dataclass(init=True)
class StateSchema(ABC):  # noqa: B024 - the common part of the rows, never made by itself
    """The common part of all rows; values are read as ``row.name`` or ``row["name"]``."""

    @classmethod
    def _select(cls, wanted: Callable[[Mapping[str, Any]], bool]) -> set[str]:
        return {f.name for f in fields(cls) if wanted(f.metadata)}

    @classmethod
    def columns(cls) -> set[str]:
        """All columns."""
        return cls._select(lambda m: True)

    @classmethod
    def base_columns(cls) -> set[str]:
        """The columns that are shown without detail."""
        return cls._select(lambda m: not m.get("detail"))

    @classmethod
    def detail_columns(cls) -> set[str]:
        """The columns that are shown with detail: all."""
        return cls.columns()

    @classmethod
    def filterable_columns(cls) -> set[str]:
        """The columns by which one may filter."""
        return cls._select(lambda m: bool(m.get("filterable")))

    @classmethod
    def list_columns(cls, detail: bool = True) -> list[str]:
        """The columns in order."""
        return [f.name for f in fields(cls) if detail or not f.metadata.get("detail")]

    @classmethod
    def humanify(cls, state: dict[str, Any]) -> dict[str, Any]:
        """A row as a dict, with values as people read them."""
        formats = {f.name: f.metadata["format_fn"] for f in fields(cls) if f.metadata.get("format_fn")}
        return {k: formats[k](v) if k in formats and v is not None else v for k, v in state.items()}

    def asdict(self) -> dict[str, Any]:
        """The row as a dict."""
        return dataclasses.asdict(self)

    def get(self, key: str, default: Any = None) -> Any:
        """A column's value."""
        return getattr(self, key, default)

    def __getitem__(self, key: str) -> Any:
        try:
            return getattr(self, key)
        except AttributeError:
            raise KeyError(f"{type(self).__name__} has no column {key!r}") from None


@dataclass(init=True)
class ActorState(StateSchema):
    """An actor."""

    actor_id: str = state_column(filterable=True)
    class_name: str = state_column(filterable=True)
    state: str = state_column(filterable=True)
    job_id: str = state_column(filterable=True)
    name: str | None = state_column(filterable=True)
    node_id: str | None = state_column(filterable=True)
    pid: int | None = state_column(filterable=True)
    ray_namespace: str | None = state_column(filterable=True)
    serialized_runtime_env: str | None = state_column(filterable=False, detail=True, default=None)
    required_resources: dict[str, Any] | None = state_column(filterable=False, detail=True, default=None)
    death_cause: dict[str, Any] | None = state_column(filterable=False, detail=True, default=None)
    is_detached: bool | None = state_column(filterable=False, detail=True, default=None)
    placement_group_id: str | None = state_column(filterable=True, detail=True, default=None)
    repr_name: str | None = state_column(filterable=True, detail=True, default=None)
    num_restarts: int | None = state_column(filterable=False, detail=True, default=None)
    num_restarts_due_to_lineage_reconstruction: int | None = state_column(filterable=False, detail=True, default=None)
    num_restarts_due_to_node_preemption: int | None = state_column(filterable=False, detail=True, default=None)
    call_site: str | None = state_column(filterable=False, detail=True, default=None)
    label_selector: dict[str, Any] | None = state_column(filterable=False, detail=True, default=None)
    fallback_strategy: list[Any] | None = state_column(filterable=False, detail=True, default=None)


@dataclass(init=True)
class PlacementGroupState(StateSchema):
    """A placement group."""

    placement_group_id: str = state_column(filterable=True)
    name: str = state_column(filterable=True)
    creator_job_id: str = state_column(filterable=True)
    state: str = state_column(filterable=True)
    bundles: list[dict[str, Any]] | None = state_column(filterable=False, detail=True, default=None)
    is_detached: bool | None = state_column(filterable=True, detail=True, default=None)
    stats: dict[str, Any] | None = state_column(filterable=False, detail=True, default=None)
    topology_strategy: Any = state_column(filterable=False, detail=True, default=None)
    topology_assignments: Any = state_column(filterable=False, detail=True, default=None)


@dataclass(init=True)
class NodeState(StateSchema):
    """A machine."""

    node_id: str = state_column(filterable=True)
    node_ip: str = state_column(filterable=True)
    is_head_node: bool = state_column(filterable=True)
    state: str = state_column(filterable=True)
    state_message: str | None = state_column(filterable=False)
    node_name: str = state_column(filterable=True)
    resources_total: dict[str, Any] = state_column(filterable=False, format_fn=Humanify.node_resources)
    labels: dict[str, Any] = state_column(filterable=False)
    start_time_ms: int | None = state_column(filterable=False, detail=True, format_fn=Humanify.timestamp, default=None)
    end_time_ms: int | None = state_column(filterable=False, detail=True, format_fn=Humanify.timestamp, default=None)


@dataclass(init=False)
class JobState(StateSchema):
    """A driver's job."""

    type: Any = state_column(filterable=False)
    status: Any = state_column(filterable=True)
    entrypoint: str = state_column(filterable=False)
    job_id: str | None = state_column(filterable=True, default=None)
    submission_id: str | None = state_column(filterable=True, default=None)
    driver_info: Any = state_column(filterable=False, detail=True, default=None)
    message: str | None = state_column(filterable=False, detail=True, default=None)
    error_type: str | None = state_column(filterable=False, detail=True, default=None)
    start_time: int | None = state_column(filterable=False, format_fn=Humanify.timestamp, default=None)
    end_time: int | None = state_column(filterable=False, format_fn=Humanify.timestamp, default=None)
    metadata: dict[str, str] | None = state_column(filterable=False, detail=True, default=None)
    runtime_env: dict[str, Any] | None = state_column(filterable=False, detail=True, default=None)
    driver_agent_http_address: str | None = state_column(filterable=False, detail=True, default=None)
    driver_node_id: str | None = state_column(filterable=False, detail=True, default=None)
    driver_exit_code: int | None = state_column(filterable=False, detail=True, default=None)

    def __init__(self, *, type: Any, job_id: str | None = None, submission_id: str | None = None, driver_info: Any = None, status: Any,
                 entrypoint: str, message: str | None = None, error_type: str | None = None, start_time: int | None = None,
                 end_time: int | None = None, metadata: dict[str, str] | None = None, runtime_env: dict[str, Any] | None = None,
                 driver_agent_http_address: str | None = None, driver_node_id: str | None = None,
                 driver_exit_code: int | None = None) -> None:
        given = dict(locals())
        for column in fields(JobState):
            setattr(self, column.name, given[column.name])

    @classmethod
    def schema_dict(cls) -> dict[str, Any]:
        """Column to the name of its type."""
        return {f.name: str(f.type) for f in fields(cls)}


@dataclass(init=True)
class WorkerState(StateSchema):
    """A process."""

    worker_id: str = state_column(filterable=True)
    is_alive: bool = state_column(filterable=True)
    worker_type: str = state_column(filterable=True)
    exit_type: str | None = state_column(filterable=True)
    node_id: str = state_column(filterable=True)
    ip: str = state_column(filterable=True)
    pid: int = state_column(filterable=True)
    exit_detail: str | None = state_column(filterable=False, detail=True, default=None)
    worker_launch_time_ms: int | None = state_column(filterable=False, detail=True, format_fn=Humanify.timestamp, default=None)
    worker_launched_time_ms: int | None = state_column(filterable=False, detail=True, format_fn=Humanify.timestamp, default=None)
    start_time_ms: int | None = state_column(filterable=False, detail=True, format_fn=Humanify.timestamp, default=None)
    end_time_ms: int | None = state_column(filterable=False, detail=True, format_fn=Humanify.timestamp, default=None)
    debugger_port: int | None = state_column(filterable=True, detail=True, default=None)
    num_paused_threads: int | None = state_column(filterable=True, detail=True, default=None)


@dataclass(init=True)
class ClusterEventState(StateSchema):
    """Something that happened."""

    severity: str = state_column(filterable=True)
    time: str = state_column(filterable=False)
    source_type: str = state_column(filterable=True)
    message: str = state_column(filterable=False)
    event_id: str = state_column(filterable=True)
    custom_fields: dict[str, Any] | None = state_column(filterable=False, detail=True, default=None)


@dataclass(init=True)
class TaskState(StateSchema):
    """A task or an actor's call."""

    task_id: str = state_column(filterable=True)
    attempt_number: int = state_column(filterable=True)
    name: str = state_column(filterable=True)
    state: str = state_column(filterable=True)
    job_id: str = state_column(filterable=True)
    actor_id: str | None = state_column(filterable=True)
    type: str = state_column(filterable=True)
    func_or_class_name: str = state_column(filterable=True)
    parent_task_id: str = state_column(filterable=True)
    node_id: str | None = state_column(filterable=True)
    worker_id: str | None = state_column(filterable=True)
    worker_pid: int | None = state_column(filterable=True)
    error_type: str | None = state_column(filterable=True)
    language: str | None = state_column(filterable=True, detail=True, default=None)
    required_resources: dict[str, Any] | None = state_column(filterable=False, detail=True, default=None)
    runtime_env_info: dict[str, Any] | None = state_column(filterable=False, detail=True, default=None)
    placement_group_id: str | None = state_column(filterable=True, detail=True, default=None)
    events: list[dict[str, Any]] | None = state_column(filterable=False, detail=True, format_fn=Humanify.events, default=None)
    profiling_data: dict[str, Any] | None = state_column(filterable=False, detail=True, default=None)
    creation_time_ms: int | None = state_column(filterable=False, detail=True, format_fn=Humanify.timestamp, default=None)
    start_time_ms: int | None = state_column(filterable=False, detail=True, format_fn=Humanify.timestamp, default=None)
    end_time_ms: int | None = state_column(filterable=False, detail=True, format_fn=Humanify.timestamp, default=None)
    task_log_info: dict[str, Any] | None = state_column(filterable=False, detail=True, default=None)
    error_message: str | None = state_column(filterable=False, detail=True, default=None)
    is_debugger_paused: bool | None = state_column(filterable=True, detail=True, default=None)
    call_site: str | None = state_column(filterable=False, detail=True, default=None)
    label_selector: dict[str, Any] | None = state_column(filterable=False, detail=True, default=None)
    fallback_strategy: list[Any] | None = state_column(filterable=False, detail=True, default=None)


@dataclass(init=True)
class ObjectState(StateSchema):
    """A reference to an object, as one process holds it."""

    object_id: str = state_column(filterable=True)
    object_size: int = state_column(filterable=True, format_fn=Humanify.memory)
    task_status: str | None = state_column(filterable=True)
    attempt_number: int = state_column(filterable=True)
    reference_type: str = state_column(filterable=True)
    call_site: str = state_column(filterable=True)
    type: str = state_column(filterable=True)
    pid: int = state_column(filterable=True)
    ip: str = state_column(filterable=True)


@dataclass(init=True)
class RuntimeEnvState(StateSchema):
    """A runtime environment."""

    runtime_env: dict[str, Any] = state_column(filterable=True)
    success: bool = state_column(filterable=True)
    creation_time_ms: float | None = state_column(filterable=False, format_fn=Humanify.timestamp)
    node_id: str = state_column(filterable=True)
    ref_cnt: int | None = state_column(filterable=False, detail=True, default=None)
    error: str | None = state_column(filterable=True, detail=True, default=None)
