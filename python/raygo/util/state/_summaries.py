"""Rows of the state API, counted."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar


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
