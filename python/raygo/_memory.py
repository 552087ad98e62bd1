"""Who keeps which object, as text: what ``raygo memory`` and `memory_summary` show.

Made from rows of ``state.objects`` and the map of ``store.stats`` (engine/wire/PROTOCOL.md), with Ray's words and groups.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

GROUPS = {"NODE_ADDRESS": "ip", "STACK_TRACE": "call_site"}
SORTS: dict[str, Callable[[Row], Any]] = {
    "PID": lambda row: row["pid"],
    "OBJECT_SIZE": lambda row: -row["object_size"],
    "REFERENCE_TYPE": lambda row: row["reference_type"],
}
UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
# The reasons that have a column of their own in a group's summary.
REASONS = {
    "LOCAL_REFERENCE": "Local References",
    "PINNED_IN_MEMORY": "Pinned",
    "USED_BY_PENDING_TASK": "Used by task",
    "CAPTURED_IN_OBJECT": "Captured in Objects",
    "ACTOR_HANDLE": "Actor Handles",
}
NO_SITES = "disabled"
_WIDTH = 56  # of a cell; an object's id just fits


def amount(n: float, unit: str | None = None) -> str:
    """Return bytes in a unit of Ray's, or without one in that which people read best.

    >>> amount(1536), amount(1536, "KB"), amount(3 << 30, "MB"), amount(-1)
    ('1.5 KiB', '1.500 KB', '3072.000 MB', '?')
    """
    if n < 0:
        return "?"
    if unit is not None:
        return f"{n:.0f} B" if unit == "B" else f"{n / UNITS[unit]:.3f} {unit}"
    for name in ("B", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{n:.0f} B" if name == "B" else f"{n:.1f} {name}"
        n /= 1024
    return f"{n:.1f} TiB"


def totals(rows: Iterable[Row]) -> dict[str, Any]:
    """Return how many objects and bytes there are, each object once, and how many references of each kind."""
    sizes: dict[str, int] = {}
    kinds: dict[str, dict[str, int]] = {}
    for row in rows:
        size = max(row["object_size"], 0)
        sizes[row["object_id"]] = size
        kind = kinds.setdefault(row["reference_type"], {"count": 0, "bytes": 0})
        kind["count"] += 1
        kind["bytes"] += size
    return {"objects": len(sizes), "bytes": sum(sizes.values()), "references": kinds}


def cut_text(rows: Sequence[Row], found: Mapping[str, Any], units: str | None = None) -> str:
    """Return what to say of references that are not among `rows`; empty if all are. `found` is the engine's ``objects.totals``."""
    references = sum(kind["count"] for kind in found["references"].values())
    if len(rows) >= references:
        return ""
    return (
        f"Only the {len(rows)} largest of {references} references are listed and summed up above. "
        f"In all there are {found['objects']} objects of {amount(found['bytes'], units)}."
    )


def references_text(
    rows: Sequence[Row],
    group_by: str = "NODE_ADDRESS",
    sort_by: str = "OBJECT_SIZE",
    units: str | None = None,
    formatted: bool = True,
    num_entries: int | None = None,
) -> str:
    """Return the references by group: a summary of each, then its rows.

    Parameters
    ----------
    rows
        Of ``state.objects``.
    group_by
        ``"NODE_ADDRESS"`` or ``"STACK_TRACE"`` (the place in the program that made the reference).
    sort_by
        ``"OBJECT_SIZE"`` (the largest first), ``"PID"`` or ``"REFERENCE_TYPE"``.
    units
        ``"B"``, ``"KB"``, ``"MB"`` or ``"GB"``; None: each size in the unit that suits it.
    formatted
        Whether columns are padded; if not, a tab stands between them, for other programs.
    num_entries
        At most so many rows of each group.
    """
    groups: dict[str, list[Row]] = {}
    for row in sorted(rows, key=SORTS[sort_by]):
        groups.setdefault(row[GROUPS[group_by]], []).append(row)
    title = "node address" if group_by == "NODE_ADDRESS" else "stack trace"
    entries = "all" if num_entries is None else f"at most {num_entries}"
    parts = [
        f"======== Object references status: {time.strftime('%Y-%m-%d %H:%M:%S')} ========\n"
        f"Grouping by {title}, sorting by {sort_by.lower().replace('_', ' ')}, {entries} entries per group."
    ]
    if not groups:
        parts.append("No objects.")
    for name, members in sorted(groups.items(), key=lambda group: -totals(group[1])["bytes"]):
        parts.append(f"--- Summary for {title}: {name} ---\n{_summary(members, units, formatted)}")
        shown = members if num_entries is None else members[:num_entries]
        text = f"--- Object references for {title}: {name} ---\n{_references(shown, units, formatted)}"
        if len(shown) < len(members):
            text += f"\n… and {len(members) - len(shown)} more"
        parts.append(text)
    if rows and all(row["call_site"] == NO_SITES for row in rows):
        parts.append("To see where references were made, start the driver with RAY_record_ref_creation_sites=1 in its environment.")
    return "\n\n".join(parts)


def _summary(rows: Sequence[Row], units: str | None, formatted: bool) -> str:
    found = totals(rows)
    kinds = {**dict.fromkeys(REASONS), **found["references"]}
    cells = [f"{found['objects']}, ({amount(found['bytes'], units)})"]
    cells += [f"{kind['count']}, ({amount(kind['bytes'], units)})" if kind else "0" for kind in kinds.values()]
    return table(["Objects", *(REASONS.get(kind, kind) for kind in kinds)], [cells], formatted)


