"""Stop after so many reports."""
from __future__ import annotations

from collections import defaultdict
from typing import Any

from raygo.tune.stopper.stopper import Stopper

__all__ = ["MaximumIterationStopper"]


class MaximumIterationStopper(Stopper):
    """Stops each trial after `max_iter` reports.

    Parameters
    ----------
    max_iter : int
        How many.
    """

    def __init__(self, max_iter: int) -> None:
        if max_iter < 1:
            raise ValueError(f"max_iter is {max_iter}: give 1 or more")
        self._max_iter = max_iter
        self._iter: dict[str, int] = defaultdict(int)

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self._iter[trial_id] += 1
        return self._iter[trial_id] >= self._max_iter

    def stop_all(self) -> bool:
        return False
