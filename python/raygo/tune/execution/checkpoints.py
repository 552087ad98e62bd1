"""Which checkpoints of a trial are kept."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raygo.train._kept import worst_of
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
        self._doomed: dict[str, tuple[str, Any]] = {}

    def add(self, trial: Trial, name: str, metrics: dict[str, Any], elsewhere: Any = None) -> Any:
        """A trial has a new checkpoint, in its folder or elsewhere."""
        checkpoint = elsewhere or self._storage.checkpoint(str(trial.relative_logdir), name)
        if _number(name) < trial.checkpoints_made:
            # A trainer's loop may use one name again and again; there is one checkpoint of it.
            trial.checkpoints = [pair for pair in trial.checkpoints if pair[0] != checkpoint]
        trial.checkpoints.append((checkpoint, metrics))
        trial.checkpoints_made = max(trial.checkpoints_made, _number(name) + 1)
        config = trial.checkpoint_config
        most = config.num_to_keep if config is not None else None
        while config is not None and most is not None and len(trial.checkpoints) > most and (worst := worst_of(trial.checkpoints, config, most)) is not None:
            gone, _ = trial.checkpoints.pop(worst)
            self._remove(trial, gone)
        return checkpoint

    def _remove(self, trial: Trial, checkpoint: Any) -> None:
        if self._read.get(checkpoint.path):
            self._doomed[checkpoint.path] = (str(trial.relative_logdir), checkpoint)
        else:
            self._delete(str(trial.relative_logdir), checkpoint)

    def _delete(self, folder: str, checkpoint: Any) -> None:
        name = name_of(checkpoint)
        if checkpoint == self._storage.checkpoint(folder, name):
            self._storage.delete_checkpoint(folder, name)
        else:
            checkpoint._files.delete(checkpoint.path)

    def reading(self, checkpoint: Any) -> None:
        """A trial is about to start from it."""
        self._read[checkpoint.path] = self._read.get(checkpoint.path, 0) + 1

    def was_read(self, checkpoint: Any) -> None:
        """It has."""
        left = self._read.pop(checkpoint.path, 1) - 1
        if left > 0:
            self._read[checkpoint.path] = left
        elif (place := self._doomed.pop(checkpoint.path, None)) is not None:
            self._delete(*place)


def _number(name: str) -> int:
    digits = name.rsplit("_", 1)[-1]
    return int(digits) if digits.isdigit() else -1
