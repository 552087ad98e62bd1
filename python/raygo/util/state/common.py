"""The rows and options of the state API.

Rows are dataclasses; a column says with `state_column` whether it can be filtered by and whether it is shown without ``detail``.
"""
from __future__ import annotations

import dataclasses
import datetime
import enum
import re
from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

DEFAULT_RPC_TIMEOUT = 30
DEFAULT_LIMIT = 100
DEFAULT_LOG_LIMIT = 1000
DEFAULT_DOWNLOAD_FILENAME = "file.txt"
RAY_MAX_LIMIT_FROM_API_SERVER = 10_000
RAY_MAX_LIMIT_FROM_DATA_SOURCE = 10_000
DRIVER_TASK_ID_PREFIX = "ffffffffffffffffffffffffffffffffffffffff"
AVAILABLE_STATES = {
    "ActorState": ("DEPENDENCIES_UNREADY", "PENDING_CREATION", "ALIVE", "RESTARTING", "DEAD"),
    "TaskState": ("NIL", "PENDING_ARGS_AVAIL", "PENDING_NODE_ASSIGNMENT", "SUBMITTED_TO_WORKER", "RUNNING", "FINISHED", "FAILED"),
    "PlacementGroupState": ("PENDING", "CREATED", "REMOVED", "RESCHEDULING"),
    "NodeState": ("ALIVE", "DEAD"),
}
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

SupportedFilterType = Any
PredicateType = str


class StateResource(str, enum.Enum):
    """What can be listed."""

    ACTORS = "actors"
    JOBS = "jobs"
    PLACEMENT_GROUPS = "placement_groups"
    NODES = "nodes"
    WORKERS = "workers"
    TASKS = "tasks"
    OBJECTS = "objects"
    RUNTIME_ENVS = "runtime_envs"
    CLUSTER_EVENTS = "cluster_events"


class SummaryResource(str, enum.Enum):
    """What can be summed up."""

    ACTORS = "actors"
    TASKS = "tasks"
    OBJECTS = "objects"


def _check_filters(filters: Any) -> list[tuple[str, str, Any]]:
    checked = []
    for given in filters or []:
        if not isinstance(given, (tuple, list)) or len(given) != 3:
            raise ValueError(f'The given filter {given!r} is invalid: a filter is (key, "=" or "!=", value)')
        key, predicate, value = given
        if predicate not in ("=", "!="):
            raise ValueError(f'The given filter {given!r} has the predicate {predicate!r}: "=" and "!=" are there')
        checked.append((str(key), predicate, value))
    return checked


@dataclass
class ListApiOptions:
    """Options of the list_* functions."""

    limit: int = DEFAULT_LIMIT
    timeout: int = DEFAULT_RPC_TIMEOUT
    detail: bool = False
    filters: list[tuple[str, str, Any]] | None = field(default_factory=list)
    exclude_driver: bool = True
    server_timeout_multiplier: float = 0.8

    def __post_init__(self) -> None:
        self.filters = _check_filters(self.filters)
        if self.limit < 0:
            raise ValueError(f"limit is {self.limit}: give a number that is not negative")
        if self.limit > RAY_MAX_LIMIT_FROM_API_SERVER:
            raise ValueError(f"Given limit {self.limit} exceeds the supported limit {RAY_MAX_LIMIT_FROM_API_SERVER}. Use a lower limit and filters.")

    def has_conflicting_filters(self) -> bool:
        """Whether two filters ask for different values of one key, so that nothing can match."""
        wanted: dict[str, str] = {}
        for key, predicate, value in self.filters or []:
            if predicate == "=" and wanted.setdefault(key, str(value).lower()) != str(value).lower():
                return True
        return False


@dataclass
class GetApiOptions:
    """Options of the get_* functions."""

    timeout: int = DEFAULT_RPC_TIMEOUT
    server_timeout_multiplier: float = 0.8


@dataclass
class SummaryApiOptions:
    """Options of the summarize_* functions."""

    timeout: int = DEFAULT_RPC_TIMEOUT
    filters: list[tuple[str, str, Any]] | None = field(default_factory=list)
    summary_by: str | None = None


