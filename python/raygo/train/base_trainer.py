"""What trainers have in common."""
from __future__ import annotations

import os
from typing import Any, NoReturn

from raygo.train._checkpoint import Checkpoint
from raygo.train._data_config import check as check_datasets
from raygo.train._result import Result
from raygo.train._settings import RunConfig, ScalingConfig
from raygo.train.constants import EXPR_PARAM_PICKLE_FILE
from raygo.train.error import TrainingFailedError

__all__ = ["BaseTrainer", "TrainingFailedError"]


class BaseTrainer:
    """A run that can be started with `fit`.

    Parameters
    ----------
    scaling_config : ScalingConfig, optional
        How many workers; one by default.
    run_config : RunConfig, optional
        Where results go.
    datasets : dict, optional
        `raygo.data.Dataset` by name; workers read their parts with `raygo.train.get_dataset_shard`.
    metadata : dict, optional
        Plain values that workers can ask for.
    resume_from_checkpoint : Checkpoint, optional
        What `raygo.train.get_checkpoint` gives at the start.
    """

    def __init__(self, *, scaling_config: ScalingConfig | None = None, run_config: RunConfig | None = None,
                 datasets: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None,
                 resume_from_checkpoint: Checkpoint | None = None) -> None:
        name = type(self).__name__
        if scaling_config is not None and not isinstance(scaling_config, ScalingConfig):
            raise ValueError(f"{name}: `scaling_config` should be a ScalingConfig, found {type(scaling_config)} with value `{scaling_config}`.")
        if run_config is not None and not isinstance(run_config, RunConfig):
            raise ValueError(f"{name}: `run_config` should be a RunConfig, found {type(run_config)} with value `{run_config}`.")
        if resume_from_checkpoint is not None and not isinstance(resume_from_checkpoint, Checkpoint):
            raise ValueError(f"{name}: `resume_from_checkpoint` should be a Checkpoint, found {type(resume_from_checkpoint)}.")
        self.scaling_config = scaling_config or ScalingConfig()
        self.run_config = run_config or RunConfig()
        self.datasets = check_datasets(name, datasets)
        self.metadata = metadata
        self.starting_checkpoint = resume_from_checkpoint

    def setup(self) -> None:
        """Called before training; for subclasses."""

    def preprocess_datasets(self) -> None:
        """Called before training; for subclasses."""

    def training_loop(self) -> Result:
        """What `fit` does; subclasses have it."""
        raise NotImplementedError(f"{type(self).__name__}.training_loop is for subclasses to write")

    def fit(self) -> Result:
        """Train, and wait for the outcome.

        Raises
        ------
        TrainingFailedError
            A worker failed more often than FailureConfig allows, or the workers could not be placed.
        """
        import raygo

        if not raygo.is_initialized():
            raygo.init()
        self.setup()
        self.preprocess_datasets()
        return self.training_loop()

    def as_trainable(self) -> NoReturn:
        """The trainer as a Trainable of raygo.tune: not there yet."""
        raise NotImplementedError(f"{type(self).__name__}.as_trainable: raygo.tune is not there yet")

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> bool:
        """Whether `path` is the folder of a run."""
        folder = os.path.expanduser(os.fspath(path))
        return os.path.isdir(folder) and any(os.path.isfile(os.path.join(base, EXPR_PARAM_PICKLE_FILE)) for base in
                                             [folder, *(os.path.join(folder, name) for name in os.listdir(folder))])

    @classmethod
    def restore(cls, path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> NoReturn:
        """Go on with a run from its folder: not there yet."""
        raise NotImplementedError(f"{cls.__name__}.restore is not there yet in raygo. Make the trainer again with "
                                  "resume_from_checkpoint=raygo.train.Result.from_path(folder).checkpoint.")


BaseTrainer.as_trainable.__raygo_stub__ = True  # type: ignore[attr-defined]
