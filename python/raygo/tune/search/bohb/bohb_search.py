"""Search by BOHB: densities of good and bad configurations, for each budget of HyperBand."""
from __future__ import annotations

import math
from typing import Any

from raygo.train._result import dig
from raygo.tune.search._spaces import flat_point, nested, parameters
from raygo.tune.search.searcher import Searcher
from raygo.tune.search.util import needs

__all__ = ["TuneBOHB"]


class _Job:
    """A result as hpbandster has it."""

    def __init__(self, loss: float, budget: float, config: dict[str, Any]) -> None:
        self.result = {"loss": loss}
        self.kwargs = {"budget": budget, "config": dict(config)}
        self.exception = None


class TuneBOHB(Searcher):
    """Proposes what hpbandster's BOHB proposes; use it with the scheduler HyperBandForBOHB.

    Parameters
    ----------
    space : dict or ConfigSpace.ConfigurationSpace, optional
        A space of raygo.tune or of ConfigSpace; the Tuner's param_space by default.
    bohb_config : dict, optional
        For hpbandster's BOHB.
    metric, mode : str, optional
        What is optimised.
    points_to_evaluate : list of dict, optional
        Configurations for the first trials.
    seed : int, optional
        A seed.
    max_concurrent : int
        How many trials run at once; 0: any number.
    """

    def __init__(self, space: Any = None, bohb_config: dict[str, Any] | None = None, metric: str | None = None, mode: str | None = None,
                 points_to_evaluate: list[dict[str, Any]] | None = None, seed: int | None = None, max_concurrent: int = 0) -> None:
        needs("hpbandster", "hpbandster.optimizers.config_generators.bohb", "TuneBOHB")
        needs("ConfigSpace", "ConfigSpace", "TuneBOHB")
        super().__init__(metric=metric, mode=mode)
        self._config, self._seed, self._most = dict(bohb_config or {}), seed, max_concurrent
        self._points = list(points_to_evaluate or [])
        self._space: Any = None
        self._params: list[Any] = []
        self._bohber: Any = None
        self._live: dict[str, dict[str, Any]] = {}
        self._paused: set[str] = set()
        self._learned: dict[str, Any] = {}            # the last budget of each trial of which BOHB knows
        if space is not None:
            self._set_space(space)

    def _set_space(self, space: Any) -> None:
        from hpbandster.optimizers.config_generators.bohb import BOHB

        if isinstance(space, dict):
            self._params = parameters(space, "BOHB")
            space = self.convert_search_space(space)
        if self._seed is not None:
            space.seed(self._seed)
        self._space = space
        self._bohber = BOHB(space, **self._config)

    @staticmethod
    def convert_search_space(spec: dict[str, Any]) -> Any:
        """A space of raygo.tune in ConfigSpace's terms."""
        import ConfigSpace

        made = ConfigSpace.ConfigurationSpace()
        for p in parameters(spec, "BOHB"):
            if p.kind == "choice":
                one = ConfigSpace.CategoricalHyperparameter(p.name, choices=p.categories)
            elif p.kind == "normal":
                raise ValueError(f"BOHB does not know the distribution of {p.name}: use tune.uniform")
            elif p.kind == "int":
                one = ConfigSpace.UniformIntegerHyperparameter(p.name, lower=p.lower, upper=p.upper, log=p.log)
            else:
                one = ConfigSpace.UniformFloatHyperparameter(p.name, lower=p.lower, upper=p.upper, log=p.log)
            made.add(one)
        return made

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        return self._take_search(metric, mode, config, has_space=self._space is not None)

    def suggest(self, trial_id: str) -> Any:
        self._require_search(self._space is not None, "space")
        if self._most and len(self._live) - len(self._paused) >= self._most:
            return None
        if self._points:
            values = flat_point(self._points.pop(0))
        else:
            values = dict(self._bohber.get_config(None)[0])      # proposals do not depend on the budget before there are results of one
        self._live[trial_id] = values
        plain = {name: value.item() if hasattr(value, "item") else value for name, value in values.items()}
        if not self._params:
            return plain
        for p in self._params:
            if p.step is not None:
                plain[p.name] = min(max(p.quantized(plain[p.name]), p.lower), p.upper)
        return nested(plain, self._params)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self._learn(trial_id, result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if result is not None and not error:
            self._learn(trial_id, result)
        self._live.pop(trial_id, None)
        self._learned.pop(trial_id, None)
        self._paused.discard(trial_id)

    def _learn(self, trial_id: str, result: dict[str, Any]) -> None:
        budget = dig(result, "hyperband_info/budget")
        loss = self._value(result, lower_is_better=True)
        if budget is None or loss is None or trial_id not in self._live or result.get("training_iteration", budget) < budget:
            return
        if self._learned.get(trial_id) == budget:          # the last report comes again as the trial ends
            return
        self._learned[trial_id] = budget
        self._bohber.new_result(_Job(loss if math.isfinite(loss) else 1e300, budget, self._live[trial_id]))

    def to_wrapper(self, trial_id: str, result: dict[str, Any]) -> Any:
        """A result as hpbandster has it."""
        return _Job(float(result[self._metric]), float(result["hyperband_info"]["budget"]), self._live[trial_id])

    def on_pause(self, trial_id: str) -> None:
        self._paused.add(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        self._paused.discard(trial_id)