@dataclass
class GetLogOptions:
    """Which log, and how much of it."""

    timeout: int
    node_id: str | None = None
    node_ip: str | None = None
    media_type: str = "file"
    filename: str | None = None
    download_filename: str = DEFAULT_DOWNLOAD_FILENAME
    actor_id: str | None = None
    task_id: str | None = None
    attempt_number: int = 0
    pid: int | None = None
    lines: int = DEFAULT_LOG_LIMIT
    interval: float | None = None
    suffix: str = "out"
    submission_id: str | None = None

    def __post_init__(self) -> None:
        if self.media_type not in ("file", "stream"):
            raise ValueError(f"media_type is 'file' or 'stream', not {self.media_type!r}")
        if self.suffix not in ("out", "err"):
            raise ValueError(f"suffix is 'out' or 'err', not {self.suffix!r}")
        if not any((self.filename, self.actor_id, self.task_id, self.pid, self.submission_id)):
            raise ValueError("which log? Give filename, actor_id, task_id, pid or submission_id")


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


_ROWS: dict[StateResource, type[StateSchema]] = {
    StateResource.ACTORS: ActorState, StateResource.JOBS: JobState, StateResource.PLACEMENT_GROUPS: PlacementGroupState,
    StateResource.NODES: NodeState, StateResource.WORKERS: WorkerState, StateResource.TASKS: TaskState,
    StateResource.OBJECTS: ObjectState, StateResource.RUNTIME_ENVS: RuntimeEnvState, StateResource.CLUSTER_EVENTS: ClusterEventState,
}


def resource_to_schema(resource: StateResource) -> type[StateSchema]:
    """The row of what can be listed."""
    try:
        return _ROWS[StateResource(resource)]
    except ValueError:
        raise ValueError(f"{resource!r} cannot be listed: one of {', '.join(r.value for r in StateResource)}") from None


def filter_fields(data: dict[str, Any], state_dataclass: type[StateSchema], detail: bool) -> dict[str, Any]:
    """The columns of a row that are shown; those that the engine did not give are None."""
    return {name: data.get(name) for name in state_dataclass.list_columns(detail=detail)}


def dict_to_state(d: dict[str, Any], state_resource: StateResource) -> StateSchema:
    """A row from what the engine says."""
    cls = resource_to_schema(state_resource)
    known = {f.name: f for f in fields(cls)}
    given = {name: d.get(name) for name, f in known.items() if name in d or f.default is dataclasses.MISSING}
    return cls(**given)


def remove_ansi_escape_codes(text: str) -> str:
    """Text without colours and cursor movements."""
    return _ANSI.sub("", text)


@dataclass
class ListApiResponse:
    """What a list call found."""

    total: int
    num_after_truncation: int
    num_filtered: int
    result: list[Any]
    partial_failure_warning: str | None = ""
    warnings: list[str] | None = None


@dataclass
class SummaryApiResponse:
    """What a summary call found."""

    total: int
    num_after_truncation: int
    num_filtered: int
    result: Any = None
    partial_failure_warning: str | None = ""
    warnings: list[str] | None = None


@dataclass
class Link:
    """Points from a summary to a task or actor."""

    type: str
    id: str


@dataclass(init=True)
class NestedTaskSummary:
    """A task and those that it started, counted by state."""

    name: str
    key: str
    type: str
    timestamp: int | None = None
    state_counts: dict[str, int] = field(default_factory=dict)
    children: list[NestedTaskSummary] = field(default_factory=list)
    link: Link | None = None


@dataclass(init=True)
class TaskSummaryPerFuncOrClassName:
    """The tasks of one function, counted by state."""

    func_or_class_name: str
    type: str
    state_counts: dict[str, int] = field(default_factory=dict)


