"""What is kept of a trial's metrics."""
from __future__ import annotations

import math
from collections import deque
from typing import Any

__all__ = ["MetricTrace", "flat_numbers"]

# Numbers of a report that say nothing about how well a trial does.
_NO_METRICS = frozenset(("pid", "timestamp", "config", "done", "time_this_iter_s", "time_since_restore", "iterations_since_restore",
                         "timesteps_since_restore"))


class MetricTrace:
    """What is kept of the values of one metric.  NaN counts for nothing but `last`."""

    __slots__ = ("_recent", "count", "last", "max", "min", "total")

    def __init__(self) -> None:
        self.max = self.min = self.last = math.nan
        self.total, self.count = 0.0, 0
        self._recent: deque[float] | tuple[float, ...] = deque(maxlen=10)

    def add(self, value: float) -> None:
        self.last = value
        if not isinstance(self._recent, deque):
            self._recent = deque(self._recent, maxlen=10)
        self._recent.append(value)
        if value != value:
            return
        self.total += value
        self.count += 1
        if not value <= self.max:
            self.max = value
        if not value >= self.min:
            self.min = value

    def compact(self) -> None:
        """No more values are expected."""
        self._recent = tuple(self._recent)

    def __getitem__(self, scope: str) -> float:
        if scope in ("max", "min", "last"):
            return float(getattr(self, scope))
        if scope == "avg":
            return self.total / self.count if self.count else math.nan
        if scope in ("last-5-avg", "last-10-avg"):
            recent = [v for v in list(self._recent)[-int(scope.split("-")[1]):] if v == v]
            return sum(recent) / len(recent) if recent else math.nan
        raise KeyError(scope)


def flat_numbers(result: dict[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    """The numbers of a report, nested ones as ``a/b``."""
    found: list[tuple[str, float]] = []
    for key, value in result.items():
        if prefix == "" and key in _NO_METRICS:
            continue
        if isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool)):
            found.append((f"{prefix}{key}", value))
        elif isinstance(value, dict):
            found.extend(flat_numbers(value, f"{prefix}{key}/"))
        elif getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
            number = value.item()
            if isinstance(number, (int, float)):
                found.append((f"{prefix}{key}", float(number)))
    return found
