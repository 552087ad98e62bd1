"""Turns answers into what a terminal shows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from raygo import _memory

# What `list` shows of each kind without --detail, in this order, as far as the engine says it.
COLUMNS = {
    "tasks": ("task_id", "name", "state", "type", "attempt_number", "worker_pid", "start_time_ms", "end_time_ms", "error_type"),
    "actors": ("actor_id", "class_name", "name", "state", "pid", "ray_namespace", "num_restarts", "death_cause"),
    "objects": ("object_id", "object_size", "reference_type", "task_status", "pid", "call_site"),
    "workers": ("worker_id", "pid", "is_alive", "worker_type", "idle", "exit_type", "exit_detail"),
    "nodes": ("node_id", "state", "node_ip", "node_name", "resources_total"),
    "jobs": ("job_id", "status", "entrypoint", "driver_pid", "start_time", "end_time"),
    "placement_groups": ("placement_group_id", "name", "state", "strategy", "bundles"),
}
STYLES = {
    **dict.fromkeys(("FINISHED", "ALIVE", "CREATED", "SUCCEEDED", "True"), "green"),
    **dict.fromkeys(("RUNNING", "PENDING_CREATION", "RESTARTING"), "cyan"),
    **dict.fromkeys(("FAILED", "DEAD", "INFEASIBLE"), "red"),
}


def console() -> Console:
    """Return a console that never cuts what a pipe reads: 200 columns where there is no terminal."""
    plain = Console()
    return plain if plain.is_terminal else Console(width=200, soft_wrap=True)


def cell(key: str, value: Any) -> Text:
    """Return one value as a table shows it."""
    if value is None or value == "" or (value == 0 and key.endswith(("pid", "_time", "_time_ms"))):
        return Text("-", style="dim")
    if key.endswith(("_time", "_time_ms")) and isinstance(value, (int, float)):
        return Text(time.strftime("%H:%M:%S", time.localtime(value / 1000)))
    if isinstance(value, float):
        return Text(f"{value:g}")
    if isinstance(value, int) and not isinstance(value, bool) and ("size" in key or "bytes" in key or "memory" in key):
        return Text(_memory.amount(value))
    if isinstance(value, bytes):
        return Text(value.hex())
    if isinstance(value, (dict, list)):
        return Text(json.dumps(plain(value)))
    text = str(value)
    return Text(text, style=STYLES.get(text, ""))


def plain(value: Any) -> Any:
    """Return a value that JSON can say: bytes become hex."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def table(rows: Sequence[Mapping[str, Any]], columns: Iterable[str], title: str = "") -> Table:
    """Return a table of those columns that at least one row has."""
    there = [column for column in columns if any(column in row for row in rows)]
    made = Table(title=title or None, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for column in there:
        made.add_column(column.removesuffix("_ms"), overflow="fold", no_wrap=column.endswith(("_id", "state", "type")))
    for row in rows:
        made.add_row(*(cell(column, row.get(column)) for column in there))
    return made


def amount(resource: str, value: float) -> str:
    """Return how much of a resource, memory in bytes' units."""
    return _memory.amount(value) if resource in ("memory", "object_store_memory") else f"{value:g}"


def store(stats: Mapping[str, Any]) -> str:
    """Return how full the object store is, in one line."""
    text = f"{_memory.amount(stats['used'])} / {_memory.amount(stats['capacity'])}"
    if stats["spilled"]:
        text += f", {_memory.amount(stats['spilled'])} spilled to disk"
    if stats["waiting"]:
        text += f", {stats['waiting']} requests wait for {_memory.amount(stats['waiting_bytes'])}"
    return text
