"""The driver's loop: starts trials, takes their reports, and does what scheduler, searcher and stoppers decide.

Everything happens in one thread, at events: a trial has started, has reported, has failed, or has ended. Between events the loop sleeps in
`raygo.wait`. A trial has one call under way at any time (start, train, save or stop); a report is acted upon before the trial goes on.
"""
from __future__ import annotations

import contextlib
import logging
import os
import time
import traceback
from dataclasses import dataclass, field
from sys import intern
from typing import TYPE_CHECKING, Any

import raygo
from raygo.exceptions import ActorUnschedulableError, RayError, RayTaskError
from raygo.train._result import dig
from raygo.tune.callback import CallbackList
from raygo.tune.error import TuneError
from raygo.tune.execution.actor import TrialSetup
from raygo.tune.execution.checkpoints import Keeper
from raygo.tune.execution.processes import Process, Processes
from raygo.tune.execution.session import CHECKPOINT_ELSEWHERE
from raygo.tune.execution.state import ExperimentState
from raygo.tune.experiment.trial import Trial
from raygo.tune.result import AUTO_RESULT_KEYS, CHECKPOINT_DIR_NAME, DEFAULT_METRIC, DONE, RESULT_DUPLICATE
from raygo.tune.schedulers.trial_scheduler import TrialScheduler
from raygo.tune.search.basic_variant import BasicVariantGenerator
from raygo.tune.trainable.function_trainable import FunctionTrainable

if TYPE_CHECKING:
    from raygo.tune.experiment.experiment import Experiment
    from raygo.tune.search.search_algorithm import SearchAlgorithm

__all__ = ["Options", "TuneController"]

log = logging.getLogger("raygo.tune")

# How often what is not in the log (searcher, callbacks) is written down, and a remote storage is brought up to date.
SAVE_PERIOD_ENV = "TUNE_GLOBAL_CHECKPOINT_S"
_SAVE_PERIOD_S = 10.0


