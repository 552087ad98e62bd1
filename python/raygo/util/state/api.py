"""Asking what tasks, actors, objects and processes there are."""
from __future__ import annotations

import codecs
import dataclasses
import fnmatch
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from raygo import _session
from raygo._calls import call
from raygo.util.state.common import (
    DEFAULT_LIMIT,
    DEFAULT_RPC_TIMEOUT,
    ActorState,
    ActorSummaries,
    ClusterEventState,
    GetApiOptions,
    JobState,
    ListApiOptions,
    NodeState,
    ObjectState,
    ObjectSummaries,
    PlacementGroupState,
    RuntimeEnvState,
    StateResource,
    StateSchema,
    SummaryApiOptions,
    SummaryResource,
    TaskState,
    TaskSummaries,
    WorkerState,
    dict_to_state,
    remove_ansi_escape_codes,
    resource_to_schema,
)
from raygo.util.state.exception import RayStateApiException, ServerUnavailable

_IDS = {StateResource.ACTORS: "actor_id", StateResource.PLACEMENT_GROUPS: "placement_group_id", StateResource.NODES: "node_id",
        StateResource.WORKERS: "worker_id", StateResource.TASKS: "task_id", StateResource.OBJECTS: "object_id",
        StateResource.JOBS: "job_id"}
_ENGINE = {StateResource.ACTORS, StateResource.JOBS, StateResource.PLACEMENT_GROUPS, StateResource.NODES, StateResource.WORKERS,
           StateResource.TASKS, StateResource.OBJECTS}


class StateApiClient:
    """Asks the session that this process belongs to.

    Parameters
    ----------
    address : str, optional
        Of another session: not there yet.
    """

    def __init__(self, address: str | None = None, cookies: Any = None, headers: Any = None) -> None:
        if address not in (None, "auto", "local"):
            if _session.current is None or address not in (_session.current.socket, _session.current.node_ip):
                raise NotImplementedError(f"StateApiClient(address={address!r}): raygo answers for the session that this process belongs to. "
                                          "Leave address out.")
        if _session.current is None:
            raise ServerUnavailable()
        self._cookies, self._headers = cookies, headers

    def get_address(self) -> str:
        """The session's socket."""
        return _session.get().socket

    def get_version(self) -> str:
        """raygo's version."""
        import raygo

        return str(raygo.__version__)

    def list(self, resource: StateResource, options: ListApiOptions, raise_on_missing_output: bool, _explain: bool = False) -> list[Any]:
        """The rows of what can be listed, as dataclasses."""
        resource = StateResource(resource)
        schema = resource_to_schema(resource)
        for key, _, _ in options.filters or []:
            if key not in schema.columns():
                raise ValueError(f"{resource.value} have no column {key!r} to filter by: {', '.join(sorted(schema.filterable_columns()))}")
        if resource not in _ENGINE:
            raise RayStateApiException(f"raygo keeps no list of {resource.value} yet")
        if options.has_conflicting_filters():
            warnings.warn("two filters ask for different values of one key: nothing can match", stacklevel=3)
            return []
        rows = call(f"state.{resource.value}", {"limit": options.limit, "filters": [list(f) for f in options.filters or []],
                                                "detail": options.detail}, options.timeout)
        rows = [row for row in rows or [] if _matches(row, options)]
        return [dict_to_state(row, resource) for row in rows[:options.limit]]

    def get(self, resource: StateResource, id: str, options: GetApiOptions | None, _explain: bool = False) -> Any:
        """One row by its id; a list of rows for objects; None when there is none."""
        resource = StateResource(resource)
        key = _IDS.get(resource)
        if key is None:
            raise RayStateApiException(f"{resource.value} are not told apart by an id")
        timeout = options.timeout if options else DEFAULT_RPC_TIMEOUT
        rows = self.list(resource, ListApiOptions(limit=100 if resource is StateResource.OBJECTS else 1, timeout=int(timeout), detail=True,
                                                  filters=[(key, "=", id)]), True)
        if resource is StateResource.OBJECTS:
            return rows
        return rows[0] if rows else None

    def summary(self, resource: SummaryResource, *, options: SummaryApiOptions, raise_on_missing_output: bool,
                _explain: bool = False) -> dict[str, Any]:
        """Counts, as a dict with one entry, "cluster"."""
        listed = StateResource(SummaryResource(resource).value)
        rows = [row.asdict() for row in self.list(listed, ListApiOptions(limit=10_000, timeout=options.timeout, detail=True,
                                                                         filters=options.filters), raise_on_missing_output)]
        found: Any
        if listed is StateResource.TASKS and options.summary_by == "lineage":
            actors = self.list(StateResource.ACTORS, ListApiOptions(limit=10_000, timeout=options.timeout), True)
            found = TaskSummaries.to_summary_by_lineage(tasks=rows, actors=[a.asdict() for a in actors])
        elif listed is StateResource.TASKS:
            found = TaskSummaries.to_summary_by_func_name(tasks=rows)
        elif listed is StateResource.ACTORS:
            found = ActorSummaries.to_summary(actors=rows)
        else:
            found = ObjectSummaries.to_summary(objects=rows)
        return {"cluster": dataclasses.asdict(found)}


