"""Stop trials that are worse than the median of the others."""
from __future__ import annotations

import statistics
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from raygo.tune.experiment.trial import Trial
from raygo.tune.schedulers.trial_scheduler import FIFOScheduler, TrialScheduler

if TYPE_CHECKING:
    from raygo.tune.execution.controller import TuneController

__all__ = ["MedianStoppingRule"]


class MedianStoppingRule(FIFOScheduler):
    """Stops a trial whose best result is worse than the median of the other trials' means up to the same time.

    Parameters
    ----------
    time_attr : str
        What measures time: a metric that only grows.
    metric, mode : str, optional
        What trials are compared by; TuneConfig's by default.
    grace_period : float
        The time before which no trial is stopped.
    min_samples_required : int
        How many other trials have to have got as far.
    min_time_slice : float
        The time that a trial runs at least, before it is paused to let others get as far.
    hard_stop : bool
        Stop trials; else they are paused, and go on when there is nothing better to do.
    """

    def __init__(self, time_attr: str = "time_total_s", metric: str | None = None, mode: str | None = None, grace_period: float = 60.0,
                 min_samples_required: int = 3, min_time_slice: int = 0, hard_stop: bool = True) -> None:
        self._compare_by(time_attr, metric, mode)
        self._grace_period, self._min_samples_required = grace_period, min_samples_required
        self._min_time_slice, self._hard_stop = min_time_slice, hard_stop
        # Of each trial: time, sum and best of its scores, as they were at each report; no more is compared.
        self._seen: dict[str, list[tuple[float, float, float]]] = {}
        self._last_pause: dict[str, float] = {}
        self._stopped: set[str] = set()

    def on_trial_add(self, tune_controller: TuneController, trial: Trial) -> None:
        self._require_metric()

    def on_trial_result(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> str:
        score, now = self._score(result), result.get(self._time_attr)
        if score is None or now is None:
            return TrialScheduler.CONTINUE
        mine = self._seen.setdefault(trial.trial_id, [])
        while mine and mine[-1][0] >= now:       # the trial has gone back to a checkpoint: what came after it is reported again
            mine.pop()
        total, best = (mine[-1][1], mine[-1][2]) if mine else (0.0, float("-inf"))
        mine.append((now, total + score, max(best, score)))
        if trial.trial_id in self._stopped:
            return self._others_wait(tune_controller, trial, now, TrialScheduler.PAUSE)
        if now < self._grace_period:
            return TrialScheduler.CONTINUE
        means = [mean for other, seen in self._seen.items() if other != trial.trial_id and seen[-1][0] >= now and (mean := _mean_until(seen, now)) is not None]
        if len(means) < self._min_samples_required:
            return self._others_wait(tune_controller, trial, now, TrialScheduler.PAUSE)
        if mine[-1][2] < statistics.median(means):
            self._stopped.add(trial.trial_id)
            return TrialScheduler.STOP if self._hard_stop else self._others_wait(tune_controller, trial, now, TrialScheduler.PAUSE)
        return TrialScheduler.CONTINUE

    def _others_wait(self, controller: TuneController, trial: Trial, now: float, action: str) -> str:
        """`action`, if another trial could use the time and this one has had its share."""
        if now - self._last_pause.get(trial.trial_id, 0.0) <= self._min_time_slice:
            return TrialScheduler.CONTINUE
        if not any(t is not trial and t.status in (Trial.PENDING, Trial.PAUSED) for t in controller.startable_trials()):
            return TrialScheduler.CONTINUE
        self._last_pause[trial.trial_id] = now
        return action

    def debug_string(self) -> str:
        return f"Using MedianStoppingRule: num_stopped={len(self._stopped)}."


def _mean_until(seen: list[tuple[float, float, float]], now: float) -> float | None:
    count = bisect_right(seen, now, key=lambda entry: entry[0])
    return seen[count - 1][1] / count if count else None
