"""The options of the state API, and the names that go with its rows and summaries."""
from __future__ import annotations

import dataclasses
import enum
import re
from dataclasses import dataclass, field, fields
from typing import Any

from raygo.util.state._rows import (
    ActorState,
    ClusterEventState,
    Humanify,
    JobState,
    NodeState,
    ObjectState,
    PlacementGroupState,
    RuntimeEnvState,
    StateSchema,
    TaskState,
    WorkerState,
    state_column,
)
from raygo.util.state._summaries import (
    ActorSummaries,
    ActorSummaryPerClass,
    Link,
    NestedTaskSummary,
    ObjectSummaries,
    ObjectSummaryPerKey,
    StateSummary,
    TaskSummaries,
    TaskSummaryPerFuncOrClassName,
)

__all__ = [
    "AVAILABLE_STATES", "ActorState", "ActorSummaries", "ActorSummaryPerClass", "ClusterEventState", "DEFAULT_DOWNLOAD_FILENAME",
    "DEFAULT_LIMIT", "DEFAULT_LOG_LIMIT", "DEFAULT_RPC_TIMEOUT", "DRIVER_TASK_ID_PREFIX", "GetApiOptions", "GetLogOptions", "Humanify",
    "JobState", "Link", "ListApiOptions", "ListApiResponse", "NestedTaskSummary", "NodeState", "ObjectState", "ObjectSummaries",
    "ObjectSummaryPerKey", "PlacementGroupState", "RAY_MAX_LIMIT_FROM_API_SERVER", "RAY_MAX_LIMIT_FROM_DATA_SOURCE", "RuntimeEnvState",
    "StateResource", "StateSchema", "StateSummary", "SummaryApiOptions", "SummaryApiResponse", "SummaryResource", "TaskState",
    "TaskSummaries", "TaskSummaryPerFuncOrClassName", "WorkerState", "dict_to_state", "filter_fields", "remove_ansi_escape_codes",
    "resource_to_schema", "state_column",
]

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
