"""From what a user says to a running search, afresh or from where another was."""
from __future__ import annotations

import logging
import os
import re
import time
from typing import TYPE_CHECKING, Any

import raygo
from raygo.train._folder import lock_run
from raygo.tune.analysis import ExperimentAnalysis
from raygo.tune.error import BadArgument, TuneError
from raygo.tune.execution.controller import Options, TuneController
from raygo.tune.execution.schedule import restore_scheduler, tell_scheduler
from raygo.tune.execution.state import load_trials, session_files
from raygo.tune.execution.storage import ExperimentStorage
from raygo.tune.experiment.trial import Trial
from raygo.tune.schedulers.trial_scheduler import FIFOScheduler, TrialScheduler
from raygo.tune.search.basic_variant import BasicVariantGenerator
from raygo.tune.search.concurrency_limiter import ConcurrencyLimiter
from raygo.tune.search.search_algorithm import SearchAlgorithm
from raygo.tune.search.search_generator import SearchGenerator
from raygo.tune.search.searcher import Searcher
from raygo.tune.search.util import tell
from raygo.tune.search.variant_generator import has_unresolved
from raygo.tune.tune_config import ResumeConfig
from raygo.tune.utils.callback import with_default_callbacks

if TYPE_CHECKING:
    from raygo.tune.experiment.experiment import Experiment

__all__ = ["TUNER_FILE", "run_search"]

log = logging.getLogger("raygo.tune")

UNDATED_ENV = "TUNE_DISABLE_DATED_SUBDIR"
# By which a folder is known as that of a search.
TUNER_FILE = "tuner.pkl"


def run_search(experiment: Experiment, *, metric: str | None, mode: str | None, search_alg: Any, scheduler: Any, max_concurrent: int | None,
               options: Options, settings: Any, resume: ResumeConfig | None = None, reporter: Any = None, renew: bool = False) -> ExperimentAnalysis:
    """Run an experiment.

    Parameters
    ----------
    settings : dict
        What is written to tuner.pkl.
    resume : ResumeConfig, optional
        Go on with the experiment that is in the folder.
    renew : bool
        The space was given again: what its trials have of it that is no plain value comes from there.
    """
    if not raygo.is_initialized():
        raygo.init()
    pickled = _pickled(settings)            # before the search has changed anything in it
    search = _search(search_alg, max_concurrent)
    schedule = _scheduler(scheduler)
    _tell(search, schedule, experiment, metric, mode)
    storage, lock = _folder(experiment, resume is not None)
    try:
        return _run(experiment, storage, search, schedule, pickled, metric, mode, options, resume, reporter, renew)
    finally:
        if lock is not None:
            os.close(lock)


def _run(experiment: Experiment, storage: ExperimentStorage, search: SearchAlgorithm, schedule: TrialScheduler, pickled: bytes, metric: str | None,
         mode: str | None, options: Options, resume: ResumeConfig | None, reporter: Any, renew: bool) -> ExperimentAnalysis:
    experiment.storage = storage
    trials: list[Trial] = []
    options.callbacks = with_default_callbacks(options.callbacks)
    search.add_configurations([experiment])
    if resume is not None:
        trials = _resumed(experiment, search, options, resume)
        if renew:
            _renew(experiment, search, trials)
        for trial in trials:
            if not (trial.is_finished() or trial.resources_changed):        # they may have been given anew
                trial.placement_group_factory = experiment.resources_for(trial.config)
    _write(storage, TUNER_FILE, pickled)
    options.reporter = reporter
    if reporter is not None:
        reporter.begin(experiment, search, schedule, metric or search.metric, mode)
    controller = TuneController(experiment, search, schedule, options, trials)
    tell_scheduler(schedule, controller, trials, restore_scheduler(schedule, trials, storage.local_path) if resume is not None else None)
    controller.run()
    told = mode or getattr(getattr(search, "searcher", schedule), "_mode", None)
    return ExperimentAnalysis(storage.path, storage_filesystem=None if storage.is_local else storage.filesystem, trials=controller.trials,
                              default_metric=_one(metric or search.metric), default_mode=_one(told))


