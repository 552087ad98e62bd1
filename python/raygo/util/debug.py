"""Saying things once, and looking for memory that grows."""
from __future__ import annotations

import gc
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Suspect", "disable_log_once_globally", "enable_periodic_logging", "log_once", "reset_log_once"]

_lock = threading.Lock()
_said: set[Any] = set()
_last_reset = 0.0
_disabled = False
_periodic = False
_PERIOD_S = 60.0


def log_once(key: Any) -> bool:
    """Whether this is the first time that `key` is asked about in this process.

    Examples
    --------
    >>> reset_log_once("slow path"); log_once("slow path"), log_once("slow path")
    (True, False)
    """
    global _last_reset
    with _lock:
        if _disabled:
            return False
        if _periodic and time.monotonic() - _last_reset > _PERIOD_S:
            _said.clear()
            _last_reset = time.monotonic()
        if key in _said:
            return False
        _said.add(key)
        return True


def reset_log_once(key: Any = None) -> None:
    """Forget `key`, or everything, so that it is said once more."""
    with _lock:
        if key is None:
            _said.clear()
        else:
            _said.discard(key)


def disable_log_once_globally() -> None:
    """Make `log_once` answer False in this process."""
    global _disabled
    _disabled = True


def enable_periodic_logging() -> None:
    """Make `log_once` answer True once a minute instead of once."""
    global _disabled, _periodic
    _disabled, _periodic = False, True


class Suspect(NamedTuple):
    """A place in the code whose allocations grow from run to run."""

    traceback: Any
    memory_increase: int
    slope: float
    rvalue: float
    hist: list[int]


def _test_some_code_for_memory_leaks(desc: str, init: Callable[[], Any] | None, code: Callable[[], Any], repeats: int,
                                     max_num_trials: int = 1) -> list[Suspect]:
    """Run `code` many times and return the places whose memory grew steadily, worst first."""
    suspects: list[Suspect] = []
    for _ in range(max_num_trials):
        if init is not None:
            init()
        suspects = _suspects(code, repeats)
        if not suspects:
            break
    return suspects


def _suspects(code: Callable[[], Any], repeats: int) -> list[Suspect]:
    rounds = max(3, min(10, repeats))
    history: dict[Any, list[int]] = {}
    tracemalloc.start(20)
    try:
        for number in range(rounds):
            for _ in range(max(1, repeats // rounds)):
                code()
            gc.collect()
            for stat in tracemalloc.take_snapshot().statistics("traceback")[:200]:
                history.setdefault(stat.traceback, [0] * number).append(stat.size)
            for sizes in history.values():
                sizes.extend([0] * (number + 1 - len(sizes)))
    finally:
        tracemalloc.stop()
    found = []
    for where, sizes in history.items():
        grown = sizes[-1] - sizes[0]
        slope, correlation = _fit(sizes)
        if grown > 1024 and slope > 60 and correlation > 0.8:
            found.append(Suspect(where, grown, slope, correlation, sizes))
    return sorted(found, key=lambda s: -s.memory_increase)


def _fit(sizes: list[int]) -> tuple[float, float]:
    """Slope and correlation of a line through the sizes."""
    n = len(sizes)
    mean_x, mean_y = (n - 1) / 2, sum(sizes) / n
    xy = sum((x - mean_x) * (y - mean_y) for x, y in enumerate(sizes))
    xx = sum((x - mean_x) ** 2 for x in range(n))
    yy = sum((y - mean_y) ** 2 for y in sizes)
    return xy / xx, (xy / (xx * yy) ** 0.5 if yy else 0.0)
