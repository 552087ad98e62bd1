"""A search by one call, as it was before there was a Tuner."""
from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from raygo.tune.analysis import ExperimentAnalysis
from raygo.tune.config import CheckpointConfig
from raygo.tune.error import TuneError
from raygo.tune.experiment.experiment import Experiment, _convert_to_experiment_list
from raygo.tune.experiment.trial import Trial
from raygo.tune.tune_config import ResumeConfig

__all__ = ["run", "run_experiments"]


def run(run_or_experiment: Any, *, name: str | None = None, metric: str | None = None, mode: str | None = None, stop: Any = None,
        time_budget_s: Any = None, config: dict[str, Any] | None = None, resources_per_trial: Any = None, num_samples: int = 1,
        storage_path: str | None = None, storage_filesystem: Any = None, search_alg: Any = None, scheduler: Any = None,
        checkpoint_config: Any = None, verbose: Any = None, progress_reporter: Any = None, log_to_file: Any = False,
        trial_name_creator: Callable[[Trial], str] | None = None, trial_dirname_creator: Callable[[Trial], str] | None = None,
        sync_config: Any = None, export_formats: Any = None, max_failures: int = 0, fail_fast: Any = False, restore: str | None = None,
        resume: Any = None, resume_config: ResumeConfig | None = None, reuse_actors: bool = False, raise_on_failed_trial: bool = True,
        callbacks: list[Any] | None = None, max_concurrent_trials: int | None = None, keep_checkpoints_num: int | None = None,
        checkpoint_score_attr: str | None = None, checkpoint_freq: int = 0, checkpoint_at_end: bool = False, chdir_to_trial_dir: Any = "DEPRECATED",
        local_dir: str | None = None, _remote: Any = None, _remote_string_queue: Any = None, _entrypoint: Any = None) -> ExperimentAnalysis:
    """Run a search, and wait for it.  `Tuner` does the same, and its parts say what the parameters mean.

    Parameters
    ----------
    run_or_experiment : callable, class, str or Experiment
        What is tried.
    config : dict, optional
        The search space.
    resources_per_trial : dict or PlacementGroupFactory, optional
        What a trial reserves.
    resume : bool or str, optional
        True: go on with the search of this name; "AUTO": if there is one; "ERRORED", "RESTART_ERRORED": and with its failed trials, from their
        checkpoints or from the beginning.
    raise_on_failed_trial : bool
        Whether a failed trial is an error in the end.

    Raises
    ------
    TuneError
        Trials have failed.

    Examples
    --------
    >>> analysis = run(train, config={"lr": tune.loguniform(1e-4, 1)}, num_samples=10, metric="loss", mode="min")     # doctest: +SKIP
    >>> analysis.best_config                                                                                           # doctest: +SKIP
    {'lr': 0.012}
    """
    if chdir_to_trial_dir != "DEPRECATED":
        raise ValueError("chdir_to_trial_dir is the environment variable RAY_CHDIR_TO_TRIAL_DIR now: 0 or 1")
    if keep_checkpoints_num is not None or checkpoint_score_attr is not None or checkpoint_freq or checkpoint_at_end:
        raise ValueError("keep_checkpoints_num, checkpoint_score_attr, checkpoint_freq and checkpoint_at_end are "
                         "checkpoint_config=CheckpointConfig(num_to_keep=, checkpoint_score_attribute=, checkpoint_frequency=, checkpoint_at_end=) now")
    if mode not in (None, "max", "min"):
        raise ValueError(f"The `mode` parameter passed to `tune.run()` has to be one of ['min', 'max'], not {mode!r}")
    if isinstance(run_or_experiment, list):
        return _several([_as_experiment(e) for e in run_or_experiment], locals())
    if isinstance(run_or_experiment, Experiment):
        experiment = run_or_experiment
    else:
        from raygo.train._trial import say_what_does_not_count

        say_what_does_not_count(run_or_experiment)
        experiment = Experiment(name, run_or_experiment, stop=stop, time_budget_s=time_budget_s, config=config, resources_per_trial=resources_per_trial,
                                num_samples=num_samples, storage_path=storage_path if storage_path is not None else local_dir,
                                storage_filesystem=storage_filesystem, checkpoint_config=checkpoint_config or CheckpointConfig(),
                                trial_name_creator=trial_name_creator, trial_dirname_creator=trial_dirname_creator, log_to_file=log_to_file,
                                export_formats=export_formats, max_failures=max_failures, restore=restore)
    return _run_one(experiment, metric=metric, mode=mode, search_alg=search_alg, scheduler=scheduler, verbose=verbose, progress_reporter=progress_reporter,
                    fail_fast=fail_fast, resume=resume, resume_config=resume_config, reuse_actors=reuse_actors, callbacks=callbacks,
                    raise_on_failed_trial=raise_on_failed_trial, max_concurrent_trials=max_concurrent_trials)


