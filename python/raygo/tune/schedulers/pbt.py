"""Population based training: weak trials go on from strong ones, with their values changed a little."""
from __future__ import annotations

import json
import logging
import math
import os
import random
import shutil
from collections.abc import Callable, Collection, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raygo.tune.error import TuneError
from raygo.tune.execution.runs import Saving
from raygo.tune.experiment.trial import Trial
from raygo.tune.logger.logger import plain
from raygo.tune.schedulers.trial_scheduler import FIFOScheduler, TrialScheduler
from raygo.tune.schedulers.util import check_mutations
from raygo.tune.search.sample import Categorical, Domain, Float, Integer

if TYPE_CHECKING:
    from raygo.tune.execution.controller import TuneController

__all__ = ["PopulationBasedTraining", "PopulationBasedTrainingReplay", "explore"]


log = logging.getLogger("raygo.tune")


@dataclass
class _State:
    """What is known of a trial."""

    tag: str
    score: float | None = None
    time: float = 0
    perturbed_at: float = 0
    checkpoint: Any = None           # of a strong trial: (checkpoint, report)


class PopulationBasedTraining(FIFOScheduler):
    """Lets the weakest trials take the checkpoints of the strongest, now and then, and mutates their values.

    Parameters
    ----------
    time_attr : str
        What measures time: a metric that only grows.
    metric, mode : str, optional
        What trials are compared by; TuneConfig's by default.
    perturbation_interval : float
        The time between two comparisons of a trial.
    burn_in_period : float
        The time before the first.
    hyperparam_mutations : dict
        The values that may change, each with a list of values, a domain or a function that draws one; nested like the config.
    quantile_fraction : float
        The share of trials that is weak, and that is strong; at most 0.5.
    resample_probability : float
        How likely a value is drawn afresh instead of being changed a little.
    perturbation_factors : tuple of float
        By which of these a number is multiplied.
    custom_explore_fn : callable, optional
        Changes the new config further, and returns it.
    log_config : bool
        Write the changes to ``pbt_global.txt`` and ``pbt_policy_<trial>.txt``.
    require_attrs : bool
        Whether a report without `time_attr` or `metric` is an error.
    synch : bool
        Compare all trials at the same time; they wait for each other.
    """

    def __init__(self, time_attr: str = "time_total_s", metric: str | None = None, mode: str | None = None, perturbation_interval: float = 60.0,
                 burn_in_period: float = 0.0, hyperparam_mutations: dict[str, Any] | None = None, quantile_fraction: float = 0.25,
                 resample_probability: float = 0.25, perturbation_factors: tuple[float, float] = (1.2, 0.8),
                 custom_explore_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None, log_config: bool = True, require_attrs: bool = True,
                 synch: bool = False) -> None:
        mutations = hyperparam_mutations or {}
        check_mutations(mutations)
        if not mutations and not custom_explore_fn:
            raise TuneError("You must specify at least one of `hyperparam_mutations` or `custom_explore_fn` to use PBT.")
        if not 0 <= quantile_fraction <= 0.5:
            raise ValueError(f"You must set `quantile_fraction` to a value between 0 and 0.5. Current value: '{quantile_fraction}'")
        if perturbation_interval <= 0:
            raise ValueError(f"perturbation_interval must be a positive number greater than 0. Current value: '{perturbation_interval}'")
        self._compare_by(time_attr, metric, mode)
        if custom_explore_fn is not None and not callable(custom_explore_fn):
            raise ValueError("`custom_explore_fn` must be a function of a config")
        self._interval, self._burn_in = perturbation_interval, burn_in_period
        self._mutations, self._quantile = mutations, quantile_fraction
        self._resample, self._factors = resample_probability, tuple(perturbation_factors)
        self._custom_explore_fn = custom_explore_fn
        self._log_config, self._require_attrs, self._synch = log_config, require_attrs, synch
        self._states: dict[str, _State] = {}
        self._next_sync = max(perturbation_interval, burn_in_period)
        self._num_checkpoints = self._num_perturbations = 0
        self._comparing = False
        self._told = False               # of a checkpoint that was missing

    # ---- events

    def on_trial_add(self, tune_controller: TuneController, trial: Trial) -> None:
        self._require_metric()
        searcher = getattr(tune_controller.search_alg, "searcher", None)
        if searcher is not None:
            raise ValueError(f"Search algorithms cannot be used with {type(self).__name__}, which changes the values itself; got {type(searcher).__name__}. "
                             "Leave search_alg out.")
        self._states[trial.trial_id] = _State(trial.experiment_tag)
        _fill_in(trial.config, self._mutations)

    def on_trial_result(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> str:
        score, now = self._score(result), result.get(self._time_attr)
        if now is None or score is None:
            if self._require_attrs:
                missing = self._time_attr if now is None else self._metric
                raise RuntimeError(f"Cannot find {'time_attr' if now is None else 'metric'} {missing!r} in the report of {trial}, which has "
                                   f"{', '.join(sorted(map(str, result)))}. {type(self).__name__}(require_attrs=False) lets it pass.")
            return TrialScheduler.CONTINUE
        state = self._states[trial.trial_id]
        if now < self._burn_in or (not self._synch and now - state.perturbed_at < self._interval):
            return TrialScheduler.CONTINUE
        if self._synch and now < self._next_sync:
            return TrialScheduler.CONTINUE
        state.score, state.time = score, now
        return self._together(tune_controller, trial) if self._synch else self._alone(tune_controller, trial, now)

    def _alone(self, controller: TuneController, trial: Trial, now: float) -> str:
        self._states[trial.trial_id].perturbed_at = now
        # A population needs all its members: nobody runs ahead of those that have not begun.
        others_wait = bool(controller.startable_trials()) or any(t is not trial and not t.last_result for t in controller.get_live_trials())
        weak, strong = self._quantiles(controller)
        self._keep_or_exploit(controller, trial, weak, strong)
        if trial.status != Trial.RUNNING:
            return TrialScheduler.NOOP
        return TrialScheduler.PAUSE if others_wait else TrialScheduler.CONTINUE

    def _together(self, controller: TuneController, trial: Trial) -> str:
        live = controller.get_live_trials()
        if any(self._states[t.trial_id].time < self._next_sync for t in live if t is not trial):
            return TrialScheduler.PAUSE
        self._compare(controller, live)
        return TrialScheduler.NOOP if trial.status != Trial.RUNNING else TrialScheduler.PAUSE

    def _compare(self, controller: TuneController, live: Collection[Trial]) -> None:
        """All trials have come to the moment of comparison."""
        weak, strong = self._quantiles(controller)
        self._comparing = True
        for each in live:
            self._states[each.trial_id].perturbed_at = self._next_sync
            self._keep_or_exploit(controller, each, weak, strong)
        self._comparing = False
        self._next_sync = max(self._next_sync + self._interval, max(self._states[t.trial_id].time for t in live))
        for each in live:
            self._states[each.trial_id].time = 0 if each in weak else self._states[each.trial_id].time

    def _without(self, controller: TuneController, trial: Trial) -> None:
        """A trial has ended: the others may have waited only for it."""
        live = [t for t in controller.get_live_trials_in_order() if t is not trial]
        if self._synch and not self._comparing and live and all(t.trial_id in self._states and self._states[t.trial_id].time >= self._next_sync for t in live):
            self._compare(controller, live)

    def on_trial_complete(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> None:
        self._without(tune_controller, trial)

    def on_trial_error(self, tune_controller: TuneController, trial: Trial) -> None:
        self._without(tune_controller, trial)

    def on_trial_remove(self, tune_controller: TuneController, trial: Trial) -> None:
        self._without(tune_controller, trial)

    def _keep_or_exploit(self, controller: TuneController, trial: Trial, weak: list[Trial], strong: list[Trial]) -> None:
        state = self._states[trial.trial_id]
        state.checkpoint = None
        if trial in strong:
            state.checkpoint = controller.save_trial(trial)
            self._num_checkpoints += 1
        if trial in weak:
            self._exploit(controller, trial, random.choice(strong))

    def _exploit(self, controller: TuneController, trial: Trial, donor: Trial) -> None:
        given = self._states[donor.trial_id]
        source = _source(given.checkpoint, donor)
        if source is None:
            if not self._told:
                log.warning("%s: %s keeps its own values, as %s, which it was to go on from, has no checkpoint. A function has to report checkpoints at "
                            "least every perturbation_interval (%g %s); a class needs save_checkpoint.", type(self).__name__, trial, donor,
                            self._interval, self._time_attr)
            self._told = True
            return
        try:
            config, operations = self._new_config(trial, donor)
        except Exception as error:           # code of users
            failure = RuntimeError(f"{type(self).__name__} could not make a new config for {trial} from that of {donor}: {type(error).__name__}: {error}. "
                                   "Look at custom_explore_fn and hyperparam_mutations.")
            failure.__cause__ = error
            controller.fail_trial(trial, failure)
            return
        if self._log_config:
            self._write_policy(controller, trial, donor, config)
        state = self._states[trial.trial_id]
        if operations:
            trial.experiment_tag = f"{state.tag}@perturbed[{','.join(f'{key}={_short(value)}' for key, value in _leaves(config, self._mutations))}]"
        controller.restart_from(trial, config, source)
        self._num_perturbations += 1
        state.perturbed_at, state.score = given.perturbed_at, given.score

    def _new_config(self, trial: Trial, donor: Trial) -> tuple[dict[str, Any], dict[str, Any]]:
        return explore(donor.config, self._mutations, self._resample, self._factors, self._custom_explore_fn)

    def _quantiles(self, controller: TuneController) -> tuple[list[Trial], list[Trial]]:
        """The weakest and the strongest."""
        scored = [(score, i, t) for i, t in enumerate(controller.get_live_trials_in_order()) if (score := self._states[t.trial_id].score) is not None]
        if len(scored) <= 1:
            return [], []
        ranked = [t for _, _, t in sorted(scored, key=lambda entry: entry[:2])]
        count = math.ceil(len(ranked) * self._quantile)
        if count > len(ranked) / 2:
            count = len(ranked) // 2
        return (ranked[:count], ranked[-count:]) if count else ([], [])

    def choose_trial_to_run(self, tune_controller: TuneController) -> Trial | None:
        startable = tune_controller.startable_trials()
        if self._synch:
            # Those that are at the comparison wait for the others.
            startable = [t for t in startable if t.status == Trial.PENDING or self._states[t.trial_id].time < self._next_sync]
        return min(startable, key=lambda t: t.last_result.get("training_iteration", 0), default=None)

    # ---- records

    def _write_policy(self, controller: TuneController, trial: Trial, donor: Trial, config: dict[str, Any]) -> None:
        folder = controller.storage.local_path
        mine, theirs = (os.path.join(folder, f"pbt_policy_{t.trial_id}.txt") for t in (trial, donor))
        policy = [self._states[trial.trial_id].tag, self._states[donor.trial_id].tag, trial.last_result.get("training_iteration", 0),
                  donor.last_result.get("training_iteration", 0), donor.config, config]
        line = json.dumps(policy, default=plain) + "\n"
        with open(os.path.join(folder, "pbt_global.txt"), "a") as file:
            file.write(line)
        if os.path.exists(theirs):            # what the donor went through is this trial's past now
            shutil.copyfile(theirs, mine)
        with open(mine, "a") as file:
            file.write(line)

    def last_scores(self, trials: list[Trial]) -> list[float]:
        """The scores of these trials at their last comparison, for those that had one."""
        return [score for t in trials if (score := self._states[t.trial_id].score) is not None]

    def reset_stats(self) -> None:
        """Count from zero."""
        self._num_perturbations = self._num_checkpoints = 0

    def debug_string(self) -> str:
        return f"PopulationBasedTraining: {self._num_checkpoints} checkpoints, {self._num_perturbations} perturbs"


class PopulationBasedTrainingReplay(FIFOScheduler):
    """Runs one trial through the configs that a trial of PopulationBasedTraining went through.

    Parameters
    ----------
    policy_file : str
        That trial's ``pbt_policy_<trial>.txt``.
    """

    def __init__(self, policy_file: str) -> None:
        path = os.path.expanduser(policy_file)
        if not os.path.exists(path):
            raise ValueError(f"Policy file not found: {policy_file}")
        with open(path) as file:
            lines = [json.loads(line) for line in file if line.strip()]
        if not lines:
            raise ValueError(f"the policy file {policy_file} has no changes in it")
        self.config: dict[str, Any] = lines[0][4]
        # A trial takes up its donor's iteration with its checkpoint.
        self._changes: list[tuple[int, dict[str, Any]]] = [(line[3], line[5]) for line in lines]
        self._trial: Trial | None = None
        self._done = 0

    def on_trial_add(self, tune_controller: TuneController, trial: Trial) -> None:
        if self._trial is not None:
            raise ValueError("more than one trial was given to PopulationBasedTrainingReplay, which replays the life of one: set num_samples to 1")
        self._trial = trial
        trial.config = {**trial.config, **self.config}

    def on_trial_result(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> str:
        if self._done >= len(self._changes):
            return TrialScheduler.CONTINUE
        step, config = self._changes[self._done]
        if result.get("training_iteration", 0) < step:
            return TrialScheduler.CONTINUE
        checkpoint = tune_controller.save_trial(trial)
        if checkpoint is None:
            raise RuntimeError(f"{trial} has no checkpoint to go on from with another config: report checkpoints")
        self._done += 1
        trial.experiment_tag = f"{trial.experiment_tag.split('@')[0]}@replayed{self._done}"
        tune_controller.restart_from(trial, {**trial.config, **config}, checkpoint)
        return TrialScheduler.NOOP

    def debug_string(self) -> str:
        return f"PopulationBasedTraining replay: step {self._done} of {len(self._changes)}"


def explore(config: dict[str, Any], mutations: dict[str, Any], resample_probability: float, perturbation_factors: tuple[float, ...],
            custom_explore_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """A config near another.

    Returns
    -------
    tuple
        The config, and what was done to each value.
    """
    new, done = deepcopy(config), dict[str, Any]()        # custom_explore_fn may change it in place
    for key, allowed in mutations.items():
        if isinstance(allowed, dict):
            new[key], done[key] = explore(config[key], allowed, resample_probability, perturbation_factors)
            continue
        values = allowed.categories if isinstance(allowed, Categorical) else allowed
        if isinstance(values, (list, tuple)):
            new[key], done[key] = _neighbour(config[key], values, resample_probability)
        elif random.random() < resample_probability:
            new[key], done[key] = _draw(allowed), "resample"
        else:
            new[key], done[key] = _multiplied(config[key], allowed, perturbation_factors)
    if custom_explore_fn is not None:
        new = custom_explore_fn(new)
        if not isinstance(new, dict):
            raise TypeError(f"custom_explore_fn returned a {type(new).__name__}: return the new config")
    return new, done


def _source(chosen: Any, donor: Trial) -> Any:
    """The checkpoint of a strong trial: that of its comparison, if it is still kept, else its newest; None: it has none."""
    if isinstance(chosen, Saving):
        if not chosen.ended:
            return chosen
        chosen = chosen.entry
    return chosen if any(entry is chosen for entry in donor.checkpoints) else donor.latest_checkpoint_result


def _multiplied(value: Any, allowed: Any, factors: tuple[float, ...]) -> tuple[Any, str]:
    """A value a little larger or smaller; a domain's bounds hold."""
    low, high = -math.inf, math.inf
    if isinstance(allowed, (Float, Integer)):
        low, high = allowed.lower, allowed.upper - 1 if isinstance(allowed, Integer) else allowed.upper
    factor = random.choice([f for f in factors if low <= value * f <= high] or list(factors))
    changed = min(max(value * factor, low), high)
    return (int(changed) if isinstance(value, int) else changed), f"* {factor}"


def _neighbour(value: Any, values: Sequence[Any], resample_probability: float) -> tuple[Any, str]:
    if random.random() < resample_probability or value not in values:
        return random.choice(values), "resample"
    step = random.choice((-1, 1))
    return values[min(max(values.index(value) + step, 0), len(values) - 1)], f"shift {'left' if step < 0 else 'right'}"


def _draw(allowed: Any) -> Any:
    if isinstance(allowed, Domain):
        return allowed.sample()
    return random.choice(allowed) if isinstance(allowed, (list, tuple)) else allowed()


def _fill_in(config: dict[str, Any], mutations: dict[str, Any]) -> None:
    """Draw the values that the space does not have."""
    for key, allowed in mutations.items():
        if isinstance(allowed, dict):
            _fill_in(config.setdefault(key, {}), allowed)
        elif key not in config:
            config[key] = _draw(allowed)


def _leaves(config: dict[str, Any], mutations: dict[str, Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, allowed in mutations.items():
        found.extend(_leaves(config[key], allowed) if isinstance(allowed, dict) else [(key, config.get(key))])
    return found


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)[:20]
