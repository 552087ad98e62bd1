"""Stop trials that do not change any more."""
from __future__ import annotations

import statistics
from collections import defaultdict, deque
from typing import Any

from raygo.tune.stopper.stopper import Stopper

__all__ = ["TrialPlateauStopper"]


class TrialPlateauStopper(Stopper):
    """Stops a trial whose metric varies less than `std` over its last reports.

    Parameters
    ----------
    metric : str
        The metric.
    std : float
        The standard deviation that is still a change.
    num_results : int
        Over how many reports.
    grace_period : int
        Reports before it is looked at.
    metric_threshold : float, optional
        Stop only beyond this value: above it for `mode` "max", below it for "min".
    mode : {"max", "min"}, optional
        For `metric_threshold`.
    """

    def __init__(self, metric: str, std: float = 0.01, num_results: int = 4, grace_period: int = 4, metric_threshold: float | None = None,
                 mode: str | None = None) -> None:
        if metric_threshold is not None and mode not in ("min", "max"):
            raise ValueError(f"When specifying a `metric_threshold`, the `mode` argument has to be one of [min, max]. Got: {mode}")
        self._metric, self._mode = metric, mode
        self._std, self._num_results, self._grace_period, self._metric_threshold = std, num_results, grace_period, metric_threshold
        self._iter: dict[str, int] = defaultdict(int)
        self._window: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=num_results))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_window": dict(self._window), "_iter": dict(self._iter)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        n = self._num_results
        self._iter = defaultdict(int, state["_iter"])
        self._window = defaultdict(lambda: deque(maxlen=n), state["_window"])

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        from raygo.train._result import dig

        value = dig(result, self._metric)
        if value is None:
            return False
        window = self._window[trial_id]
        window.append(float(value))
        self._iter[trial_id] += 1
        if self._iter[trial_id] < self._grace_period or len(window) < self._num_results:
            return False
        if self._metric_threshold is not None and not (value > self._metric_threshold if self._mode == "max" else value < self._metric_threshold):
            return False
        return statistics.pstdev(window) < self._std

    def stop_all(self) -> bool:
        return False
