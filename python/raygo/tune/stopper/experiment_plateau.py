"""Stop a search whose best trials do not get better any more."""
from __future__ import annotations

import statistics
from typing import Any

from raygo.tune.stopper.stopper import Stopper

__all__ = ["ExperimentPlateauStopper"]


class ExperimentPlateauStopper(Stopper):
    """Stops the search when the best values of all trials lie within `std` of each other.

    Parameters
    ----------
    metric : str
        The metric.
    std : float
        The standard deviation that is no plateau yet.
    top : int
        How many of the best values.
    mode : {"min", "max"}
        Which values are best.
    patience : int
        Reports on the plateau before it stops.
    """

    def __init__(self, metric: str, std: float = 0.001, top: int = 10, mode: str = "min", patience: int = 0) -> None:
        if mode not in ("min", "max"):
            raise ValueError("The mode parameter can only be either min or max.")
        if not isinstance(top, int) or top <= 1:
            raise ValueError("Top results to consider must be a positive integer greater than one.")
        if not isinstance(patience, int) or patience < 0:
            raise ValueError("Patience must be a strictly positive integer.")
        if not isinstance(std, float) or std <= 0:
            raise ValueError("The standard deviation must be a strictly positive float number.")
        self._mode, self._metric, self._patience, self._std, self._top = mode, metric, patience, std, top
        self._iterations = 0
        self._should_stop = False
        self._top_values: list[float] = []

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        from raygo.train._result import dig

        value = dig(result, self._metric)
        if value is not None and value == value:
            self._top_values.append(float(value))
            self._top_values.sort(reverse=self._mode == "max")
            del self._top_values[self._top:]
        self._iterations = self._iterations + 1 if self.has_plateaued() else 0
        self._should_stop = self.has_plateaued() and self._iterations >= self._patience
        return self._should_stop

    def has_plateaued(self) -> bool:
        """Whether the best values are alike."""
        return len(self._top_values) == self._top and statistics.pstdev(self._top_values) <= self._std

    def stop_all(self) -> bool:
        return self._should_stop
