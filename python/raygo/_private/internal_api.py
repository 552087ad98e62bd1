"""What keeps objects, as text, under the name that libraries use."""

from __future__ import annotations

from raygo import _memory, _session
from raygo._calls import call

__all__ = ["memory_summary", "store_stats_summary"]

_LIMIT = 10_000  # rows, as Ray's


def memory_summary(
    address: str | None = None,
    redis_password: str | None = None,
    group_by: str = "NODE_ADDRESS",
    sort_by: str = "OBJECT_SIZE",
    units: str = "B",
    line_wrap: bool = True,
    stats_only: bool = False,
    num_entries: int | None = None,
) -> str:
    """Return what ``raygo memory`` prints, for the session that this process belongs to.

    Parameters
    ----------
    address, redis_password
        Accepted, without effect.
    group_by, sort_by, units, num_entries
        As the options of ``raygo memory``.
    line_wrap
        Whether columns are padded and long cells broken.
    stats_only
        Leave the references out.
    """
    _session.get()
    for name, value, known in (("group_by", group_by, _memory.GROUPS), ("sort_by", sort_by, _memory.SORTS), ("units", units, _memory.UNITS)):
        if value not in known:
            raise ValueError(f"{name} is {value!r}: one of {', '.join(known)}")
    store = _memory.store_text(call("store.stats"), units)
    if stats_only:
        return store
    rows = call("state.objects", {"limit": _LIMIT, "filters": [], "detail": True}) or []
    cut = _memory.cut_text(rows, call("objects.totals"), units)
    text = _memory.references_text(rows, group_by, sort_by, units, line_wrap, num_entries)
    return "\n\n".join(part for part in (text, cut, store) if part)


def store_stats_summary() -> str:
    """Return the part of `memory_summary` that is about the store."""
    return memory_summary(stats_only=True)
