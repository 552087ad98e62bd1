"""The same function on several workers."""
from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from raygo.train._checkpoint import Checkpoint
from raygo.train._data_config import DataConfig
from raygo.train._folder import find_run
from raygo.train._kept import FINISHED
from raygo.train._reported import ValidationConfig
from raygo.train._result import Result
from raygo.train._run import Run
from raygo.train._settings import RunConfig, ScalingConfig
from raygo.train.backend import BackendConfig
from raygo.train.base_trainer import BaseTrainer

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["DataParallelTrainer"]


class DataParallelTrainer(BaseTrainer):
    """Runs a training function on each of several workers.

    Parameters
    ----------
    train_loop_per_worker : callable
        Takes the config, or nothing.
    train_loop_config : dict, optional
        The config.
    backend_config : BackendConfig, optional
        How the workers are made into a group.
    validation_config : ValidationConfig, optional
        How checkpoints are validated that are reported with ``validation=True``.
    scaling_config, run_config, datasets, metadata, resume_from_checkpoint
        As for every trainer.

    Examples
    --------
    >>> def loop(config):
    ...     raygo.train.report({"rank": raygo.train.get_context().get_world_rank()})
    >>> trainer = DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=2))
    >>> trainer.fit().metrics["rank"]                     # doctest: +SKIP
    0
    """

    # Whether checkpoint_frequency and checkpoint_at_end mean something: where the training function is not the user's.
    _uses_checkpoint_settings = False

    def __init__(self, train_loop_per_worker: Callable[..., Any], *, train_loop_config: dict[str, Any] | None = None,
                 backend_config: BackendConfig | None = None, scaling_config: ScalingConfig | None = None, dataset_config: Any = None,
                 run_config: RunConfig | None = None, datasets: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None,
                 resume_from_checkpoint: Checkpoint | None = None, validation_config: ValidationConfig | None = None) -> None:
        super().__init__(scaling_config=scaling_config, run_config=run_config, datasets=datasets, metadata=metadata,
                         resume_from_checkpoint=resume_from_checkpoint)
        if not callable(train_loop_per_worker):
            raise ValueError(f"train_loop_per_worker is {train_loop_per_worker!r}: give a function that takes the config, or nothing")
        _check_parameters(train_loop_per_worker)
        if not self._uses_checkpoint_settings:
            config = self.run_config.checkpoint_config
            for setting in ("checkpoint_frequency", "checkpoint_at_end"):
                if getattr(config, setting, None) not in (None, 0, False, "DEPRECATED"):
                    raise ValueError(f"CheckpointConfig({setting}=...) does not apply to a training function: "
                                     "it reports a checkpoint where one is wanted")
        if train_loop_config is not None and not isinstance(train_loop_config, dict):
            raise ValueError(f"train_loop_config is a {type(train_loop_config).__name__}: give a dict")
        if backend_config is not None and not isinstance(backend_config, BackendConfig):
            raise ValueError(f"{type(self).__name__}: the backend's config is a {type(backend_config).__name__}: give a BackendConfig, such as TorchConfig")
        self._train_loop_per_worker = train_loop_per_worker
        self._train_loop_config = train_loop_config
        self._backend_config = backend_config or BackendConfig()
        if dataset_config is not None and not isinstance(dataset_config, DataConfig):
            raise ValueError(f"{type(self).__name__}: `dataset_config` should be a raygo.train.DataConfig, found {type(dataset_config)}.")
        self._dataset_config = dataset_config or DataConfig()
        if validation_config is not None and not isinstance(validation_config, ValidationConfig):
            raise ValueError(f"{type(self).__name__}: `validation_config` should be a raygo.train.ValidationConfig, found {type(validation_config)}.")
        self._validation_config = validation_config

    def get_dataset_config(self) -> Any:
        """What was given as `dataset_config`."""
        return self._dataset_config

    def training_loop(self) -> Result:
        """Train once; what `fit` does."""
        if self._restored and (finished := self._finished()) is not None:
            return finished
        return self._run(pickled=self._pickled()).fit()

    def _run(self, **where: Any) -> Run:
        return Run(trainer_name=type(self).__name__, train_loop=self._train_loop_per_worker, config=self._train_loop_config,
                   scaling=self.scaling_config, run_config=self.run_config, backend_config=self._backend_config, metadata=self.metadata,
                   resume_from=self.starting_checkpoint, datasets=self.datasets, dataset_config=self._dataset_config,
                   validation_config=self._validation_config, **where)

    def _finished(self) -> Result | None:
        """The result of a restored run that had come to its end before."""
        storage, noted = find_run(self.run_config, type(self).__name__)
        if noted is None or noted["status"] != FINISHED:
            return None
        return Result.from_path(storage.trial_fs_path, None if storage.files.local else storage.storage_filesystem)

    @classmethod
    def restore(cls, path: str | os.PathLike[str], train_loop_per_worker: Callable[..., Any] | None = None,     # type: ignore[override]
                train_loop_config: dict[str, Any] | None = None, **kwargs: Any) -> Self:
        """The trainer of a run that did not come to its end; `fit` then goes on from its last checkpoint.

        Parameters
        ----------
        path : str
            The run's folder: ``storage_path/name``, or a URI.
        train_loop_per_worker, train_loop_config
            In the place of those that the trainer had.
        **kwargs
            As for `raygo.train.base_trainer.BaseTrainer.restore`.
        """
        return super().restore(path, train_loop_per_worker=train_loop_per_worker, train_loop_config=train_loop_config, **kwargs)


def _check_parameters(function: Callable[..., Any]) -> None:
    import inspect

    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ValueError(f"train_loop_per_worker is {function!r}, of which a call runs nothing: give a function without async and yield")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return       # something built in: it will say itself
    needed = [p.name for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if len(needed) > 1:
        raise ValueError(f"train_loop_per_worker should take in 0 or 1 arguments, but it needs {len(needed)}: {', '.join(needed)}")