def _references(rows: Sequence[Row], units: str | None, formatted: bool) -> str:
    head = ["PID", "Type", "Created by", "Where", "Age", "Status", "Size", "Reference Type", "Object Ref"]
    sites = any(row["call_site"] != NO_SITES for row in rows)
    if sites:
        head.insert(-1, "Call Site")
    lines = []
    for row in rows:
        age = "-" if row["age_s"] is None else f"{row['age_s']:.1f} s"
        status = "-" if row["task_status"] == "NIL" else row["task_status"]
        cells = [str(row["pid"] or "-"), str(row["type"]).capitalize() or "-", row["creator"], row["where"], age, status]
        cells += [amount(row["object_size"], units), row["reference_type"], row["object_id"]]
        if sites:
            cells.insert(-1, row["call_site"] or "-")
        lines.append(cells)
    return table(head, lines, formatted)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], formatted: bool) -> str:
    """Return rows in padded columns, long cells on several lines; or, not `formatted`, with tabs."""
    if not formatted:
        return "\n".join("\t".join(row) for row in (head, *rows))
    cells = [[textwrap.wrap(cell, _WIDTH) or [""] for cell in row] for row in (head, *rows)]
    widths = [max(len(line) for row in cells for line in row[i]) for i in range(len(head))]
    lines = []
    for row in cells:
        for k in range(max(len(cell) for cell in row)):
            line = "  ".join((cell[k] if k < len(cell) else "").ljust(width) for cell, width in zip(row, widths, strict=True))
            lines.append(line.rstrip())
    return "\n".join(lines)


def store_text(stats: Mapping[str, Any], units: str | None = None) -> str:
    """Return the store's line, and what was spilled and restored, as ``ray memory --stats-only`` does."""
    used, capacity = stats["used"], stats["capacity"]
    needed = used + stats["spilled"] + stats["waiting_bytes"]
    lines = [
        "--- Aggregate object store stats across all nodes ---",
        f"Object store memory usage {amount(used, units)} of {amount(capacity, units)}, {stats['objects']} objects, "
        f"{100 * used / capacity:.1f}% full, {100 * needed / capacity:.1f}% needed",
    ]
    if stats["inline_bytes"]:
        lines.append(f"Small objects outside of it {amount(stats['inline_bytes'], units)}")
    if stats["pinned"]:
        lines.append(f"Pinned by readers {amount(stats['pinned'], units)}")
    if stats["spilled_total"]:
        lines.append(
            f"Spilled {amount(stats['spilled_total'], units)} since the start{_rate('write', stats['spilled_total'], stats['spill_s'])}, "
            f"{amount(stats['spilled'], units)} now only on disk"
        )
    if stats["restored_total"]:
        lines.append(f"Restored {amount(stats['restored_total'], units)} since the start{_rate('read', stats['restored_total'], stats['restore_s'])}")
    if stats["waiting"]:
        lines.append(f"{stats['waiting']} requests wait for {amount(stats['waiting_bytes'], units)}")
    return "\n".join(lines)


def _rate(what: str, n: int, seconds: float) -> str:
    return f" (avg {what} throughput {amount(n / seconds)}/s)" if seconds > 0 else ""


# How the store's figures are shown: (key, what it says); a key that ends with one of COUNTS is no number of bytes.
FIGURES = (
    ("capacity", "size of the arena"),
    ("used", "in use"),
    ("pinned", "of it kept in place by readers"),
    ("slack", "of it lost to rounding"),
    ("high_water", "most ever in use"),
    ("warm", "free, with memory behind it"),
    ("cold", "free, without"),
    ("slab_free", "free, for small objects only"),
    ("largest_free", "longest free piece"),
    ("free_runs", "free pieces"),
    ("chunks", "pieces lent to processes"),
    ("chunk_unused", "of these not in use yet"),
    ("huge_pages", "huge pages"),
    ("objects", "objects in all"),
    ("arena_objects", "objects in the arena or on disk"),
    ("inline_bytes", "small objects, outside the arena"),
    ("spilled", "only on disk"),
    ("files", "of these in files of their own, which found no room in the arena"),
    ("clean", "in the arena with a copy on disk"),
    ("spilled_total", "written to disk since the start"),
    ("restored_total", "read back since the start"),
    ("spill_s", "seconds spent writing"),
    ("restore_s", "seconds spent reading back"),
    ("disk_used", "spill files"),
    ("disk_dead", "of these not in use any more"),
    ("waiting", "requests that wait for room"),
    ("waiting_bytes", "what they wait for"),
)
COUNTS = frozenset(("free_runs", "chunks", "huge_pages", "objects", "arena_objects", "waiting", "spill_s", "restore_s"))


def figures_text(stats: Mapping[str, Any], units: str | None = None) -> str:
    """Return all of the store's figures, one a line, and the spill directories."""
    rows = []
    for key, words in FIGURES:
        if key in stats:
            value = stats[key]
            text = f"{value:g}" if isinstance(value, float) else str(value) if key in COUNTS else amount(value, units)
            rows.append([key, text, words])
    for place in stats.get("spill_dirs") or []:
        state = place["failed"] or f"{amount(place['used'], units)} in use, {amount(place['free'], units)} free of {amount(place['total'], units)}"
        rows.append(["spill directory", state, place["path"]])
    width = max(len(row[0]) for row in rows), max(len(row[1]) for row in rows)
    return "\n".join(f"{key:{width[0]}}  {value:>{width[1]}}  {words}" for key, value, words in rows)
