"""ASHA: trials are compared at rungs, without waiting for each other."""
from __future__ import annotations

import math
import random
from bisect import insort
from typing import TYPE_CHECKING, Any

from raygo.tune.schedulers.trial_scheduler import FIFOScheduler, TrialScheduler

if TYPE_CHECKING:
    from raygo.tune.execution.controller import TuneController
    from raygo.tune.experiment.trial import Trial

__all__ = ["ASHAScheduler", "AsyncHyperBandScheduler"]


class AsyncHyperBandScheduler(FIFOScheduler):
    """Stops a trial at a rung if it is not among the best ``1 / reduction_factor`` of those that got there before it.

    Rungs are at ``grace_period``, ``grace_period * reduction_factor``, and so on, up to `max_t`.

    Parameters
    ----------
    time_attr : str
        What measures time: a metric that only grows.
    metric, mode : str, optional
        What trials are compared by; TuneConfig's by default.
    max_t : int
        The time at which every trial ends.
    grace_period : int
        The time at which a trial may first be stopped.
    reduction_factor : float
        One in so many trials goes on.
    brackets : int
        How many sets of rungs; each begins later than the one before, and trials are spread over them.
    stop_last_trials : bool
        Whether trials end at `max_t`.
    """

    def __init__(self, time_attr: str = "training_iteration", metric: str | None = None, mode: str | None = None, max_t: int = 100,
                 grace_period: int = 1, reduction_factor: float = 4, brackets: int = 1, stop_last_trials: bool = True) -> None:
        assert max_t > 0, "Max (time_attr) not valid!"
        assert max_t >= grace_period, "grace_period must be <= max_t!"
        assert grace_period > 0, "grace_period must be positive!"
        assert reduction_factor > 1, "Reduction Factor not valid!"
        assert brackets > 0, "brackets must be positive!"
        if mode is not None:
            assert mode in ("min", "max"), "`mode` must be 'min' or 'max'!"
        self._time_attr, self._metric, self._mode = time_attr, metric, mode
        self._max_t = max_t
        self._stop_last_trials = stop_last_trials
        self._brackets = [_Bracket(grace_period, max_t, reduction_factor, s, stop_last_trials) for s in range(brackets)]
        self._bracket_of: dict[str, _Bracket] = {}
        self._num_stopped = 0

    def on_trial_add(self, tune_controller: TuneController, trial: Trial) -> None:
        self._require_metric()
        # Brackets with more rungs, which stop more trials early, get more of them.
        weights = [math.exp(len(b.rungs) - len(self._brackets[0].rungs)) for b in self._brackets]
        self._bracket_of[trial.trial_id] = random.choices(self._brackets, weights)[0]

    def on_trial_result(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> str:
        score, now = self._score(result), result.get(self._time_attr)
        if score is None or now is None:
            return TrialScheduler.CONTINUE
        if now >= self._max_t and self._stop_last_trials:
            action = TrialScheduler.STOP
        else:
            action = self._bracket_of[trial.trial_id].on_result(trial.trial_id, now, score)
        self._num_stopped += action == TrialScheduler.STOP
        return action

    def on_trial_complete(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> None:
        score, now = self._score(result), result.get(self._time_attr)
        bracket = self._bracket_of.pop(trial.trial_id, None)
        if score is not None and now is not None and bracket is not None:
            bracket.on_result(trial.trial_id, now, score)

    def on_trial_remove(self, tune_controller: TuneController, trial: Trial) -> None:
        self._bracket_of.pop(trial.trial_id, None)

    def on_trial_error(self, tune_controller: TuneController, trial: Trial) -> None:
        self._bracket_of.pop(trial.trial_id, None)

    def debug_string(self) -> str:
        return "Using AsyncHyperBand: num_stopped={}\n{}".format(self._num_stopped, "\n".join(b.debug_str() for b in self._brackets))


class _Rung:
    """The scores of those that reached a milestone."""

    def __init__(self, milestone: float) -> None:
        self.milestone = milestone
        self.reached: set[str] = set()
        self.scores: list[float] = []            # ascending

    def add(self, trial_id: str, score: float) -> None:
        self.reached.add(trial_id)
        insort(self.scores, score)

    def cutoff(self, factor: float) -> float | None:
        """The score that is still good enough; None: nobody was here."""
        if not self.scores:
            return None
        place = (1 - 1 / factor) * (len(self.scores) - 1)
        low = self.scores[math.floor(place)]
        high = self.scores[math.ceil(place)]
        if math.isinf(low):              # no number lies between it and another
            return high if place > math.floor(place) else low
        return low + (high - low) * (place - math.floor(place))


class _Bracket:
    """A set of rungs, the highest first."""

    def __init__(self, min_t: float, max_t: float, reduction_factor: float, s: int, stop_last_trials: bool) -> None:
        self.factor = reduction_factor
        self.stop_last_trials = stop_last_trials
        count = int(math.log(max_t / min_t) / math.log(reduction_factor) - s + 1)
        self.rungs = [_Rung(min_t * reduction_factor ** (k + s)) for k in reversed(range(count))]

    def on_result(self, trial_id: str, now: float, score: float) -> str:
        for rung in self.rungs:
            if now >= rung.milestone and trial_id in rung.reached and not self.stop_last_trials:
                break
            if now < rung.milestone or trial_id in rung.reached:
                continue
            cutoff = rung.cutoff(self.factor)
            rung.add(trial_id, score)
            if cutoff is not None and (score < cutoff or (score == -math.inf and rung.scores[-1] > -math.inf)):
                return TrialScheduler.STOP
            break
        return TrialScheduler.CONTINUE

    def debug_str(self) -> str:
        return "Bracket: " + " | ".join(f"Iter {rung.milestone:.3f}: {rung.cutoff(self.factor)}" for rung in self.rungs)


ASHAScheduler = AsyncHyperBandScheduler
