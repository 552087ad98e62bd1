"""Give running trials more resources when there are some."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from raygo.tune.experiment.trial import Trial
from raygo.tune.schedulers.trial_scheduler import FIFOScheduler, TrialScheduler
from raygo.tune.search.util import tell

if TYPE_CHECKING:
    from raygo.tune.execution.controller import TuneController

__all__ = ["DistributeResources", "DistributeResourcesToTopJob", "ResourceChangingScheduler", "evenly_distribute_cpus_gpus"]


class DistributeResources:
    """Shares the CPUs and GPUs of the cluster evenly among the trials that are left; never less than a trial began with.

    Parameters
    ----------
    add_bundles : bool
        Give whole bundles like the trial's own, in the place of larger ones; for trials with workers.
    increase_by : dict, optional
        The step by which a trial grows, such as ``{"CPU": 1}``.
    increase_by_times : int
        How many such steps at most; -1: any number.
    reserve_resources : dict, optional
        What is not shared out.
    """

    def __init__(self, add_bundles: bool = False, increase_by: dict[str, float] | None = None, increase_by_times: int = -1,
                 reserve_resources: dict[str, float] | None = None) -> None:
        self.add_bundles, self.increase_by = add_bundles, increase_by or {}
        self.increase_by_times, self.reserve_resources = increase_by_times, reserve_resources or {}

    def __call__(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any], scheduler: ResourceChangingScheduler) -> Any:
        base = scheduler.base_of(trial)
        return self._grown(base, self._shares(tune_controller, trial, base))

    def _total(self, base: Any) -> dict[str, float]:
        import raygo

        wanted = base.required_resources
        there = raygo.cluster_resources()
        return {key: there[key] - self.reserve_resources.get(key, 0) for key in ("CPU", "GPU") if key in there and key in wanted}

    def _shares(self, controller: TuneController, trial: Trial, base: Any) -> dict[str, float]:
        live = max(1, len(controller.get_live_trials()))
        return {key: amount / live for key, amount in self._total(base).items()}

    def _grown(self, base: Any, share: dict[str, float]) -> Any:
        from raygo.train._settings import PlacementGroupFactory

        own = base.required_resources
        step = self.increase_by or ({key: own[key] for key in share} if self.add_bundles else dict.fromkeys(share, 1.0))
        times = min((math.floor((share[key] - own[key]) / amount + 1e-9) for key, amount in step.items() if amount and key in share), default=0)
        if self.increase_by_times >= 0:
            times = min(times, self.increase_by_times)
        if times <= 0:
            return base
        if self.add_bundles:
            return PlacementGroupFactory([*base.bundles, *([dict(step)] * times)], base.strategy)
        first = dict(base.bundles[0])
        for key, amount in step.items():
            first[key] = first.get(key, 0) + amount * times
        return PlacementGroupFactory([first, *base.bundles[1:]], base.strategy)


class DistributeResourcesToTopJob(DistributeResources):
    """Gives all that is free to the best trial.

    Parameters
    ----------
    metric, mode : str, optional
        What trials are compared by; the scheduler's by default.
    add_bundles, increase_by, increase_by_times, reserve_resources
        As for DistributeResources.
    """

    def __init__(self, add_bundles: bool = False, increase_by: dict[str, float] | None = None, increase_by_times: int = -1,
                 reserve_resources: dict[str, float] | None = None, metric: str | None = None, mode: str | None = None) -> None:
        super().__init__(add_bundles, increase_by, increase_by_times, reserve_resources)
        self.metric, self.mode = metric, mode

    def _shares(self, controller: TuneController, trial: Trial, base: Any) -> dict[str, float]:
        from raygo.train._result import dig

        scheduler = controller.scheduler_alg
        metric, mode = self.metric or scheduler.metric, self.mode or scheduler._mode
        if not metric:
            raise ValueError("DistributeResourcesToTopJob does not know what to compare trials by: give metric and mode to it or to TuneConfig")
        sign = -1 if mode == "min" else 1
        live = [(sign * float(value), t is trial) for t in controller.get_live_trials() if (value := dig(t.last_result, metric)) is not None and value == value]
        if not live or not max(live)[1]:
            return dict.fromkeys(self._total(base), 0.0)
        others = [t.placement_group_factory.required_resources for t in controller.get_live_trials() if t is not trial and t.placement_group_factory]
        return {key: amount - sum(o.get(key, 0) for o in others) for key, amount in self._total(base).items()}


evenly_distribute_cpus_gpus = DistributeResources()


class ResourceChangingScheduler(TrialScheduler):
    """Lets another scheduler decide, and changes the resources of trials that go on.

    A trial whose resources change is paused and starts again from its checkpoint, so it has to make some.

    Parameters
    ----------
    base_scheduler : TrialScheduler, optional
        The other scheduler; first in, first out by default.
    resources_allocation_function : callable, optional
        Of controller, trial, result and this scheduler; a PlacementGroupFactory, or None for no change.
    """

    def __init__(self, base_scheduler: TrialScheduler | None = None,
                 resources_allocation_function: Callable[..., Any] | None = evenly_distribute_cpus_gpus) -> None:
        self._base_scheduler = base_scheduler or FIFOScheduler()
        self._allocate = resources_allocation_function
        self._base: dict[str, Any] = {}
        self._next: dict[str, Any] = {}

    @property
    def metric(self) -> str | None:
        return self._base_scheduler.metric

    @property
    def _mode(self) -> str | None:       # type: ignore[override]
        return self._base_scheduler._mode

    @property
    def base_trial_resources(self) -> Any:
        """What a trial began with."""
        return next(iter(self._base.values()), None)

    _base_trial_resources = base_trial_resources        # by this name Ray's examples ask for it

    def base_of(self, trial: Trial) -> Any:
        """What this trial began with."""
        return self._base[trial.trial_id]

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        return tell(self._base_scheduler.set_search_properties, metric, mode, **spec)

    def on_trial_add(self, tune_controller: TuneController, trial: Trial, **kwargs: Any) -> None:
        self._base[trial.trial_id] = trial.placement_group_factory
        self._base_scheduler.on_trial_add(tune_controller, trial)

    def on_trial_error(self, tune_controller: TuneController, trial: Trial, **kwargs: Any) -> None:
        self._next.pop(trial.trial_id, None)
        self._base_scheduler.on_trial_error(tune_controller, trial)

    def on_trial_result(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> str:
        decision = self._base_scheduler.on_trial_result(tune_controller, trial, result)
        if decision == TrialScheduler.CONTINUE:
            wanted = self.reallocate_trial_resources_if_needed(tune_controller, trial, result)
            if wanted is not None:
                self._next[trial.trial_id] = wanted
                return TrialScheduler.PAUSE
        return decision

    def on_trial_complete(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any], **kwargs: Any) -> None:
        self._next.pop(trial.trial_id, None)
        self._base_scheduler.on_trial_complete(tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: TuneController, trial: Trial, **kwargs: Any) -> None:
        self._next.pop(trial.trial_id, None)
        self._base_scheduler.on_trial_remove(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: TuneController, **kwargs: Any) -> Trial | None:
        for trial in tune_controller.startable_trials():
            if (wanted := self._next.pop(trial.trial_id, None)) is not None:
                tune_controller.update_resources(trial, wanted)
                if trial.status == Trial.PAUSED:
                    return trial
        return self._base_scheduler.choose_trial_to_run(tune_controller)

    def set_trial_resources(self, trial: Trial, new_resources: Any) -> bool:
        """Give a trial other resources when it starts next; whether they are others."""
        if new_resources is None or new_resources == trial.placement_group_factory:
            return False
        self._next[trial.trial_id] = new_resources
        return True

    def reallocate_trial_resources_if_needed(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> Any:
        """Other resources for a trial, or None."""
        if self._allocate is None:
            return None
        if not getattr(self._allocate, "__self__", None) and trial.checkpoint is None and tune_controller._is_function:
            return None                   # it could not go on where it is
        wanted = self._allocate(tune_controller, trial, result, self)
        return None if wanted is None or wanted == trial.placement_group_factory else wanted

    def debug_string(self) -> str:
        return f"(ResourceChangingScheduler) {self._base_scheduler.debug_string()}"

    def save(self, checkpoint_path: str) -> None:
        self._base_scheduler.save(checkpoint_path)

    def restore(self, checkpoint_path: str) -> None:
        self._base_scheduler.restore(checkpoint_path)