def _matches(row: dict[str, Any], options: ListApiOptions) -> bool:
    """Filters compare as text, without regard to case, as the command line gives text."""
    for key, predicate, value in options.filters or []:
        same = str(row.get(key)).lower() == str(value).lower()
        if same != (predicate == "="):
            return False
    return True


def _list(resource: StateResource, address: str | None, filters: Any, limit: int, timeout: int, detail: bool, raise_on_missing_output: bool,
          _explain: bool) -> Any:
    return StateApiClient(address).list(resource, ListApiOptions(limit=limit, timeout=timeout, detail=detail, filters=filters),
                                        raise_on_missing_output, _explain)


def _get(resource: StateResource, id: str, address: str | None, timeout: int, _explain: bool) -> Any:
    return StateApiClient(address).get(resource, id, GetApiOptions(timeout=timeout), _explain)


def list_actors(address: str | None = None, filters: list[tuple[str, str, Any]] | None = None, limit: int = DEFAULT_LIMIT,
                timeout: int = DEFAULT_RPC_TIMEOUT, detail: bool = False, raise_on_missing_output: bool = True,
                _explain: bool = False) -> list[ActorState]:
    """The session's actors, dead ones too.

    Parameters
    ----------
    filters : list of (key, "=" or "!=", value), optional
        All must hold: ``[("state", "=", "ALIVE")]``.
    limit : int
        At most so many rows.
    timeout : int
        Seconds to wait for the answer.
    detail : bool
        Fill the columns that are costly to gather.
    """
    return _list(StateResource.ACTORS, address, filters, limit, timeout, detail, raise_on_missing_output, _explain)  # type: ignore[no-any-return]


def list_placement_groups(address: str | None = None, filters: list[tuple[str, str, Any]] | None = None, limit: int = DEFAULT_LIMIT,
                          timeout: int = DEFAULT_RPC_TIMEOUT, detail: bool = False, raise_on_missing_output: bool = True,
                          _explain: bool = False) -> list[PlacementGroupState]:
    """The session's placement groups; parameters as for `list_actors`."""
    return _list(StateResource.PLACEMENT_GROUPS, address, filters, limit, timeout, detail, raise_on_missing_output, _explain)  # type: ignore[no-any-return]


def list_nodes(address: str | None = None, filters: list[tuple[str, str, Any]] | None = None, limit: int = DEFAULT_LIMIT,
               timeout: int = DEFAULT_RPC_TIMEOUT, detail: bool = False, raise_on_missing_output: bool = True,
               _explain: bool = False) -> list[NodeState]:
    """The session's machines; parameters as for `list_actors`."""
    return _list(StateResource.NODES, address, filters, limit, timeout, detail, raise_on_missing_output, _explain)  # type: ignore[no-any-return]


def list_jobs(address: str | None = None, filters: list[tuple[str, str, Any]] | None = None, limit: int = DEFAULT_LIMIT,
              timeout: int = DEFAULT_RPC_TIMEOUT, detail: bool = False, raise_on_missing_output: bool = True,
              _explain: bool = False) -> list[JobState]:
    """The session's jobs; parameters as for `list_actors`."""
    return _list(StateResource.JOBS, address, filters, limit, timeout, detail, raise_on_missing_output, _explain)  # type: ignore[no-any-return]


