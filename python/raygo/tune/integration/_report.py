"""Where the callbacks of raygo.train's integrations report when they are a trial's."""
from __future__ import annotations

from typing import Any

from raygo.train._boosting import Destination


class ToTrial(Destination):
    """The trial that this process runs."""

    def saves(self) -> bool:
        """A trial is one process."""
        return True

    def report(self, metrics: dict[str, Any], checkpoint: Any = None) -> None:
        """Report."""
        from raygo import tune

        tune.report(metrics, checkpoint=checkpoint)
