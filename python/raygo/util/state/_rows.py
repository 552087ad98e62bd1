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


def _detail(*, filterable: bool = False, format_fn: Callable[[Any], Any] | None = None) -> Any:
    """A column that is shown with ``detail`` only; None where the engine does not say."""
    return state_column(filterable=filterable, detail=True, format_fn=format_fn, default=None)


def _time() -> Any:
    """A column of milliseconds since 1970, shown with ``detail`` only."""
    return _detail(format_fn=Humanify.timestamp)


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
    serialized_runtime_env: str | None = _detail()
    required_resources: dict[str, Any] | None = _detail()
    death_cause: dict[str, Any] | None = _detail()
    is_detached: bool | None = _detail()
    placement_group_id: str | None = _detail(filterable=True)
    repr_name: str | None = _detail(filterable=True)
    num_restarts: int | None = _detail()
    num_restarts_due_to_lineage_reconstruction: int | None = _detail()
    num_restarts_due_to_node_preemption: int | None = _detail()
    call_site: str | None = _detail()
    label_selector: dict[str, Any] | None = _detail()
    fallback_strategy: list[Any] | None = _detail()


@dataclass(init=True)
class PlacementGroupState(StateSchema):
    """A placement group."""

    placement_group_id: str = state_column(filterable=True)
    name: str = state_column(filterable=True)
    creator_job_id: str = state_column(filterable=True)
    state: str = state_column(filterable=True)
    bundles: list[dict[str, Any]] | None = _detail()
    is_detached: bool | None = _detail(filterable=True)
    stats: dict[str, Any] | None = _detail()
    topology_strategy: Any = _detail()
    topology_assignments: Any = _detail()


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
    start_time_ms: int | None = _time()
    end_time_ms: int | None = _time()


@dataclass(kw_only=True)
class JobState(StateSchema):
    """A driver's job."""

    type: Any = state_column(filterable=False)
    status: Any = state_column(filterable=True)
    entrypoint: str = state_column(filterable=False)
    job_id: str | None = state_column(filterable=True, default=None)
    submission_id: str | None = state_column(filterable=True, default=None)
    driver_info: Any = _detail()
    message: str | None = _detail()
    error_type: str | None = _detail()
    start_time: int | None = state_column(filterable=False, format_fn=Humanify.timestamp, default=None)
    end_time: int | None = state_column(filterable=False, format_fn=Humanify.timestamp, default=None)
    metadata: dict[str, str] | None = _detail()
    runtime_env: dict[str, Any] | None = _detail()
    driver_agent_http_address: str | None = _detail()
    driver_node_id: str | None = _detail()
    driver_exit_code: int | None = _detail()

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
    exit_detail: str | None = _detail()
    worker_launch_time_ms: int | None = _time()
    worker_launched_time_ms: int | None = _time()
    start_time_ms: int | None = _time()
    end_time_ms: int | None = _time()
    debugger_port: int | None = _detail(filterable=True)
    num_paused_threads: int | None = _detail(filterable=True)


@dataclass(init=True)
class ClusterEventState(StateSchema):
    """Something that happened."""

    severity: str = state_column(filterable=True)
    time: str = state_column(filterable=False)
    source_type: str = state_column(filterable=True)
    message: str = state_column(filterable=False)
    event_id: str = state_column(filterable=True)
    custom_fields: dict[str, Any] | None = _detail()


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
    language: str | None = _detail(filterable=True)
    required_resources: dict[str, Any] | None = _detail()
    runtime_env_info: dict[str, Any] | None = _detail()
    placement_group_id: str | None = _detail(filterable=True)
    events: list[dict[str, Any]] | None = _detail(format_fn=Humanify.events)
    profiling_data: dict[str, Any] | None = _detail()
    creation_time_ms: int | None = _time()
    start_time_ms: int | None = _time()
    end_time_ms: int | None = _time()
    task_log_info: dict[str, Any] | None = _detail()
    error_message: str | None = _detail()
    is_debugger_paused: bool | None = _detail(filterable=True)
    call_site: str | None = _detail()
    label_selector: dict[str, Any] | None = _detail()
    fallback_strategy: list[Any] | None = _detail()


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
    ref_cnt: int | None = _detail()
    error: str | None = _detail(filterable=True)
