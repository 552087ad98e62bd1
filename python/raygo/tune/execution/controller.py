"""The driver's loop: starts trials, takes their reports, and does what scheduler, searcher and stoppers decide.

Everything happens in one thread, at events: a trial has started, has reported, has failed, or has ended. Between events the loop sleeps in
`raygo.wait`. A report is acted upon before its trial goes on; nothing that one trial does keeps the others waiting.

What is decided is here. `TrialTable` knows the trials, `Runs` their processes and the calls to them, `ExperimentState` and `Autosave` write down.
"""
from __future__ import annotations

import contextlib
import logging
import os
from dataclasses import dataclass, field
from sys import intern
from typing import TYPE_CHECKING, Any

import raygo
from raygo.exceptions import ActorUnschedulableError, RayError, RayTaskError
from raygo.tune.callback import CallbackList
from raygo.tune.error import BadArgument, TuneError
from raygo.tune.execution.actor import Common
from raygo.tune.execution.autosave import Autosave
from raygo.tune.execution.checkpoints import Keeper
from raygo.tune.execution.failures import explained, first_line
from raygo.tune.execution.metrics import unreported
from raygo.tune.execution.processes import Process, Processes
from raygo.tune.execution.runs import EXPORT, PAUSE, SAVE, START, STOP, Call, Runs, Saving
from raygo.tune.execution.session import CHECKPOINT_ELSEWHERE, FUNCTION_ENDED
from raygo.tune.execution.state import ExperimentState
from raygo.tune.execution.table import TrialTable
from raygo.tune.experiment.trial import Trial
from raygo.tune.result import CHECKPOINT_DIR_NAME, DONE, RESULT_DUPLICATE
from raygo.tune.schedulers.trial_scheduler import TrialScheduler
from raygo.tune.search.basic_variant import BasicVariantGenerator
from raygo.tune.trainable.function_trainable import FunctionTrainable
from raygo.tune.utils.dicts import flatten_dict
from raygo.tune.utils.resource_updater import ResourceUpdater

if TYPE_CHECKING:
    from raygo.tune.experiment.experiment import Experiment
    from raygo.tune.search.search_algorithm import SearchAlgorithm

__all__ = ["Options", "TuneController"]

log = logging.getLogger("raygo.tune")

MOST_PENDING_ENV = "TUNE_MAX_PENDING_TRIALS_PG"


def most_pending() -> int | None:
    """How many trials may wait for resources, where the environment says so."""
    most = os.environ.get(MOST_PENDING_ENV, "auto").strip()
    if most == "auto":
        return None
    if not most.isdecimal() or int(most) < 1:
        raise BadArgument(f"{MOST_PENDING_ENV} is {most!r}: give how many trials may wait for resources, 1 or more, or auto")
    return int(most)


@dataclass
class Options:
    """How a search is run."""

    fail_fast: bool | str = False
    reuse_actors: bool = False
    callbacks: list[Any] = field(default_factory=list)
    reporter: Any = None
    most_pending: int | None = field(default_factory=most_pending)