def list_workers(address: str | None = None, filters: list[tuple[str, str, Any]] | None = None, limit: int = DEFAULT_LIMIT,
                 timeout: int = DEFAULT_RPC_TIMEOUT, detail: bool = False, raise_on_missing_output: bool = True,
                 _explain: bool = False) -> list[WorkerState]:
    """The session's processes; parameters as for `list_actors`."""
    return _list(StateResource.WORKERS, address, filters, limit, timeout, detail, raise_on_missing_output, _explain)  # type: ignore[no-any-return]


def list_tasks(address: str | None = None, filters: list[tuple[str, str, Any]] | None = None, limit: int = DEFAULT_LIMIT,
               timeout: int = DEFAULT_RPC_TIMEOUT, detail: bool = False, raise_on_missing_output: bool = True,
               _explain: bool = False) -> list[TaskState]:
    """The session's tasks and actor calls; parameters as for `list_actors`."""
    return _list(StateResource.TASKS, address, filters, limit, timeout, detail, raise_on_missing_output, _explain)  # type: ignore[no-any-return]


def list_objects(address: str | None = None, filters: list[tuple[str, str, Any]] | None = None, limit: int = DEFAULT_LIMIT,
                 timeout: int = DEFAULT_RPC_TIMEOUT, detail: bool = False, raise_on_missing_output: bool = True,
                 _explain: bool = False) -> list[ObjectState]:
    """The objects in the session's store; parameters as for `list_actors`."""
    return _list(StateResource.OBJECTS, address, filters, limit, timeout, detail, raise_on_missing_output, _explain)  # type: ignore[no-any-return]


def list_runtime_envs(address: str | None = None, filters: list[tuple[str, str, Any]] | None = None, limit: int = DEFAULT_LIMIT,
                      timeout: int = DEFAULT_RPC_TIMEOUT, detail: bool = False, raise_on_missing_output: bool = True,
                      _explain: bool = False) -> list[RuntimeEnvState]:
    """Not there yet: raygo keeps no list of runtime environments."""
    raise NotImplementedError("raygo.util.state.list_runtime_envs: raygo keeps no list of runtime environments yet")


def list_cluster_events(address: str | None = None, filters: list[tuple[str, str, Any]] | None = None, limit: int = DEFAULT_LIMIT,
                        timeout: int = DEFAULT_RPC_TIMEOUT, detail: bool = False, raise_on_missing_output: bool = True,
                        _explain: bool = False) -> list[ClusterEventState]:
    """Not there yet: raygo keeps no list of events."""
    raise NotImplementedError("raygo.util.state.list_cluster_events: raygo keeps no list of events yet")


list_runtime_envs.__raygo_stub__ = True  # type: ignore[attr-defined]
list_cluster_events.__raygo_stub__ = True  # type: ignore[attr-defined]


def get_actor(id: str, address: str | None = None, timeout: int = DEFAULT_RPC_TIMEOUT, _explain: bool = False) -> ActorState | None:
    """The actor with that id in hex; None when there is none."""
    return _get(StateResource.ACTORS, id, address, timeout, _explain)  # type: ignore[no-any-return]


def get_job(id: str, address: str | None = None, timeout: int = DEFAULT_RPC_TIMEOUT, _explain: bool = False) -> JobState | None:
    """The job with that id in hex; None when there is none."""
    return _get(StateResource.JOBS, id, address, timeout, _explain)  # type: ignore[no-any-return]


def get_placement_group(id: str, address: str | None = None, timeout: int = DEFAULT_RPC_TIMEOUT,
                        _explain: bool = False) -> PlacementGroupState | None:
    """The placement group with that id in hex; None when there is none."""
    return _get(StateResource.PLACEMENT_GROUPS, id, address, timeout, _explain)  # type: ignore[no-any-return]


def get_node(id: str, address: str | None = None, timeout: int = DEFAULT_RPC_TIMEOUT, _explain: bool = False) -> NodeState | None:
    """The machine with that id in hex; None when there is none."""
    return _get(StateResource.NODES, id, address, timeout, _explain)  # type: ignore[no-any-return]