def _one(value: Any) -> str | None:
    """What there is one of; a searcher may have several objectives, and then nothing is the best."""
    return value if isinstance(value, str) else None


def _pickled(settings: Any) -> bytes:
    from raygo import cloudpickle

    try:
        return bytes(cloudpickle.dumps(settings))
    except Exception as error:
        raise TuneError(f"the search's settings cannot be pickled, which restoring it needs: {error}. "
                        "Look at param_space, search_alg, callbacks and stop.") from error


def _write(storage: ExperimentStorage, name: str, data: bytes) -> None:
    path = os.path.join(storage.local_path, name)
    with open(path + ".tmp", "wb") as file:
        file.write(data)
    os.replace(path + ".tmp", path)


def _search(search_alg: Any, max_concurrent: int | None) -> SearchAlgorithm:
    if isinstance(search_alg, str):
        from raygo.tune.search import create_searcher

        search_alg = create_searcher(search_alg)
    if search_alg is None:
        return BasicVariantGenerator(max_concurrent=max_concurrent or 0)
    if isinstance(search_alg, BasicVariantGenerator):
        if max_concurrent:
            search_alg.max_concurrent = max_concurrent
        return search_alg
    if isinstance(search_alg, Searcher):
        if isinstance(search_alg, ConcurrencyLimiter):
            if max_concurrent and search_alg.max_concurrent != max_concurrent:
                raise BadArgument(f"max_concurrent_trials is {max_concurrent}, but search_alg is a ConcurrencyLimiter with max_concurrent="
                                  f"{search_alg.max_concurrent}: leave max_concurrent_trials out")
        elif max_concurrent:
            search_alg = ConcurrencyLimiter(search_alg, max_concurrent)
        return SearchGenerator(search_alg)
    if isinstance(search_alg, SearchAlgorithm):
        if max_concurrent:
            log.warning("max_concurrent_trials is for Searchers: %s is asked for trials as long as there is room for them", type(search_alg).__name__)
        return search_alg
    raise BadArgument(f"search_alg is a {type(search_alg).__name__}: give a Searcher, a SearchAlgorithm, or the name of one")


def _scheduler(scheduler: Any) -> TrialScheduler:
    if isinstance(scheduler, str):
        from raygo.tune.schedulers import create_scheduler

        return create_scheduler(scheduler)
    if scheduler is None:
        return FIFOScheduler()
    if not isinstance(scheduler, TrialScheduler):
        raise BadArgument(f"scheduler is a {type(scheduler).__name__}: give a TrialScheduler, or the name of one")
    return scheduler


def _tell(search: SearchAlgorithm, scheduler: TrialScheduler, experiment: Experiment, metric: str | None, mode: str | None) -> None:
    """Searcher and scheduler hear what is optimised."""
    spec = experiment.public_spec
    if not tell(search.set_search_properties, metric, mode, experiment.config, **spec) and has_unresolved(experiment.config):
        raise ValueError("You passed a search space to the Tuner, but the search algorithm has one of its own, or metric and mode of its own and others "
                         "were given to TuneConfig. Give each of them in one place.")
    if not tell(scheduler.set_search_properties, metric, mode, **spec):
        raise ValueError(f"You passed a `metric` or `mode` argument to TuneConfig ({metric!r}, {mode!r}), but the {type(scheduler).__name__} has its own "
                         f"({scheduler.metric!r}, {scheduler._mode!r}). Give them in one place.")