@dataclass
class TaskSummaries:
    """All tasks, counted."""

    summary: dict[str, TaskSummaryPerFuncOrClassName] | list[NestedTaskSummary]
    total_tasks: int
    total_actor_tasks: int
    total_actor_scheduled: int
    summary_by: str = "func_name"

    @classmethod
    def to_summary_by_func_name(cls, *, tasks: list[dict[str, Any]]) -> TaskSummaries:
        """Counted by function."""
        summary: dict[str, TaskSummaryPerFuncOrClassName] = {}
        kinds = {"NORMAL_TASK": 0, "ACTOR_TASK": 0, "ACTOR_CREATION_TASK": 0}
        for task in tasks:
            key = task.get("func_or_class_name") or task.get("name") or ""
            entry = summary.setdefault(key, TaskSummaryPerFuncOrClassName(key, task.get("type") or "NORMAL_TASK"))
            state = task.get("state") or "NIL"
            entry.state_counts[state] = entry.state_counts.get(state, 0) + 1
            kinds[entry.type] = kinds.get(entry.type, 0) + 1
        return cls(dict(sorted(summary.items())), kinds["NORMAL_TASK"], kinds["ACTOR_TASK"], kinds["ACTOR_CREATION_TASK"])

    @classmethod
    def to_summary_by_lineage(cls, *, tasks: list[dict[str, Any]], actors: list[dict[str, Any]]) -> TaskSummaries:
        """As a tree: each task under the one that started it."""
        counted = cls.to_summary_by_func_name(tasks=tasks)
        nodes = {t["task_id"]: NestedTaskSummary(t.get("name") or "", t["task_id"], t.get("type") or "NORMAL_TASK", t.get("creation_time_ms"),
                                                 {t.get("state") or "NIL": 1}, [], Link("task", t["task_id"])) for t in tasks}
        names = {a["actor_id"]: a.get("class_name") or "" for a in actors}
        roots: list[NestedTaskSummary] = []
        for task in tasks:
            node = nodes[task["task_id"]]
            if task.get("actor_id") in names and not node.name:
                node.name = names[task["actor_id"]]
            parent = nodes.get(task.get("parent_task_id") or "")
            (parent.children if parent is not None and parent is not node else roots).append(node)
        return cls(roots, counted.total_tasks, counted.total_actor_tasks, counted.total_actor_scheduled, "lineage")


@dataclass(init=True)
class ActorSummaryPerClass:
    """The actors of one class, counted by state."""

    class_name: str
    state_counts: dict[str, int] = field(default_factory=dict)


@dataclass
class ActorSummaries:
    """All actors, counted."""

    summary: dict[str, ActorSummaryPerClass]
    total_actors: int
    summary_by: str = "class"

    @classmethod
    def to_summary(cls, *, actors: list[dict[str, Any]]) -> ActorSummaries:
        """Counted by class."""
        summary: dict[str, ActorSummaryPerClass] = {}
        for actor in actors:
            entry = summary.setdefault(actor["class_name"], ActorSummaryPerClass(actor["class_name"]))
            entry.state_counts[actor["state"]] = entry.state_counts.get(actor["state"], 0) + 1
        return cls(summary, len(actors))


@dataclass(init=True)
class ObjectSummaryPerKey:
    """The objects made at one place of the code."""

    total_objects: int
    total_size_mb: float
    total_num_workers: int
    total_num_nodes: int
    task_state_counts: dict[str, int] = field(default_factory=dict)
    task_attempt_number_counts: dict[str, int] = field(default_factory=dict)
    ref_type_counts: dict[str, int] = field(default_factory=dict)


@dataclass
class ObjectSummaries:
    """All objects, counted."""

    summary: dict[str, ObjectSummaryPerKey]
    total_objects: int
    total_size_mb: float
    callsite_enabled: bool
    summary_by: str = "callsite"

    _MB: ClassVar[int] = 1024 * 1024

    @classmethod
    def to_summary(cls, *, objects: list[dict[str, Any]]) -> ObjectSummaries:
        """Counted by the place of the code that made them."""
        summary: dict[str, ObjectSummaryPerKey] = {}
        workers: dict[str, set[Any]] = {}
        nodes: dict[str, set[Any]] = {}
        total = 0.0
        for row in objects:
            key = row.get("call_site") or "disabled"
            entry = summary.setdefault(key, ObjectSummaryPerKey(0, 0.0, 0, 0))
            size = max(0, row.get("object_size") or 0) / cls._MB
            total += size
            entry.total_objects += 1
            entry.total_size_mb += size
            for counts, column in ((entry.task_state_counts, "task_status"), (entry.task_attempt_number_counts, "attempt_number"),
                                   (entry.ref_type_counts, "reference_type")):
                value = str(row.get(column))
                counts[value] = counts.get(value, 0) + 1
            workers.setdefault(key, set()).add(row.get("pid"))
            nodes.setdefault(key, set()).add(row.get("ip"))
        for key, entry in summary.items():
            entry.total_num_workers, entry.total_num_nodes = len(workers[key]), len(nodes[key])
        return cls(summary, len(objects), total, any(k != "disabled" for k in summary))


@dataclass(init=True)
class StateSummary:
    """A summary for each node; one entry, "cluster", stands for all."""

    node_id_to_summary: dict[str, Any]
