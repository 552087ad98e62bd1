"""Which checkpoints of a trial are kept."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raygo.train._result import dig
from raygo.tune.execution.state import name_of

if TYPE_CHECKING:
    from raygo.tune.execution.storage import ExperimentStorage
    from raygo.tune.experiment.trial import Trial

__all__ = ["Keeper"]


class Keeper:
    """Removes checkpoints that the CheckpointConfig does not want kept, when nobody reads them.

    Parameters
    ----------
    storage : ExperimentStorage
        Where they are.
    """

    def __init__(self, storage: ExperimentStorage) -> None:
        self._storage = storage
        self._read: dict[str, int] = {}           # path -> how many trials are starting from it
        self._doomed: dict[str, tuple[str, str]] = {}

    def add(self, trial: Trial, name: str, metrics: dict[str, Any]) -> Any:
        """A trial has a new checkpoint."""
        checkpoint = self._storage.checkpoint(str(trial.relative_logdir), name)
        trial.checkpoints.append((checkpoint, metrics))
        trial.checkpoints_made = max(trial.checkpoints_made, _number(name) + 1)
        config = trial.checkpoint_config
        most = getattr(config, "num_to_keep", None)
        while most is not None and len(trial.checkpoints) > most and (worst := _worst(trial, config, most)) is not None:
            gone, _ = trial.checkpoints.pop(worst)
            self._remove(trial, gone)
        return checkpoint

    def _remove(self, trial: Trial, checkpoint: Any) -> None:
        place = (str(trial.relative_logdir), name_of(checkpoint))
        if self._read.get(checkpoint.path):
            self._doomed[checkpoint.path] = place
        else:
            self._storage.delete_checkpoint(*place)

    def reading(self, checkpoint: Any) -> None:
        """A trial is about to start from it."""
        self._read[checkpoint.path] = self._read.get(checkpoint.path, 0) + 1

    def was_read(self, checkpoint: Any) -> None:
        """It has."""
        left = self._read.pop(checkpoint.path, 1) - 1
        if left > 0:
            self._read[checkpoint.path] = left
        elif (place := self._doomed.pop(checkpoint.path, None)) is not None:
            self._storage.delete_checkpoint(*place)


def _worst(trial: Trial, config: Any, most: int) -> int | None:
    """Which to drop: never the newest, never one of the best `most`; NaN is the worst."""
    if config.checkpoint_score_attribute is None:
        return 0
    sign = 1 if config.checkpoint_score_order == "max" else -1
    scores: list[tuple[bool, float]] = []
    for _, metrics in trial.checkpoints:
        value = dig(metrics, config.checkpoint_score_attribute)
        good = isinstance(value, (int, float)) and value == value
        scores.append((good, sign * float(value) if good else 0.0))
    ranked = sorted(range(len(scores)), key=lambda i: scores[i], reverse=True)
    droppable = [i for i in ranked[most:] if i != len(trial.checkpoints) - 1]
    return droppable[-1] if droppable else None


def _number(name: str) -> int:
    digits = name.rsplit("_", 1)[-1]
    return int(digits) if digits.isdigit() else -1
