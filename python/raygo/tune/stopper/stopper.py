"""When to stop, beyond limits of metrics."""
from __future__ import annotations

from typing import Any

__all__ = ["CombinedStopper", "Stopper"]


class Stopper:
    """Subclass it: called with each report, true stops the trial; `stop_all` stops the search.

    Examples
    --------
    >>> class Diverged(Stopper):
    ...     def __call__(self, trial_id, result):
    ...         return result["loss"] != result["loss"]
    ...     def stop_all(self):
    ...         return False
    """

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether this trial is to stop."""
        raise NotImplementedError

    def stop_all(self) -> bool:
        """Whether all trials are to stop."""
        raise NotImplementedError


class CombinedStopper(Stopper):
    """Stops when one of several does.

    Parameters
    ----------
    *stoppers : Stopper
        Each is asked about each report.
    """

    def __init__(self, *stoppers: Stopper) -> None:
        self._stoppers = stoppers

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return max([stopper(trial_id, result) for stopper in self._stoppers], default=False)     # each has to see it

    def stop_all(self) -> bool:
        return any(stopper.stop_all() for stopper in self._stoppers)