def _folder(experiment: Experiment, resumes: bool) -> tuple[ExperimentStorage, int | None]:
    """The experiment's folder, and the lock that keeps it for this driver."""
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
    name = experiment.name or re.sub(r"[^0-9A-Za-z_.-]", "_", experiment.run_identifier) + ("" if os.environ.get(UNDATED_ENV) == "1" else f"_{stamp}")
    storage = ExperimentStorage(experiment.storage_path, name, experiment.storage_filesystem)
    for number in range(2, 1000):
        if resumes or not storage.has(TUNER_FILE):
            storage.prepare()
            try:
                return storage, lock_run(storage._context)
            except ValueError:
                if experiment.name is not None:
                    raise
        elif experiment.name is not None:
            raise TuneError(f"{storage.path} has a search already, which another one of the same name would mix with. Give RunConfig another name or "
                            f"storage_path, go on with it by Tuner.restore({storage.path!r}, trainable=...), or remove the folder.")
        storage = ExperimentStorage(experiment.storage_path, f"{name}_{number}", experiment.storage_filesystem)
    raise TuneError(f"{storage.path} and a thousand others are there already: give RunConfig a name")


def trial_settings(experiment: Experiment) -> dict[str, Any]:
    """What all trials are made with."""
    return {"checkpoint_config": experiment.checkpoint_config, "max_failures": experiment.max_failures, "log_to_file": experiment.log_to_file,
            "export_formats": experiment.export_formats, "trial_dirname_creator": experiment.trial_dirname_creator}


def _resumed(experiment: Experiment, search: SearchAlgorithm, options: Options, resume: ResumeConfig) -> list[Trial]:
    storage = experiment.storage
    storage.fetch()
    trials: list[Trial] = []
    if any(path.endswith(".json") for path in session_files(storage.local_path)):       # else it was killed before there were any
        trials = load_trials(storage.local_path, storage, trial_settings(experiment))
    if search.has_checkpoint(storage.local_path):
        search.restore_from_dir(storage.local_path)
    # The log knows of more trials than a searcher that is saved now and then.
    if isinstance(search, (BasicVariantGenerator, SearchGenerator)):
        search._finished = search._finished and search._made == len(trials)
        search._made = len(trials)
    kinds = ResumeConfig.ResumeType
    for i, trial in enumerate(trials):
        what = resume.errored if trial.status == Trial.ERROR else resume.finished if trial.status == Trial.TERMINATED else resume.unfinished
        trial.num_failures_after_restore = 0
        if what is kinds.RESTART:
            trials[i] = trial.reset()
        elif what is kinds.RESUME:
            trial.status, trial.error_text, trial.error = Trial.PENDING, None, None
            trial.num_failures = 0
            _drop_missing(trial)
        elif not trial.is_finished():
            trial.status = Trial.TERMINATED
    if isinstance(search, BasicVariantGenerator):
        search._live = {t.trial_id for t in trials if not t.is_finished()}
    _restore_callbacks(storage.local_path, options)
    return trials


def _drop_missing(trial: Trial) -> None:
    """A trial goes on from its newest checkpoint that is still there."""
    while (newest := trial.checkpoint) is not None and not newest._files.is_folder(newest.path):
        log.warning("the checkpoint %s of %s is not there any more", newest.path, trial)
        trial.checkpoints.pop()


def _renew(experiment: Experiment, search: SearchAlgorithm, trials: list[Trial]) -> None:
    """References to objects of an earlier session, for one, are of no use any more."""
    known = search.made_before() if isinstance(search, BasicVariantGenerator) else [experiment.config] * len(trials)
    for trial, config in zip(trials, known, strict=False):
        trial.set_config(_renewed(trial.config, config))


def _renewed(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return {key: _renewed(value, new[key]) if key in new else value for key, value in old.items()}
    if isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)) and len(old) == len(new):
        return getattr(old, "_make", type(old))(map(_renewed, old, new))        # a namedtuple takes its values one by one
    # What was drawn stays as it was; a domain says nothing about what was drawn from it.
    return old if isinstance(old, (str, bytes, int, float, type(None))) or has_unresolved(new) else new


def _restore_callbacks(folder: str, options: Options) -> None:
    from raygo.tune.callback import CallbackList

    callbacks = CallbackList(options.callbacks)
    if callbacks.can_restore(folder):
        callbacks.restore_from_dir(folder)