@dataclass
class Options:
    """How a search is run."""

    fail_fast: bool | str = False
    reuse_actors: bool = False
    callbacks: list[Any] = field(default_factory=list)
    reporter: Any = None


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
        self.trials: list[Trial] = list(trials or [])
        self._live: dict[str, Trial] = {t.trial_id: t for t in self.trials if not t.is_finished()}
        self._started: dict[str, Process] = {}                     # trials that have a process
        self._waiting: dict[Any, tuple[str, Trial, Process]] = {}  # what is under way
        self._restores: dict[str, tuple[Any, dict[str, Any]]] = {}  # where a trial starts from, other than its newest checkpoint
        self._reading: dict[str, Any] = {}
        self._paused: set[str] = set()
        self._stopping_all = False
        self._failed = False
        self._is_function = issubclass(experiment.trainable, FunctionTrainable)
        self._callbacks = CallbackList(options.callbacks)
        self._keeper = Keeper(self.storage)
        self._state = ExperimentState(self.storage.local_path, self.trials)
        self._save_period = float(os.environ.get(SAVE_PERIOD_ENV) or _SAVE_PERIOD_S)
        self._saved = time.monotonic()
        self._strict = os.environ.get("TUNE_DISABLE_STRICT_METRIC_CHECKING", "0") != "1"
        self._chdir = os.environ.get("RAY_CHDIR_TO_TRIAL_DIR", "1") != "0"
        cpus = int(raygo.cluster_resources().get("CPU", 1))
        # A searcher proposes when a trial can start, so that it knows as much as can be known; drawn trials may queue.
        drawn = isinstance(search_alg, BasicVariantGenerator)
        self._most_pending = max(16, cpus) if drawn else 1
        self._most_starting = max(2, cpus) if drawn else 1
        self._processes = Processes(experiment.trainable, options.reuse_actors)

    # ---- what schedulers ask

    def get_trials(self) -> list[Trial]:
        """All trials."""
        return self.trials

    def get_live_trials(self) -> set[Trial]:
        """Those that are not finished."""
        return set(self._live.values())

    def get_live_trials_in_order(self) -> list[Trial]:
        """Those that are not finished, in the order in which they came."""
        return list(self._live.values())

    def has_running_trials(self) -> bool:
        """Whether a trial has a process."""
        return bool(self._started)

    def get_trial(self, trial_id: str) -> Trial | None:
        """A trial by its id."""
        return next((t for t in self.trials if t.trial_id == trial_id), None)

    def startable_trials(self) -> list[Trial]:
        """Those that could be started now, in the order in which they came."""
        return [t for t in self._live.values() if t.trial_id not in self._started]

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
                self.scheduler_alg.on_trial_complete(self, trial, trial.last_result)
            self._complete(trial, tell_scheduler=False)

    def save_trial(self, trial: Trial) -> tuple[Any, dict[str, Any]] | None:
        """The trial's state now, as a checkpoint and its report; a class that waits for the next step is asked for one."""
        process = self._started.get(trial.trial_id)
        newest = trial.latest_checkpoint_result
        if self._is_function or process is None or (newest and newest[1].get("training_iteration") == trial.last_result.get("training_iteration")):
            return newest  # type: ignore[no-any-return]
        self._saved_checkpoint(trial, raygo.get(process.actor.save.remote()), dict(trial.last_result))
        return trial.latest_checkpoint_result  # type: ignore[no-any-return]

    def restart_from(self, trial: Trial, config: dict[str, Any], checkpoint: tuple[Any, dict[str, Any]]) -> None:
        """Give a trial another's checkpoint and a new config; it starts from there when it is its turn."""
        self._pause(trial, save=False)
        if (old := self._restores.pop(trial.trial_id, None)) is not None:
            self._keeper.was_read(old[0])
        trial.set_config(config)
        self._restores[trial.trial_id] = checkpoint
        self._keeper.reading(checkpoint[0])
        self._state.changed(trial)

    def update_resources(self, trial: Trial, resources: Any) -> None:
        """Give a trial that does not run other resources."""
        trial.placement_group_factory = resources
        self._state.changed(trial, whole=True)

    # ---- the loop

    def run(self) -> None:
        """Until all trials have ended."""
        self._state.begin()
        self._save()
        self._callbacks.setup(stop=self.experiment.stopping_criterion, num_samples=self.experiment.num_samples,
                              total_num_samples=self.search_alg.total_samples)
        try:
            while not self._finished():
                self._step()
        except KeyboardInterrupt:
            log.warning("interrupted: %d of %d trials have not ended. Tuner.restore(%r, ...) goes on from here.", len(self._live), len(self.trials),
                        self.storage.path)
        finally:
            self._end()

    def _finished(self) -> bool:
        if self._live:
            return False
        if self._stopping_all:
            return True
        if not self.search_alg.is_finished() and not self._add_trials() and not self.search_alg.is_finished():
            who = getattr(self.search_alg, "searcher", self.search_alg)
            raise TuneError(f"{type(who).__name__} proposes nothing, though there is no trial that it could wait for; a searcher that is done "
                            "returns Searcher.FINISHED")
        return not self._live and self.search_alg.is_finished()

    def _step(self) -> None:
        self.iteration += 1
        self._callbacks.on_step_begin(iteration=self.iteration, trials=self.trials)
        if not self._stopping_all and self._stop_all_wanted():
            self.stop_all()
        if not self._stopping_all:
            self._start_trials()
        refs = [*self._waiting, *self._processes.leaving]
        if refs:
            ready, _ = raygo.wait(refs, num_returns=1, timeout=self._patience())
            if len(refs) > 1 and ready:
                ready, _ = raygo.wait(refs, num_returns=len(refs), timeout=0)
            for ref in ready:
                self._see(ref)
        elif self._live and not self._stopping_all:
            self._stuck()
        self._callbacks.on_step_end(iteration=self.iteration, trials=self.trials)
        self._now_and_then()

    def _patience(self) -> float | None:
        """How long the loop may sleep."""
        waits = [self._processes.overdue(), self._stopper_left()]
        if self.options.reporter is not None:
            waits.append(self.options.reporter.due_in())
        if not self.storage.is_local or self._dirty:
            waits.append(self._save_period - (time.monotonic() - self._saved))
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
        states = ", ".join(f"{trial} ({trial.status})" for trial in list(self._live.values())[:5])
        raise TuneError(f"{len(self._live)} trials are left and {type(self.scheduler_alg).__name__} starts none of them: {states}")

    # ---- trials begin

    def _add_trials(self) -> bool:
        """One more trial, if one may be added."""
        pending = sum(t.status == Trial.PENDING for t in self.startable_trials())
        if pending >= self._most_pending or self.search_alg.is_finished():
            return False
        trial = self.search_alg.next_trial()
        if trial is None:
            return False
        self._dirty = True
        trial.relative_logdir = trial.relative_logdir or trial._dirname()
        self.trials.append(trial)
        self._live[trial.trial_id] = trial
        self._state.added(trial)
        self.scheduler_alg.on_trial_add(self, trial)
        return True

    _dirty = False

    def _start_trials(self) -> None:
        while sum(not p.started for p in self._started.values()) < self._most_starting:
            while self._add_trials():
                pass
            trial = self.scheduler_alg.choose_trial_to_run(self)
            if trial is None or trial.trial_id in self._started:
                break
            self._start(trial)
        self._hand_over()
        if self.search_alg.is_finished() and not self.startable_trials():
            self._processes.release_idle()

    def _hand_over(self) -> None:
        """Idle processes hold what new ones wait for: they take over the trials of those, or end."""
        for trial_id, process in list(self._started.items()):
            if process.started or not self._processes.any_idle:
                continue
            if process.fresh and self._processes.idle_for(process.resources):
                trial = self._live[trial_id]
                self._forget_calls(trial)
                self._release_read(trial)
                self._processes.kill(self._started.pop(trial_id))
                self._start(trial)
            elif process.fresh:
                self._processes.release_idle()

    def _start(self, trial: Trial) -> None:
        trial.init_local_path()
        if trial.trial_id in self._paused:
            self._paused.discard(trial.trial_id)
            if (searcher := getattr(self.search_alg, "searcher", None)) is not None:
                searcher.on_unpause(trial.trial_id)
        process, ref = self._processes.start(trial, self._setup(trial))
        self._started[trial.trial_id] = process
        self._waiting[ref] = ("start", trial, process)

    def _setup(self, trial: Trial) -> TrialSetup:
        checkpoint, metrics = self._restores.get(trial.trial_id) or trial.latest_checkpoint_result or (None, {})
        if checkpoint is None and trial.restore_path and not trial.last_result:
            from raygo.train import Checkpoint

            checkpoint = Checkpoint(trial.restore_path)
        if checkpoint is not None and trial.trial_id not in self._restores:
            self._keeper.reading(checkpoint)
        if checkpoint is not None:
            self._reading[trial.trial_id] = checkpoint
        counters = {key: metrics[name] for key, name in (("iteration", "training_iteration"), ("time_total", "time_total_s"),
                                                         ("timesteps_total", "timesteps_total"), ("episodes_total", "episodes_total"))
                    if name in metrics}
        frequency, at_end = trial.checkpoint_freq, trial.checkpoint_at_end
        if self._is_function:
            frequency, at_end = 0, False
        storage = self.storage.trial(str(trial.relative_logdir), trial.trial_id, str(trial), trial.checkpoints_made)
        return TrialSetup(trial.config, storage, trial.placement_group_factory, checkpoint, counters, frequency, at_end, trial.log_to_file, self._chdir)

    def _has_started(self, trial: Trial, process: Process, answer: Any) -> None:
        if answer is None:              # a process that could not become another trial
            if trial.trial_id not in self._restores:        # else it is still to be read, by the next process
                self._release_read(trial)
            self._processes.leave(process)
            process, ref = self._processes.start_fresh(trial, self._setup(trial))
            self._started[trial.trial_id] = process
            self._waiting[ref] = ("start", trial, process)
            return
        process.started = True
        trial.node_ip = answer[1]
        restored = bool(trial.last_result) or trial.trial_id in self._restores
        self._restores.pop(trial.trial_id, None)
        trial.set_status(Trial.RUNNING)
        self._state.changed(trial)
        self._callbacks.on_trial_start(iteration=self.iteration, trials=self.trials, trial=trial)
        if restored:
            self._callbacks.on_trial_restore(iteration=self.iteration, trials=self.trials, trial=trial)
        self._train(trial, process)

    def _release_read(self, trial: Trial) -> None:
        if (checkpoint := self._reading.pop(trial.trial_id, None)) is not None:
            self._keeper.was_read(checkpoint)

    def _train(self, trial: Trial, process: Process) -> None:
        self._waiting[process.actor.train.remote()] = ("train", trial, process)

    # ---- events

    def _see(self, ref: Any) -> None:
        if self._processes.left(ref):
            return
        found = self._waiting.pop(ref, None)
        if found is None:               # of a trial that was stopped by another event of this round
            return
        kind, trial, process = found
        try:
            answer = raygo.get(ref)
            if isinstance(answer, dict):          # thousands of trials share the names
                answer = {intern(key) if type(key) is str else key: value for key, value in answer.items()}
        except RayError as error:
            self._has_failed(trial, process, error)
            return
        if kind == "start":
            self._has_started(trial, process, answer)
        elif kind == "save":
            self._saved_checkpoint(trial, answer, dict(trial.last_result))
            self._has_paused(trial)
        else:
            self._has_reported(trial, process, answer)

    def _has_reported(self, trial: Trial, process: Process, result: dict[str, Any]) -> None:
        self._release_read(trial)       # a function reads its checkpoint when it likes, but before it reports
        if result.get(RESULT_DUPLICATE):
            self._complete(trial, quiet=True)
            return
        result["config"] = trial.config
        ended = bool(result.get(DONE))
        name = result.get(CHECKPOINT_DIR_NAME)
        elsewhere = result.pop(CHECKPOINT_ELSEWHERE, None)
        checkpoint = self._keeper.add(trial, name, result, elsewhere) if name else None
        trial.update_last_result(result)
        self._state.changed(trial, result)
        if checkpoint is not None:
            self._tell_checkpoint(trial, checkpoint)
        self.search_alg.on_trial_result(trial.trial_id, result)
        try:
            stop = ended or trial.should_stop(result) or (self.experiment.stopper is not None and self.experiment.stopper(trial.trial_id, result))
        except ValueError as error:
            self._has_failed(trial, process, error)
            return
        if (missing := self._unreported(result)) is not None and not ended:
            self._has_failed(trial, process, ValueError(missing))
            return
        decision = TrialScheduler.STOP if stop else self.scheduler_alg.on_trial_result(self, trial, result)
        if decision == TrialScheduler.STOP:
            result[DONE] = True
        self._callbacks.on_trial_result(iteration=self.iteration, trials=self.trials, trial=trial, result=result)
        self._act(trial, process, decision, ended)

    def _unreported(self, result: dict[str, Any]) -> str | None:
        """What is wrong with a report that has not what the search is about."""
        if not self._strict:
            return None
        for who, metric in ((self.search_alg, self.search_alg.metric), (self.scheduler_alg, self.scheduler_alg.metric)):
            for name in metric if isinstance(metric, (list, tuple)) else [metric]:
                if name and name != DEFAULT_METRIC and dig(result, name) is None:
                    shown = ", ".join(sorted(str(key) for key in result if key not in AUTO_RESULT_KEYS))
                    return (f"Trial returned a result which did not include the specified metric(s) `{name}` that "
                            f"{type(getattr(who, 'searcher', who)).__name__} expects. It has {shown or 'none of its own'}. "
                            "TUNE_DISABLE_STRICT_METRIC_CHECKING=1 lets such results pass.")
        return None

    def _act(self, trial: Trial, process: Process, decision: str, ended: bool) -> None:
        if decision == TrialScheduler.CONTINUE:
            if trial.trial_id in self._started:
                self._train(trial, process)
        elif decision == TrialScheduler.PAUSE:
            self._pause(trial, save=True)
        elif decision == TrialScheduler.STOP:
            if trial.checkpoint_at_end and not self._is_function and not ended:
                try:
                    self.save_trial(trial)
                except RayError as error:
                    self._has_failed(trial, process, error)
                    return
            self._complete(trial, quiet=ended and self._is_function)
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
        process = self._started.get(trial.trial_id)
        newest = trial.latest_checkpoint_result
        up_to_date = newest and newest[1].get("training_iteration") == trial.last_result.get("training_iteration")
        if process is not None and process.started and save and not self._is_function and not up_to_date:
            self._forget_calls(trial)
            self._waiting[process.actor.save.remote()] = ("save", trial, process)
            trial.set_status(Trial.PAUSED)
            return
        self._has_paused(trial)

    def _has_paused(self, trial: Trial) -> None:
        self._take_process(trial, reusable=True)
        if trial.status != Trial.PENDING:       # the scheduler may want it again already
            trial.set_status(Trial.PAUSED)
        self._paused.add(trial.trial_id)
        if (searcher := getattr(self.search_alg, "searcher", None)) is not None:
            searcher.on_pause(trial.trial_id)
        self._state.changed(trial)

    def _complete(self, trial: Trial, quiet: bool = False, tell_scheduler: bool = True) -> None:
        """A trial has ended well, or is not wanted any more."""
        self._take_process(trial, reusable=True, quiet=quiet)
        self._live.pop(trial.trial_id, None)
        if trial.last_result:
            trial.last_result[DONE] = True
        trial.set_status(Trial.TERMINATED)
        self._state.changed(trial)
        if tell_scheduler:
            self.scheduler_alg.on_trial_complete(self, trial, trial.last_result)
        self.search_alg.on_trial_complete(trial.trial_id, result=trial.last_result or None)
        self._callbacks.on_trial_complete(iteration=self.iteration, trials=self.trials, trial=trial)
        self._dirty = True

    def _has_failed(self, trial: Trial, process: Process, error: BaseException) -> None:
        self._release_read(trial)
        self._forget_calls(trial)
        self._started.pop(trial.trial_id, None)
        self._processes.kill(process)
        text = str(error) if isinstance(error, RayTaskError) else "".join(traceback.format_exception_only(type(error), error))
        trial.handle_error(error, text)
        retry = trial.should_recover() and not isinstance(error, (ActorUnschedulableError, ValueError)) or (
            isinstance(error, RayTaskError) and trial.should_recover())
        if retry and not self._stopping_all:
            trial.set_status(Trial.PENDING)
            self._state.changed(trial)
            log.warning("%s failed (%d of %s): %s It starts again from %s.", trial, trial.num_failures,
                        trial.max_failures if trial.max_failures >= 0 else "any number", _first_line(error), trial.checkpoint or "the beginning")
            self._callbacks.on_trial_recover(iteration=self.iteration, trials=self.trials, trial=trial)
            return
        trial.set_status(Trial.ERROR)
        self._live.pop(trial.trial_id, None)
        self._failed = True
        self._state.changed(trial)
        self.scheduler_alg.on_trial_error(self, trial)
        self.search_alg.on_trial_complete(trial.trial_id, error=True)
        self._callbacks.on_trial_error(iteration=self.iteration, trials=self.trials, trial=trial)
        self._dirty = True
        if self.options.fail_fast == "raise":
            raise error

    def _take_process(self, trial: Trial, reusable: bool, quiet: bool = False) -> None:
        busy = self._forget_calls(trial)
        self._release_read(trial)
        process = self._started.pop(trial.trial_id, None)
        if process is None:
            return
        if busy:
            self._processes.kill(process)
        else:
            self._processes.done(process, reusable, quiet)

    def _forget_calls(self, trial: Trial) -> bool:
        mine = [ref for ref, (_, other, _) in self._waiting.items() if other is trial]
        for ref in mine:
            del self._waiting[ref]
        return bool(mine)

    def stop_all(self) -> None:
        """No more of any trial is wanted."""
        self._stopping_all = True
        self.search_alg.set_finished()
        for trial in list(self._live.values()):
            self._complete(trial)

    # ---- the end, and now and then

    def _now_and_then(self) -> None:
        if self.options.reporter is not None:
            self.options.reporter.tick(self)
        if self._dirty or not self.storage.is_local:
            now = time.monotonic()
            if now - self._saved >= self._save_period:
                self._save()
                # Never more than a twentieth of the time.
                self._save_period = max(self._save_period, 20 * (time.monotonic() - now))

    def _save(self) -> None:
        """What is not in the log."""
        folder = self.storage.local_path
        self.search_alg.save_to_dir(folder, session_str=self._state.session)
        self._callbacks.save_to_dir(folder, session_str=self._state.session)
        if not self.storage.is_local:
            self._state.snapshot()
            self.storage.changed()
        self._dirty = False
        self._saved = time.monotonic()

    def _end(self) -> None:
        for trial in list(self._live.values()):
            self._take_process(trial, reusable=False)
        with contextlib.suppress(RayError):
            self._processes.close()
        self._callbacks.on_experiment_end(trials=self.trials)
        self._state.close()
        self._save()
        self.storage.flush()
        if self.options.reporter is not None:
            self.options.reporter.end(self)


def _first_line(error: BaseException) -> str:
    plain = getattr(error, "cause", None) or error
    lines = str(plain).strip().splitlines()
    return f"{type(plain).__name__}: {lines[0] if lines else ''}."