def get_worker(id: str, address: str | None = None, timeout: int = DEFAULT_RPC_TIMEOUT, _explain: bool = False) -> WorkerState | None:
    """The process with that id in hex; None when there is none."""
    return _get(StateResource.WORKERS, id, address, timeout, _explain)  # type: ignore[no-any-return]


def get_task(id: Any, address: str | None = None, timeout: int = DEFAULT_RPC_TIMEOUT, _explain: bool = False) -> TaskState | None:
    """The task with that id, or of that reference; None when there is none."""
    text = id.task_id().hex() if hasattr(id, "task_id") else str(id)
    return _get(StateResource.TASKS, text, address, timeout, _explain)  # type: ignore[no-any-return]


def get_objects(id: str, address: str | None = None, timeout: int = DEFAULT_RPC_TIMEOUT, _explain: bool = False) -> list[ObjectState]:
    """What is known of the object with that id in hex: one row for each process that holds it."""
    return _get(StateResource.OBJECTS, id, address, timeout, _explain)  # type: ignore[no-any-return]


def summarize_tasks(address: str | None = None, timeout: int = DEFAULT_RPC_TIMEOUT, raise_on_missing_output: bool = True,
                    _explain: bool = False) -> dict[str, Any]:
    """Tasks counted by function and state, under the key "cluster"."""
    return StateApiClient(address).summary(SummaryResource.TASKS, options=SummaryApiOptions(timeout=timeout),
                                           raise_on_missing_output=raise_on_missing_output, _explain=_explain)


def summarize_actors(address: str | None = None, timeout: int = DEFAULT_RPC_TIMEOUT, raise_on_missing_output: bool = True,
                     _explain: bool = False) -> dict[str, Any]:
    """Actors counted by class and state, under the key "cluster"."""
    return StateApiClient(address).summary(SummaryResource.ACTORS, options=SummaryApiOptions(timeout=timeout),
                                           raise_on_missing_output=raise_on_missing_output, _explain=_explain)


def summarize_objects(address: str | None = None, timeout: int = DEFAULT_RPC_TIMEOUT, raise_on_missing_output: bool = True,
                      _explain: bool = False) -> dict[str, Any]:
    """Objects counted by the place of the code that made them, under the key "cluster"."""
    return StateApiClient(address).summary(SummaryResource.OBJECTS, options=SummaryApiOptions(timeout=timeout),
                                           raise_on_missing_output=raise_on_missing_output, _explain=_explain)


def object_store_statistics(timeout: float | None = DEFAULT_RPC_TIMEOUT) -> dict[str, Any]:
    """The object store's figures: ``capacity``, ``used``, ``pinned``, ``spilled`` and more, sizes in bytes.

    Not in Ray. The manual's page on memory says what each figure means; `raygo memory --stats` shows the same.

    Parameters
    ----------
    timeout : float, optional
        Seconds to wait for the answer.
    """
    if _session.current is None:
        raise ServerUnavailable()
    return call("store.stats", None, timeout)  # type: ignore[no-any-return]


def list_logs(address: str | None = None, node_id: str | None = None, node_ip: str | None = None, glob_filter: str | None = None,
              timeout: int = DEFAULT_RPC_TIMEOUT) -> dict[str, list[str]]:
    """The log files of this machine's part of the session, by kind."""
    folder = _log_folder(node_id, node_ip)
    names = sorted(n for n in os.listdir(folder) if fnmatch.fnmatch(n, glob_filter or "*"))
    found: dict[str, list[str]] = {}
    for name in names:
        kind = "worker_" + name.rpartition(".")[2] if name.startswith("worker") else "internal"
        found.setdefault(kind, []).append(name)
    return found