def _run_one(experiment: Experiment, *, metric: str | None = None, mode: str | None = None, search_alg: Any = None, scheduler: Any = None, verbose: Any = None,
             progress_reporter: Any = None, fail_fast: Any = False, resume: Any = None, resume_config: ResumeConfig | None = None, reuse_actors: bool = False,
             callbacks: list[Any] | None = None, raise_on_failed_trial: bool = True, max_concurrent_trials: int | None = None) -> ExperimentAnalysis:
    from raygo.tune.config import RunConfig
    from raygo.tune.execution.controller import Options
    from raygo.tune.execution.search import run_search
    from raygo.tune.progress_reporter import reporter_for
    from raygo.tune.tune_config import TuneConfig

    # What Tuner.restore needs to go on with it.
    settings = {"trainable_name": experiment.run_identifier, "param_space": experiment.config,
                "tune_config": TuneConfig(mode=mode, metric=metric, search_alg=search_alg, scheduler=scheduler, num_samples=experiment.num_samples,
                                          max_concurrent_trials=max_concurrent_trials, reuse_actors=reuse_actors),
                "run_config": RunConfig(name=experiment.name, storage_path=experiment.storage_path, checkpoint_config=experiment.checkpoint_config,
                                        stop=experiment.stopping_criterion or experiment.stopper, callbacks=callbacks, verbose=verbose)}
    analysis = run_search(experiment, metric=metric, mode=mode, search_alg=search_alg, scheduler=scheduler, max_concurrent=max_concurrent_trials,
                          options=Options(fail_fast, reuse_actors, list(callbacks or [])), settings=settings,
                          resume=_resume(experiment, resume, resume_config), reporter=reporter_for(verbose, progress_reporter, metric, mode))
    failed = [trial for trial in analysis.trials if trial.status == Trial.ERROR]
    if failed and raise_on_failed_trial:
        raise TuneError(f"Trials did not complete: {failed}. The first failed with: {failed[0].error_text}") from failed[0].get_error()
    return analysis


def _resume(experiment: Experiment, resume: Any, config: ResumeConfig | None) -> ResumeConfig | None:
    from raygo.tune.tuner import Tuner

    if not resume and config is None:
        return None
    base = os.fspath(experiment.storage_path) if experiment.storage_path is not None else None
    from raygo.train._storage import default_storage_path

    path = f"{(base or default_storage_path()).rstrip('/')}/{experiment.name}"
    if experiment.name is None:
        raise ValueError("resume needs the name of the search to go on with")
    if not Tuner.can_restore(path, experiment.storage_filesystem):
        if isinstance(resume, str) and resume.upper().startswith("AUTO"):
            return None
        raise ValueError(f"there is no search in {path} to go on with; resume='AUTO' starts one where there is none")
    if config is not None:
        return config
    kinds = ResumeConfig.ResumeType
    words = str(resume).upper()
    errored = kinds.RESTART if "RESTART_ERRORED" in words else kinds.RESUME if "ERRORED" in words else kinds.SKIP
    return ResumeConfig(errored=errored)


def _as_experiment(value: Any) -> Experiment:
    if not isinstance(value, Experiment):
        raise TuneError(f"a list of experiments has a {type(value).__name__}: give Experiments")
    return value


def _several(experiments: list[Experiment], given: dict[str, Any]) -> ExperimentAnalysis:
    names = ("metric", "mode", "search_alg", "scheduler", "verbose", "progress_reporter", "fail_fast", "resume", "resume_config", "reuse_actors", "callbacks",
             "raise_on_failed_trial", "max_concurrent_trials")
    options = {key: given[key] for key in names}
    analyses = [_run_one(experiment, **options) for experiment in experiments]
    return ExperimentAnalysis(analyses[0].experiment_path, trials=[t for a in analyses for t in a.trials], default_metric=given["metric"],
                              default_mode=given["mode"])


def run_experiments(experiments: Any, scheduler: Any = None, verbose: Any = None, progress_reporter: Any = None, resume: Any = None,
                    resume_config: ResumeConfig | None = None, reuse_actors: bool = False, raise_on_failed_trial: bool = True, concurrent: bool = True,
                    callbacks: list[Any] | None = None, _remote: Any = None) -> list[Trial]:
    """Run several experiments, one after the other; their trials.

    Parameters
    ----------
    experiments : Experiment, list of Experiment or dict
        The experiments; a dict has specs by name.
    concurrent : bool
        Accepted for scripts that give it.  Each experiment uses all of the cluster.
    """
    trials: list[Trial] = []
    for experiment in _convert_to_experiment_list(experiments):
        trials.extend(_run_one(experiment, scheduler=scheduler, verbose=verbose, progress_reporter=progress_reporter, resume=resume,
                               resume_config=resume_config, reuse_actors=reuse_actors, raise_on_failed_trial=raise_on_failed_trial,
                               callbacks=callbacks).trials)
    return trials
