"""Never stop."""
from __future__ import annotations

from typing import Any

from raygo.tune.stopper.stopper import Stopper

__all__ = ["NoopStopper"]


class NoopStopper(Stopper):
    """Stops nothing."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return False