class TuneController:
    """Runs an experiment.

    Attributes
    ----------
    trials : list of Trial
        All trials.
    """

    def __init__(self, experiment: Experiment, search_alg: SearchAlgorithm, scheduler: TrialScheduler, options: Options,
                 trials: list[Trial] | None = None) -> None:
        self.experiment = experiment
        self.storage = experiment.storage
        self.search_alg = search_alg
        self.scheduler_alg = scheduler
        self.options = options
        self.iteration = 0
        self._table = TrialTable(trials or [])
        self._stopping_all = False
        self._failed = False
        self._paused: set[str] = set()
        self._missed: set[str] = set()          # stopping criteria of which it was said that reports lack them
        self._is_function = issubclass(experiment.trainable, FunctionTrainable)
        self._callbacks = CallbackList(options.callbacks)
        self._keeper = Keeper(self.storage)
        self._state = ExperimentState(self.storage.local_path, self.trials)
        self._autosave = Autosave(self.storage, self._state, search_alg, scheduler, self._callbacks)
        cpus = int(raygo.cluster_resources().get("CPU", 1))
        # A searcher proposes when a trial can start, so that it knows as much as can be known; drawn trials may queue.
        drawn = isinstance(search_alg, BasicVariantGenerator)
        self._most_pending = max(16, cpus) if drawn else 1
        self._most_starting = max(2, cpus) if drawn else 1
        if options.most_pending is not None:
            self._most_pending = self._most_starting = options.most_pending
        self._resource_updater = ResourceUpdater()          # schedulers of users ask it
        self._runs = Runs(self._table, self._keeper, Processes(self._common(), options.reuse_actors), self._setup)

    def _common(self) -> Common:
        frequency, at_end = 0, False
        config = self.experiment.checkpoint_config
        if config is not None and not self._is_function:      # functions make their checkpoints themselves
            frequency, at_end = config.checkpoint_frequency or 0, config.checkpoint_at_end is True
        return Common(self.experiment.trainable, self.storage.context, frequency, at_end, self.experiment.log_to_file,
                      os.environ.get("RAY_CHDIR_TO_TRIAL_DIR", "1") != "0")

    def _setup(self, trial: Trial, checkpoint: Any, counters: dict[str, Any]) -> tuple[Any, ...]:
        """What a trial's process is told: the arguments of `TrialSetup` after the first."""
        return (trial.config, trial.placement_group_factory, str(trial.relative_logdir), trial.trial_id, str(trial), trial.checkpoints_made,
                checkpoint, counters)

    @property
    def trials(self) -> list[Trial]:
        return self._table.all

    # ---- what schedulers ask

    def get_trials(self) -> list[Trial]:
        """All trials."""
        return self.trials

    def get_live_trials(self) -> set[Trial]:
        """Those that are not finished."""
        return set(self._table.live.values())

    def get_live_trials_in_order(self) -> list[Trial]:
        """Those that are not finished, in the order in which they came."""
        return list(self._table.live.values())

    def has_running_trials(self) -> bool:
        """Whether a trial has a process."""
        return bool(self._runs.started)

    def get_trial(self, trial_id: str) -> Trial | None:
        """A trial by its id."""
        return self._table.get(trial_id)

    def startable_trials(self) -> list[Trial]:
        """Those that could be started now, in the order in which they came; not to be changed."""
        return self._table.startable()

    # ---- what schedulers do

    def pause_trial(self, trial: Trial, should_checkpoint: bool = True) -> None:
        """Take a trial's process away; it goes on later from its newest checkpoint."""
        self._pause(trial, save=should_checkpoint)

    def stop_trial(self, trial: Trial) -> None:
        """End a trial."""
        if not trial.is_finished():
            waits = trial.status in (Trial.PENDING, Trial.PAUSED)
            if waits:
                self.scheduler_alg.on_trial_remove(self, trial)
            else:
                self.scheduler_alg.on_trial_complete(self, trial, flatten_dict(trial.last_result))
            self._complete(trial, tell_scheduler=False)

    def save_trial(self, trial: Trial) -> tuple[Any, dict[str, Any]] | Saving | None:
        """The trial's state now, as a checkpoint and its report; while a class makes one, what will have it."""
        process = self._runs.started.get(trial.trial_id)
        newest = trial.latest_checkpoint_result
        if self._is_function or process is None or not process.started or _up_to_date(trial):
            return newest  # type: ignore[no-any-return]
        return self._runs.save(trial, process)

    def restart_from(self, trial: Trial, config: dict[str, Any], source: tuple[Any, dict[str, Any]] | Saving) -> None:
        """Give a trial another's checkpoint and a new config; it starts from there when it is its turn."""
        self._pause(trial, save=False)
        trial.set_config(config)
        self._runs.start_from(trial, source)
        self._state.changed(trial)

    def fail_trial(self, trial: Trial, error: BaseException) -> None:
        """Something that is not the trial's own fault keeps it from going on."""
        self._has_failed(trial, error)

    def update_resources(self, trial: Trial, resources: Any) -> None:
        """Give a trial that does not run other resources."""
        trial.update_resources(resources)
        self._state.changed(trial, whole=True)

    # ---- the loop

    def run(self) -> None:
        """Until all trials have ended."""
        self._state.begin()
        self._autosave.save()
        self._callbacks.setup(stop=self.experiment.stopping_criterion, num_samples=self.experiment.num_samples,
                              total_num_samples=self.search_alg.total_samples)
        try:
            while not self._finished():
                self._step()
        except KeyboardInterrupt:
            log.warning("interrupted: %d of %d trials have not ended. Tuner.restore(%r, ...) goes on from here.", len(self._table.live), len(self.trials),
                        self.storage.path)
        finally:
            self._end()

    def _finished(self) -> bool:
        if self._table.live:
            return False
        if self._stopping_all:
            return True
        if not self.search_alg.is_finished() and not self._add_trials() and not self.search_alg.is_finished():
            who = getattr(self.search_alg, "searcher", self.search_alg)
            raise TuneError(f"{type(who).__name__} proposes nothing, though there is no trial that it could wait for; a searcher that is done "
                            "returns Searcher.FINISHED")
        return not self._table.live and self.search_alg.is_finished()

    def _step(self) -> None:
        self.iteration += 1
        self._callbacks.on_step_begin(iteration=self.iteration, trials=self.trials)
        if not self._stopping_all and self._stop_all_wanted():
            self.stop_all()
        if not self._stopping_all:
            self._start_trials()
        refs = self._runs.refs()
        if refs:
            ready, _ = raygo.wait(refs, num_returns=1, timeout=self._patience())
            if len(refs) > 1 and ready:
                ready, _ = raygo.wait(refs, num_returns=len(refs), timeout=0)
            for ref in ready:
                self._see(ref)
        elif self._table.live and not self._stopping_all:
            self._stuck()
        self._callbacks.on_step_end(iteration=self.iteration, trials=self.trials)
        if self.options.reporter is not None:
            self.options.reporter.tick(self)
        self._autosave.tick()

    def _patience(self) -> float | None:
        """How long the loop may sleep."""
        waits = [self._runs.processes.overdue(), self._stopper_left(), self._runs.slow_saves(), self._autosave.due_in()]
        if self.options.reporter is not None:
            waits.append(self.options.reporter.due_in())
        known = [max(0.0, w) for w in waits if w is not None]
        return min(known) + 0.001 if known else None

    def _stopper_left(self) -> float | None:
        from raygo.tune.stopper import CombinedStopper, TimeoutStopper

        stopper = self.experiment.stopper
        inner = stopper._stoppers if isinstance(stopper, CombinedStopper) else [stopper]
        return min((s.left() for s in inner if isinstance(s, TimeoutStopper)), default=None)

    def _stop_all_wanted(self) -> bool:
        return (self._failed and bool(self.options.fail_fast)) or (self.experiment.stopper is not None and self.experiment.stopper.stop_all())

    def _stuck(self) -> None:
        """Trials are left, nothing runs, and nothing can be started."""
        states = ", ".join(f"{trial} ({trial.status})" for trial in list(self._table.live.values())[:5])
        raise TuneError(f"{len(self._table.live)} trials are left and {type(self.scheduler_alg).__name__} starts none of them: {states}")

    # ---- trials begin

    def _add_trials(self) -> bool:
        """One more trial, if one may be added."""
        if self.search_alg.is_finished() or self._table.has_pending(self._most_pending):
            return False
        trial = self.search_alg.next_trial()
        if trial is None:
            return False
        self._autosave.dirty = True
        trial.relative_logdir = trial.relative_logdir or trial._dirname()
        self._table.add(trial)
        self._state.added(trial)
        self.scheduler_alg.on_trial_add(self, trial)
        return True

    def _start_trials(self) -> None:
        self._runs.hand_over()               # to those that wait already, before a trial that has just paused
        while self._runs.starting < self._most_starting:
            while self._add_trials():
                pass
            trial = self.scheduler_alg.choose_trial_to_run(self)
            if trial is None or trial.trial_id in self._runs.started:
                break
            self._start(trial)
        self._runs.hand_over()
        if self.search_alg.is_finished() and not self._table.startable():
            self._runs.processes.release_idle()

    def _start(self, trial: Trial) -> None:
        trial.init_local_path()
        if trial.trial_id in self._paused:
            self._paused.discard(trial.trial_id)
            if (searcher := getattr(self.search_alg, "searcher", None)) is not None:
                searcher.on_unpause(trial.trial_id)
        self._runs.start(trial)

    def _has_started(self, trial: Trial, process: Process, answer: Any) -> None:
        if answer is None:
            self._runs.start_in_another(trial, process)
            return
        trial.node_ip = answer[1]
        restored = self._runs.is_there(trial, process)
        trial.set_status(Trial.RUNNING)
        self._state.changed(trial)
        # The process is at work while the callbacks are.
        self._runs.train(trial, process)
        self._callbacks.on_trial_start(iteration=self.iteration, trials=self.trials, trial=trial)
        if restored:
            self._callbacks.on_trial_restore(iteration=self.iteration, trials=self.trials, trial=trial)

    # ---- events

    def _see(self, ref: Any) -> None:
        if self._runs.processes.left(ref):
            return
        call = self._runs.answered(ref)
        if call is None:                # of a trial that was stopped by another event of this round
            return
        trial, process = call.trial, call.process
        try:
            answer = raygo.get(ref)
        except RayError as error:
            self._has_failed(trial, error)
            return
        if call.kind == START:
            self._has_started(trial, process, answer)
        elif call.kind == SAVE:
            self._has_saved(call, answer)
        elif call.kind == EXPORT:
            self._complete(trial)
        else:
            # Thousands of trials share the names.
            self._has_reported(trial, process, {intern(key) if type(key) is str else key: value for key, value in answer.items()})

    def _has_saved(self, call: Call, name: str) -> None:
        saving, trial = call.saving, call.trial
        assert saving is not None
        self._saved_checkpoint(trial, name, saving.metrics)
        self._runs.saved(saving, trial.latest_checkpoint_result)
        if saving.then == STOP:
            self._finish(trial, call.process)
        elif saving.then == PAUSE:
            self._has_paused(trial)

    def _has_reported(self, trial: Trial, process: Process, result: dict[str, Any]) -> None:
        self._runs.was_read(trial)      # a function reads its checkpoint when it likes, but before it reports
        if result.get(RESULT_DUPLICATE):
            self._complete(trial, quiet=True)
            return
        result["config"] = trial.config
        ended = bool(result.get(DONE))
        name = result.get(CHECKPOINT_DIR_NAME)
        elsewhere = result.pop(CHECKPOINT_ELSEWHERE, None)
        nothing_runs = result.pop(FUNCTION_ENDED, False)
        checkpoint = self._keeper.add(trial, name, result, elsewhere) if name else None
        trial.update_last_result(result)
        self._state.changed(trial, result)
        if checkpoint is not None:
            self._tell_checkpoint(trial, checkpoint)
        try:
            decision = self._decide(trial, result, ended)
        except TuneError:                # not about this trial
            raise
        except Exception as error:
            self._has_failed(trial, error)
            return
        if trial.is_finished() or (trial.status == Trial.PENDING and trial.trial_id not in self._runs.started):
            return                       # the scheduler has failed it
        if decision == TrialScheduler.STOP:
            result[DONE] = True
        self._callbacks.on_trial_result(iteration=self.iteration, trials=self.trials, trial=trial, result=dict(result))
        self._act(trial, process, decision, ended, nothing_runs)

    def _decide(self, trial: Trial, result: dict[str, Any], ended: bool) -> str:
        """What the trial is to do.  Searcher, stopper and scheduler may be a user's; what they raise fails the trial.

        Scheduler and searcher get reports flat, ``a/b`` for b within a, so that they find a metric by its name.
        """
        flat = flatten_dict(result)
        stopper = self.experiment.stopper
        # A stopper of the whole search has to see each report, the last one too.
        stop = (stopper is not None and stopper(trial.trial_id, result)) or ended or trial.should_stop(flat, self._missed)
        if (missing := unreported(trial, flat, self.search_alg, self.scheduler_alg)) is not None:
            raise ValueError(missing)
        if stop:
            return TrialScheduler.STOP
        decision = self.scheduler_alg.on_trial_result(self, trial, flat)
        if decision != TrialScheduler.STOP:        # else the searcher is told of the trial's end
            self.search_alg.on_trial_result(trial.trial_id, flat)
        return decision

    def _act(self, trial: Trial, process: Process, decision: str, ended: bool, nothing_runs: bool) -> None:
        asked, trial.checkpoint_asked = trial.checkpoint_asked, False
        can_save = not self._is_function and not _up_to_date(trial)
        if decision == TrialScheduler.CONTINUE:
            if trial.trial_id in self._runs.started:
                if asked and can_save:
                    self._runs.save(trial, process)
                self._runs.train(trial, process)
        elif decision == TrialScheduler.PAUSE:
            self._pause(trial, save=True)
        elif decision == TrialScheduler.STOP:
            if self._runs.saving(trial) is not None or (can_save and (asked or (trial.checkpoint_at_end and not ended))):
                self._runs.save(trial, process, then=STOP)
            else:
                self._finish(trial, process, quiet=nothing_runs)
        elif decision != TrialScheduler.NOOP:
            raise TuneError(f"{type(self.scheduler_alg).__name__}.on_trial_result returned {decision!r}: return CONTINUE, PAUSE, STOP or NOOP")

    def _saved_checkpoint(self, trial: Trial, name: str, metrics: dict[str, Any]) -> None:
        metrics[CHECKPOINT_DIR_NAME] = name
        checkpoint = self._keeper.add(trial, name, metrics)
        trial.last_result[CHECKPOINT_DIR_NAME] = name
        self._state.changed(trial)
        self._tell_checkpoint(trial, checkpoint)

    def _tell_checkpoint(self, trial: Trial, checkpoint: Any) -> None:
        self._callbacks.on_trial_save(iteration=self.iteration, trials=self.trials, trial=trial)
        self._callbacks.on_checkpoint(iteration=self.iteration, trials=self.trials, trial=trial, checkpoint=checkpoint)

    # ---- trials pause, end, fail

    def _pause(self, trial: Trial, save: bool) -> None:
        process = self._runs.started.get(trial.trial_id)
        saves = save and process is not None and process.started and not self._is_function and not _up_to_date(trial)
        if process is not None and (saves or self._runs.saving(trial) is not None):
            if self._runs.saving(trial) is None:
                self._runs.forget_calls(trial)
            self._runs.save(trial, process, then=PAUSE)
            trial.set_status(Trial.PAUSED)
            return
        self._has_paused(trial)

    def _has_paused(self, trial: Trial) -> None:
        self._runs.take(trial, reusable=True)
        if trial.status != Trial.PENDING:       # the scheduler may want it again already
            trial.set_status(Trial.PAUSED)
        self._paused.add(trial.trial_id)
        if (searcher := getattr(self.search_alg, "searcher", None)) is not None:
            searcher.on_pause(trial.trial_id)
        self._state.changed(trial)

    def _finish(self, trial: Trial, process: Process, quiet: bool = False) -> None:
        """A trial has ended well, and may have a model to export before its process goes."""
        if trial.export_formats and not self._is_function:
            self._runs.export(trial, process)
        else:
            self._complete(trial, quiet)

    def _complete(self, trial: Trial, quiet: bool = False, tell_scheduler: bool = True) -> None:
        """A trial has ended well, or is not wanted any more."""
        self._runs.take(trial, reusable=True, quiet=quiet)
        self._table.ended(trial)
        if trial.last_result:
            trial.last_result[DONE] = True
        trial.set_status(Trial.TERMINATED)
        self._state.changed(trial)
        flat = flatten_dict(trial.last_result)
        if tell_scheduler:
            self.scheduler_alg.on_trial_complete(self, trial, flat)
        self.search_alg.on_trial_complete(trial.trial_id, result=flat or None)
        self._callbacks.on_trial_complete(iteration=self.iteration, trials=self.trials, trial=trial)
        self._autosave.dirty = True

    def _has_failed(self, trial: Trial, error: BaseException) -> None:
        self._runs.take(trial, reusable=False, kill=True)
        text = explained(trial, error)
        trial.handle_error(error, text)
        retry = trial.should_recover() and not isinstance(error, (ActorUnschedulableError, ValueError)) or (
            isinstance(error, RayTaskError) and trial.should_recover())
        if retry and not self._stopping_all:
            trial.set_status(Trial.PENDING)
            self._state.changed(trial)
            log.warning("%s failed (%d of %s): %s It starts again from %s.", trial, trial.num_failures,
                        trial.max_failures if trial.max_failures >= 0 else "any number", first_line(error), trial.checkpoint or "the beginning")
            self._callbacks.on_trial_recover(iteration=self.iteration, trials=self.trials, trial=trial)
            return
        trial.set_status(Trial.ERROR)
        self._table.ended(trial)
        self._failed = True
        self._state.changed(trial)
        self.scheduler_alg.on_trial_error(self, trial)
        self.search_alg.on_trial_complete(trial.trial_id, error=True)
        self._callbacks.on_trial_error(iteration=self.iteration, trials=self.trials, trial=trial)
        self._autosave.dirty = True
        if self.options.fail_fast == "raise":
            raise error

    def stop_all(self) -> None:
        """No more of any trial is wanted."""
        self._stopping_all = True
        self.search_alg.set_finished()
        for trial in list(self._table.live.values()):
            self._complete(trial)

    def _end(self) -> None:
        """Whatever raised, and whatever raises here: what is known is written down."""
        with contextlib.ExitStack() as last:             # the last that is said here comes first
            if self.options.reporter is not None:
                last.callback(self.options.reporter.end, self)
            last.callback(self.storage.flush)
            last.callback(self._autosave.save)
            last.callback(self._state.close)
            last.callback(self._callbacks.on_experiment_end, trials=self.trials)
            last.callback(self._end_processes)

    def _end_processes(self) -> None:
        for trial in list(self._table.live.values()):
            self._runs.take(trial, reusable=False)
        with contextlib.suppress(RayError):
            self._runs.processes.close()


def _up_to_date(trial: Trial) -> bool:
    """Whether the newest checkpoint is of the last report."""
    newest = trial.latest_checkpoint_result
    return bool(newest) and newest[1].get("training_iteration") == trial.last_result.get("training_iteration")
