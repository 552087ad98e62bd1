"""The search, as users start it."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from raygo.tune.error import TuneError
from raygo.tune.tune_config import ResumeConfig, TuneConfig

if TYPE_CHECKING:
    from raygo.tune.result_grid import ResultGrid

__all__ = ["Tuner"]

_UNSET = "DEPRECATED"


class Tuner:
    """Searches a space of configurations for a trainable.

    Parameters
    ----------
    trainable : callable, class, trainer or str
        What is tried: a function of a config, a `Trainable` class, a trainer of raygo.train, or the name of a registered one.
    param_space : dict, optional
        The configurations: plain values, domains such as ``uniform(0, 1)``, grids, and nested dicts and lists of them.  For a trainer its
        parameters, such as ``{"train_loop_config": {...}}``.
    tune_config : TuneConfig, optional
        How the search goes about its trials.
    run_config : RunConfig, optional
        Where results go, and what else belongs to the run.

    Examples
    --------
    >>> def train(config):
    ...     for step in range(3):
    ...         raygo.tune.report({"loss": (config["x"] - 2) ** 2 / (step + 1)})
    >>> tuner = Tuner(train, param_space={"x": raygo.tune.uniform(0, 4)},
    ...               tune_config=TuneConfig(metric="loss", mode="min", num_samples=20))
    >>> tuner.fit().get_best_result().config                # doctest: +SKIP
    {'x': 1.97}
    """

    def __init__(self, trainable: Any = None, *, param_space: dict[str, Any] | None = None, tune_config: TuneConfig | None = None,
                 run_config: Any = None, _tuner_kwargs: dict[str, Any] | None = None, _tuner_internal: Any = None, _entrypoint: Any = None) -> None:
        if trainable is None:
            raise TuneError("You need to provide a trainable to tune: a function, a Trainable class or a trainer.")
        if tune_config is not None and not isinstance(tune_config, TuneConfig):
            raise ValueError(f"tune_config is a {type(tune_config).__name__}: give a TuneConfig")
        if run_config is not None and not hasattr(run_config, "storage_path"):
            raise ValueError(f"run_config is a {type(run_config).__name__}: give a RunConfig")
        if param_space is not None and not isinstance(param_space, dict):
            raise ValueError(f"param_space is a {type(param_space).__name__}: give a dict")
        from raygo.train._trial import opened
        from raygo.tune.config import RunConfig
        from raygo.tune.experiment.experiment import trainable_class

        trainable_class(trainable)            # what cannot be tried fails here
        self._trainable = trainable
        self._param_space = opened(param_space or {})
        self._tune_config = tune_config or TuneConfig()
        self._run_config = run_config or getattr(trainable, "run_config", None) or RunConfig()
        self._resume: ResumeConfig | None = None
        self._renew = False
        self._grid: ResultGrid | None = None

    def fit(self) -> ResultGrid:
        """Run the search, and wait for it.  Trials that fail are in the result with their errors."""
        from raygo.tune.result_grid import ResultGrid

        self._grid = ResultGrid(self._run())
        return self._grid

    def _run(self) -> Any:
        from raygo.train._trial import say_what_does_not_count, tune_callbacks
        from raygo.tune.execution.controller import Options
        from raygo.tune.execution.search import run_search
        from raygo.tune.experiment.experiment import Experiment
        from raygo.tune.progress_reporter import reporter_for

        tune, run = self._tune_config, self._run_config
        if self._resume is None and run is not getattr(self._trainable, "run_config", None):
            say_what_does_not_count(self._trainable)
        failures = run.failure_config
        stop = _given(run.stop)
        fail_fast = _given(getattr(failures, "fail_fast", None)) or False
        experiment = Experiment(
            run.name, self._trainable, stop=stop, time_budget_s=tune.time_budget_s, config=self._param_space, num_samples=tune.num_samples,
            storage_path=run.storage_path, storage_filesystem=run.storage_filesystem, checkpoint_config=run.checkpoint_config,
            trial_name_creator=tune.trial_name_creator, trial_dirname_creator=tune.trial_dirname_creator, log_to_file=_given(run.log_to_file) or False,
            max_failures=getattr(failures, "max_failures", 0))
        settings = {"trainable_name": experiment.run_identifier, "param_space": self._param_space, "tune_config": tune, "run_config": run}
        reporter = reporter_for(_given(run.verbose), _given(run.progress_reporter), tune.metric, tune.mode)
        return run_search(experiment, metric=tune.metric, mode=tune.mode, search_alg=tune.search_alg, scheduler=tune.scheduler,
                          max_concurrent=tune.max_concurrent_trials, options=Options(fail_fast, tune.reuse_actors, tune_callbacks(run.callbacks)),
                          settings=settings, resume=self._resume, reporter=reporter, renew=self._renew)

    def get_results(self) -> ResultGrid:
        """The results of a search that has been run, here or before `restore`."""
        if self._grid is not None:
            return self._grid
        if self._resume is None:
            raise RuntimeError("there are no results yet: call fit() first, or restore a search that has been run")
        from raygo.tune.analysis import ExperimentAnalysis
        from raygo.tune.result_grid import ResultGrid

        run = self._run_config
        path = f"{str(run.storage_path).rstrip('/')}/{run.name}"
        return ResultGrid(ExperimentAnalysis(path, storage_filesystem=run.storage_filesystem, default_metric=self._tune_config.metric,
                                             default_mode=self._tune_config.mode))

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> bool:
        """Whether `path` is the folder of a search.

        Parameters
        ----------
        path : str
            A path or a URI.
        storage_filesystem : pyarrow.fs.FileSystem, optional
            Where the path is.
        """
        from raygo.train._files import join, resolve
        from raygo.tune.execution.search import TUNER_FILE

        files, folder = resolve(path, storage_filesystem)
        return files.is_file(join(folder, TUNER_FILE))

    @classmethod
    def restore(cls, path: str | os.PathLike[str], trainable: Any, resume_unfinished: bool = True, resume_errored: bool = False,
                restart_errored: bool = False, param_space: dict[str, Any] | None = None, storage_filesystem: Any = None,
                _resume_config: ResumeConfig | None = None) -> Tuner:
        """A Tuner that goes on with a search, from its folder; the folder may have been moved.

        Parameters
        ----------
        path : str
            The folder, or a URI of it.
        trainable : callable, class, trainer or str
            The same trainable.
        resume_unfinished : bool
            Go on with trials that have not ended; else they stay as they are.
        resume_errored : bool
            Go on with trials that have failed, from their newest checkpoints.
        restart_errored : bool
            Start trials that have failed from the beginning.
        param_space : dict, optional
            The same space, where it has values that could not be stored, such as references to objects: the trials get those that are in it now.
        storage_filesystem : pyarrow.fs.FileSystem, optional
            Where `path` is.
        """
        from raygo import cloudpickle
        from raygo.train._files import join, resolve
        from raygo.tune.execution.search import TUNER_FILE
        from raygo.tune.trainable.util import name_of

        if resume_errored and restart_errored:
            raise ValueError("resume_errored and restart_errored exclude each other")
        files, folder = resolve(path, storage_filesystem)
        if not files.is_file(join(folder, TUNER_FILE)):
            raise ValueError(f"{os.fspath(path)} is not the folder of a search: it has no {TUNER_FILE}. "
                             "Give the folder that Tuner.fit() made, storage_path/name.")
        settings = cloudpickle.loads(files.read(join(folder, TUNER_FILE)))
        if name_of(trainable) != settings["trainable_name"]:
            raise ValueError(f"the search in {os.fspath(path)} is of the trainable {settings['trainable_name']!r}, not of {name_of(trainable)!r}: "
                             "give the same one")
        run = settings["run_config"]
        text = os.fspath(path).rstrip("/")
        run.storage_path, _, run.name = (text if "://" in text or storage_filesystem is not None else folder).rpartition("/")
        run.storage_filesystem = storage_filesystem
        tuner = cls(trainable, param_space=settings["param_space"] if param_space is None else param_space, tune_config=settings["tune_config"], run_config=run)
        tuner._renew = param_space is not None
        kinds = ResumeConfig.ResumeType
        tuner._resume = _resume_config or ResumeConfig(
            finished=kinds.SKIP, unfinished=kinds.RESUME if resume_unfinished else kinds.SKIP,
            errored=kinds.RESUME if resume_errored else kinds.RESTART if restart_errored else kinds.SKIP)
        return tuner

    def __repr__(self) -> str:
        from raygo.tune.trainable.util import name_of

        return f"Tuner({name_of(self._trainable)}, {self._tune_config.num_samples} samples)"


def _given(value: Any) -> Any:
    return None if isinstance(value, str) and value == _UNSET else value
