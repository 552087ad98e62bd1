"""Stop after some time."""
from __future__ import annotations

import datetime
import time
from typing import Any

from raygo.tune.stopper.stopper import Stopper

__all__ = ["TimeoutStopper"]


class TimeoutStopper(Stopper):
    """Stops the search after some time; a restored search has what was left.

    Parameters
    ----------
    timeout : float or datetime.timedelta
        Seconds, from the first question on.
    """

    def __init__(self, timeout: int | float | datetime.timedelta) -> None:
        if isinstance(timeout, datetime.timedelta):
            timeout = timeout.total_seconds()
        if not isinstance(timeout, (int, float)) or isinstance(timeout, bool):
            raise ValueError(f"`timeout` is {timeout!r}: give seconds or a datetime.timedelta")
        if not timeout > 0:
            raise ValueError(f"`timeout` is {timeout}: give a time above 0")
        self._budget = float(timeout)
        self._end: float | None = None

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def left(self) -> float:
        """Seconds until the search is to stop."""
        if self._end is None:
            self._end = time.monotonic() + self._budget
        return self._end - time.monotonic()

    def stop_all(self) -> bool:
        return self.left() <= 0

    def __getstate__(self) -> dict[str, Any]:
        return {"_budget": max(0.0, self.left()) if self._end is not None else self._budget, "_end": None}
