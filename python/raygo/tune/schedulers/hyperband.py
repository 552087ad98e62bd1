"""HyperBand: brackets of trials that halve together."""
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from raygo.tune.experiment.trial import Trial
from raygo.tune.schedulers.trial_scheduler import FIFOScheduler, TrialScheduler

if TYPE_CHECKING:
    from raygo.tune.execution.controller import TuneController

__all__ = ["HyperBandScheduler"]


class HyperBandScheduler(FIFOScheduler):
    """Runs trials in brackets: when all of a bracket have come to its time, the best go on and the others are stopped.

    Trials wait for each other, so they have to be able to pause: functions report checkpoints, classes save them.

    Parameters
    ----------
    time_attr : str
        What measures time: a metric that only grows.
    metric, mode : str, optional
        What trials are compared by; TuneConfig's by default.
    max_t : int
        The time at which every trial ends.
    reduction_factor : float
        One in so many trials of a bracket goes on.
    stop_last_trials : bool
        Whether trials end at `max_t`.
    """

    _supports_buffered_results = False

    def __init__(self, time_attr: str = "training_iteration", metric: str | None = None, mode: str | None = None, max_t: int = 81,
                 reduction_factor: float = 3, stop_last_trials: bool = True) -> None:
        if max_t <= 0:
            raise ValueError("Max (time_attr) not valid!")
        if reduction_factor <= 1:
            raise ValueError("Reduction Factor not valid!")
        self._compare_by(time_attr, metric, mode)
        self._max_t, self._eta = max_t, reduction_factor
        self._stop_last_trials = stop_last_trials
        self._s_max_1 = math.floor(math.log(max_t) / math.log(reduction_factor) + 1e-9) + 1
        self._bands: list[list[_Bracket]] = [[]]
        self._bracket_of: dict[str, _Bracket] = {}
        self._num_stopped = 0

    def _new_bracket(self) -> _Bracket:
        if len(self._bands[-1]) == self._s_max_1:
            self._bands.append([])
        s = len(self._bands[-1])
        size = math.ceil(self._s_max_1 / (s + 1) * self._eta**s)
        bracket = _Bracket(size, max(1, int(self._max_t * self._eta**-s)), self._max_t, self._eta, self._stop_last_trials)
        self._bands[-1].append(bracket)
        return bracket

    def on_trial_add(self, tune_controller: TuneController, trial: Trial) -> None:
        self._require_metric()
        bracket = self._bands[-1][-1] if self._bands[-1] else None
        if bracket is None or bracket.filled:
            bracket = self._new_bracket()
        bracket.add(trial)
        self._bracket_of[trial.trial_id] = bracket

    def on_trial_result(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> str:
        score, now = self._score(result), result.get(self._time_attr)
        if score is None or now is None:
            return TrialScheduler.CONTINUE
        bracket = self._bracket_of[trial.trial_id]
        bracket.update(trial, now, score)
        self._annotate(bracket, trial, result)
        if bracket.goes_on(trial):
            return TrialScheduler.CONTINUE
        return self._process(tune_controller, bracket, trial)

    def _annotate(self, bracket: _Bracket, trial: Trial, result: dict[str, Any]) -> None:
        """For subclasses."""

    def _ready(self, bracket: _Bracket) -> bool:
        return bracket.round_done

    def _process(self, controller: TuneController, bracket: _Bracket, current: Trial | None) -> str:
        """What `current` does; where it was the last of its bracket to arrive, all of them are told."""
        if current is not None and bracket.finishes(current) and self._stop_last_trials:
            bracket.remove(current)
            self._bracket_of.pop(current.trial_id, None)
            self._process(controller, bracket, None)
            return TrialScheduler.STOP
        if not self._ready(bracket):
            return TrialScheduler.PAUSE
        action = TrialScheduler.PAUSE
        good, bad = bracket.halve()
        self._num_stopped += len(bad)
        for trial in bad:
            bracket.remove(trial)
            self._bracket_of.pop(trial.trial_id, None)
            if trial is current:
                action = TrialScheduler.STOP
            elif not trial.is_finished():
                controller.stop_trial(trial)
        for trial in good:
            if trial is current:
                action = TrialScheduler.CONTINUE
            elif trial.status == Trial.PAUSED:
                trial.set_status(Trial.PENDING)
                self._resumed(controller, trial)
        return action

    def _resumed(self, controller: TuneController, trial: Trial) -> None:
        """For subclasses."""

    def on_trial_remove(self, tune_controller: TuneController, trial: Trial) -> None:
        self._forget(tune_controller, trial)

    def on_trial_complete(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> None:
        self._forget(tune_controller, trial)

    def on_trial_error(self, tune_controller: TuneController, trial: Trial) -> None:
        self._forget(tune_controller, trial)

    def _forget(self, controller: TuneController, trial: Trial) -> None:
        bracket = self._bracket_of.pop(trial.trial_id, None)
        if bracket is not None:
            bracket.remove(trial)
            if bracket.trials and self._ready(bracket):
                self._process(controller, bracket, None)

    def choose_trial_to_run(self, tune_controller: TuneController) -> Trial | None:
        startable = [t for t in tune_controller.startable_trials() if t.status == Trial.PENDING]
        order = {id(bracket): (bracket.progress, i) for i, bracket in enumerate(b for band in self._bands for b in band)}
        # Brackets that are further first, so that they come to an end.
        return min(startable, key=lambda t: (-order[id(self._bracket_of[t.trial_id])][0], order[id(self._bracket_of[t.trial_id])][1]), default=None)

    def state(self) -> dict[str, int]:
        """How many brackets there are, and how many trials were stopped."""
        return {"num_brackets": sum(map(len, self._bands)), "num_stopped": self._num_stopped}

    def debug_string(self) -> str:
        lines = [f"Using HyperBand: num_stopped={self._num_stopped} total_brackets={sum(map(len, self._bands))}"]
        for i, band in enumerate(self._bands):
            lines.append(f"Round #{i}:")
            lines.extend(f"  {bracket}" for bracket in band)
        return "\n".join(lines)


class _Bracket:
    """Trials that are compared with each other at `milestone`, which grows by the factor each time."""

    def __init__(self, size: int, first: int, max_t: float, factor: float, stop_last_trials: bool) -> None:
        self.size = size
        self.milestone: float = first
        self.max_t, self.factor, self.stop_last_trials = max_t, factor, stop_last_trials
        self.trials: dict[str, Trial] = {}
        self._at: dict[str, tuple[float, float]] = {}          # time and score
        self._added = 0
        self._survivors = size

    @property
    def filled(self) -> bool:
        return self._added >= self.size

    def add(self, trial: Trial) -> None:
        self.trials[trial.trial_id] = trial
        self._added += 1

    def remove(self, trial: Trial) -> None:
        self.trials.pop(trial.trial_id, None)
        self._at.pop(trial.trial_id, None)

    def update(self, trial: Trial, now: float, score: float) -> None:
        self._at[trial.trial_id] = (now, score)

    def goes_on(self, trial: Trial) -> bool:
        now = self._at[trial.trial_id][0]
        if self.milestone >= self.max_t and not self.stop_last_trials:
            return True
        return now < self.milestone

    def finishes(self, trial: Trial) -> bool:
        return self.milestone >= self.max_t and self._at[trial.trial_id][0] >= self.max_t

    @property
    def round_done(self) -> bool:
        return all(id_ in self._at and self._at[id_][0] >= self.milestone for id_ in self.trials)

    @property
    def progress(self) -> float:
        return self.milestone / self.max_t

    def halve(self) -> tuple[list[Trial], list[Trial]]:
        """The trials that go on to the next milestone, and the others."""
        self._survivors = max(1, math.ceil(len(self.trials) / self.factor))
        self.milestone = min(self.max_t, self.milestone * self.factor)
        ranked = sorted(self.trials.values(), key=lambda t: self._at[t.trial_id][1], reverse=True)
        return ranked[:self._survivors], ranked[self._survivors:]

    def __str__(self) -> str:
        return f"Bracket(Max Size (n)={self.size}, Milestone (r)={self.milestone:g}, completed={100 * self.progress:.1f}%, trials={len(self.trials)})"
