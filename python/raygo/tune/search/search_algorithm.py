"""Where trials come from."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raygo.tune.experiment import Trial

__all__ = ["SearchAlgorithm"]


class SearchAlgorithm:
    """Gives the driver one trial after the other, and is told how they went."""

    _finished = False

    @property
    def metric(self) -> str | None:
        """What is optimised, where the algorithm knows."""
        return None

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        """Told before the search; False if it has been told something else already."""
        return True

    @property
    def total_samples(self) -> int:
        """How many trials there will be."""
        return 0

    def add_configurations(self, experiments: Any) -> None:
        """What to make trials of."""
        raise NotImplementedError

    def next_trial(self) -> Trial | None:
        """A trial, or None: there is none for now, or `is_finished`."""
        raise NotImplementedError

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """A trial has reported."""

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """A trial has ended."""

    def is_finished(self) -> bool:
        """Whether no more trials come."""
        return self._finished

    def set_finished(self) -> None:
        """No more trials are wanted."""
        self._finished = True

    def has_checkpoint(self, dirpath: str) -> bool:
        """Whether a state was saved in the folder."""
        return False

    def save_to_dir(self, dirpath: str, **kwargs: Any) -> None:
        """Save the state."""

    def restore_from_dir(self, dirpath: str) -> None:
        """Take a saved state up."""
