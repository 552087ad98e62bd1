"""What trainers have in common."""
from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING, Any

from raygo.train._checkpoint import Checkpoint
from raygo.train._data_config import check as check_datasets
from raygo.train._files import join, resolve
from raygo.train._result import Result
from raygo.train._settings import RunConfig, ScalingConfig
from raygo.train.constants import TRAINER_PICKLE_FILE
from raygo.train.error import TrainingFailedError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["BaseTrainer", "TrainingFailedError", "format_datasets_for_repr"]


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

    _arguments: dict[str, Any]
    _restored = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        made = super().__new__(cls)
        # For `restore`; arguments that do not fit are refused by __init__ a moment later.
        try:
            bound = inspect.signature(cls.__init__).bind(made, *args, **kwargs)
        except TypeError:
            made._arguments = dict(kwargs)
        else:
            named = {name: value for name, value in bound.arguments.items() if name != "self"}
            for name, parameter in bound.signature.parameters.items():
                if parameter.kind is parameter.VAR_KEYWORD:
                    named.update(named.pop(name, {}))
            made._arguments = named
        return made

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
        if scaling_config is not None and scaling_config._has_domains:
            raise ValueError(f"{name}: `scaling_config` has a search space in it: give it to Tuner(param_space={{'scaling_config': ...}}).")
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

        A run of a name that was given before, in the same storage, goes on from its last checkpoint.  Ctrl-C ends the workers, keeps the
        last checkpoint and raises KeyboardInterrupt; SIGTERM does the same and raises SystemExit, unless the script handles it.

        Raises
        ------
        TrainingFailedError
            A worker failed more often than FailureConfig allows, or the workers could not be placed.
        """
        import raygo

        if not raygo.is_initialized() and (self.scaling_config.max_workers or self.datasets):
            raygo.init()
        self.setup()
        self.preprocess_datasets()
        return self.training_loop()

    def as_trainable(self) -> Any:
        """The trainer as something that `raygo.tune.Tuner` takes.

        A trial's config may have ``train_loop_config``, ``scaling_config`` and others of the trainer's arguments: dicts are merged into
        what the trainer has.
        """
        from raygo.train._trial import as_trainable

        return as_trainable(self)

    def _for_trial(self, config: dict[str, Any]) -> BaseTrainer:
        """A trainer with a trial's config merged in."""
        from raygo.train._trial import merged

        return merged(self, config)

    def _pickled(self) -> bytes | None:
        """What `restore` makes the trainer of again; None where that cannot be pickled."""
        from raygo import cloudpickle

        arguments = {name: value for name, value in self._arguments.items() if name != "datasets"}
        try:
            return bytes(cloudpickle.dumps({"class": type(self), "arguments": arguments, "datasets": sorted(self.datasets)}))
        except Exception as error:
            import logging

            logging.getLogger("raygo.train").info("%s.restore will not be possible for this run: %s", type(self).__name__, error)
            return None

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> bool:
        """Whether `path` is the folder of a run that `restore` can go on with."""
        files, folder = resolve(path, storage_filesystem)
        return files.is_file(join(folder, TRAINER_PICKLE_FILE))

    @classmethod
    def restore(cls, path: str | os.PathLike[str], storage_filesystem: Any = None, datasets: dict[str, Any] | None = None,
                scaling_config: ScalingConfig | None = None, **kwargs: Any) -> Self:
        """The trainer of a run that did not come to its end; `fit` then goes on from its last checkpoint.

        Parameters
        ----------
        path : str
            The run's folder: ``storage_path/name``, or a URI.
        storage_filesystem : pyarrow.fs.FileSystem or fsspec.AbstractFileSystem, optional
            Where `path` is a path.
        datasets : dict, optional
            Has to be given again where the trainer had datasets.
        scaling_config : ScalingConfig, optional
            Another number of workers than before.
        **kwargs
            Other arguments of the trainer, in the place of those it had.
        """
        from raygo import cloudpickle

        files, folder = resolve(path, storage_filesystem)
        try:
            saved = cloudpickle.loads(files.read(join(folder, TRAINER_PICKLE_FILE)))
        except FileNotFoundError as error:
            raise ValueError(f"Invalid path for {cls.__name__}.restore: {path} has no {TRAINER_PICKLE_FILE}. Give the folder of a run, "
                             "storage_path/name.") from error
        if not issubclass(saved["class"], cls):
            raise ValueError(f"Invalid trainer type: {path} is the run of a {saved['class'].__name__}: use {saved['class'].__name__}.restore")
        if missing := sorted(set(saved["datasets"]) - set(datasets or {})):
            raise ValueError(f"{cls.__name__}.restore: give the datasets again that the trainer had: {', '.join(missing)}")
        given = {"datasets": datasets, "scaling_config": scaling_config, **kwargs}
        arguments = {**saved["arguments"], **{name: value for name, value in given.items() if value is not None}}
        root, _, name = folder.rpartition("/")
        config = arguments.get("run_config") or RunConfig()
        import dataclasses

        arguments["run_config"] = dataclasses.replace(config, name=name, storage_path=root, storage_filesystem=None if files.local else files.arrow())
        trainer: Self = saved["class"](**arguments)
        trainer._restored = True
        return trainer

    def __repr__(self) -> str:
        shown = [f"{name}={format_datasets_for_repr(value) if name == 'datasets' else repr(value)}" for name, value in self._arguments.items()
                 if value is not None and value != {}]
        return f"<{type(self).__name__} {' '.join(shown)}>"


def format_datasets_for_repr(datasets: dict[str, Any]) -> str:
    """Names and kinds of datasets, without their rows."""
    return "{" + ", ".join(f"{name!r}: {type(dataset).__name__}" for name, dataset in datasets.items()) + "}"


PREPROCESSOR_DEPRECATION_MESSAGE = ("Trainers take no `preprocessor`: transform the datasets before they are given to the trainer, and keep what is needed "
                                    "to do so again in a checkpoint or in `metadata`.")