def get_log(address: str | None = None, node_id: str | None = None, node_ip: str | None = None, filename: str | None = None,
            actor_id: str | None = None, task_id: str | None = None, pid: int | None = None, follow: bool = False, tail: int = -1,
            timeout: int = DEFAULT_RPC_TIMEOUT, suffix: str = "out", encoding: str | None = "utf-8", errors: str | None = "strict",
            submission_id: str | None = None, attempt_number: int = 0, _interval: float | None = None,
            filter_ansi_code: bool = False) -> Iterator[Any]:
    """The text of a log file, in pieces.

    Parameters
    ----------
    filename, pid, actor_id, task_id
        Which log: by its name, or that of a process, of an actor's process, of the process that ran a task.
    tail : int
        Only the last so many lines; -1: all.
    follow : bool
        Go on as lines are written.
    suffix : {"out", "err"}
        Standard output or errors.
    """
    folder = _log_folder(node_id, node_ip)
    path = os.path.join(folder, filename or _log_of(folder, pid, actor_id, task_id, suffix))
    if not os.path.abspath(path).startswith(os.path.abspath(folder) + os.sep) or not os.path.isfile(path):
        raise FileNotFoundError(f"no log {filename or path} in {folder}: list_logs() says what there is")
    return _read_log(path, follow, tail, encoding, errors or "strict", filter_ansi_code)


def _log_folder(node_id: str | None, node_ip: str | None) -> str:
    here = _session.get()
    if node_id not in (None, here.node_id) or node_ip not in (None, here.node_ip):
        raise RayStateApiException(f"logs of other machines cannot be read yet: this is node {here.node_id} at {here.node_ip}")
    return os.path.join(here.session_dir, "logs")


def _log_of(folder: str, pid: int | None, actor_id: str | None, task_id: str | None, suffix: str) -> str:
    if actor_id is not None:
        actor = get_actor(actor_id)
        if actor is None or not actor.pid:
            raise RayStateApiException(f"actor {actor_id} is not known or has no process yet")
        pid = actor.pid
    elif task_id is not None:
        task = get_task(task_id)
        if task is None or not task.worker_pid:
            raise RayStateApiException(f"task {task_id} is not known or has not run yet")
        pid = task.worker_pid
    elif pid is None:
        raise ValueError("which log? Give filename, pid, actor_id or task_id")
    for name in sorted(os.listdir(folder)):
        stem, _, ending = name.rpartition(".")
        if ending == suffix and str(pid) in stem.replace("_", "-").split("-"):
            return name
    raise FileNotFoundError(f"process {pid} has no log *.{suffix} in {folder}")


def _read_log(path: str, follow: bool, tail: int, encoding: str | None, errors: str, plain: bool) -> Iterator[Any]:
    decoder = codecs.getincrementaldecoder(encoding)(errors) if encoding else None  # a piece may end within a character

    def text(data: bytes) -> Any:
        if decoder is None:
            return data
        decoded = decoder.decode(data)
        return remove_ansi_escape_codes(decoded) if plain else decoded

    with open(path, "rb") as file, _Growth(path if follow else None) as growth:
        if tail >= 0:
            lines = file.readlines()
            yield text(b"".join(lines[len(lines) - min(tail, len(lines)):]))
        while True:
            data = file.read(1 << 16)
            if data:
                yield text(data)
            elif not growth.wait():
                return


class _Growth:
    """Waits until a file is written to, by inotify."""

    def __init__(self, path: str | None) -> None:
        self._fd = -1
        if path is None:
            return
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_CLOEXEC)
        if self._fd < 0 or libc.inotify_add_watch(self._fd, os.fsencode(path), 2) < 0:  # IN_MODIFY
            raise OSError(ctypes.get_errno(), f"{path} cannot be followed: {os.strerror(ctypes.get_errno())}")

    def wait(self) -> bool:
        """False where nothing is followed."""
        return self._fd >= 0 and bool(os.read(self._fd, 4096))

    def __enter__(self) -> _Growth:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)


@contextmanager
def warnings_on_slow_request(*, address: str, endpoint: str, timeout: float, explain: bool) -> Iterator[None]:
    """Warn, with `explain`, when what runs inside takes more than half of its time."""
    begin = time.monotonic()
    try:
        yield
    finally:
        took = time.monotonic() - begin
        if explain and took > timeout / 2:
            warnings.warn(f"({took:.1f} / {timeout} s) {endpoint} of {address} was slow to answer", stacklevel=2)


__all__ = [name for name in globals() if name.startswith(("list_", "get_", "summarize_"))] + ["StateApiClient", "StateSchema", "object_store_statistics",
                                                                                             "warnings_on_slow_request"]
