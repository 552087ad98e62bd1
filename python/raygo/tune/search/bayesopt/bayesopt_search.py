"""Search by the package bayesian-optimization: a Gaussian process over numbers."""
from __future__ import annotations

import json
import logging
from typing import Any

from raygo.tune.search._spaces import flat_point, parameters, unflat
from raygo.tune.search.searcher import Searcher
from raygo.tune.search.util import needs
from raygo.tune.search.variant_generator import has_unresolved

__all__ = ["BayesOptSearch"]

log = logging.getLogger("raygo.tune")


class BayesOptSearch(Searcher):
    """Proposes what bayesian-optimization proposes.

    Parameters
    ----------
    space : dict, optional
        Bounds by name, ``{"width": (0, 20)}``, or a space of raygo.tune of floats; the Tuner's param_space by default.
    metric, mode : str, optional
        What is optimised.
    points_to_evaluate : list of dict, optional
        Configurations for the first trials.
    utility_kwargs : dict, optional
        ``kind`` ("ucb", "ei", "poi"), ``kappa`` and ``xi`` of the acquisition function.
    random_state : int
        A seed.
    random_search_steps : int
        How many random points come first.
    patience : int
        How often the same point may be proposed before the search ends.
    skip_duplicate : bool
        Whether a point is tried only once.
    analysis : ExperimentAnalysis, optional
        An earlier search to learn from.
    repeat_float_precision : int
        Digits by which points are the same.
    """

    def __init__(self, space: dict[str, Any] | None = None, metric: str | None = None, mode: str | None = None,
                 points_to_evaluate: list[dict[str, Any]] | None = None, utility_kwargs: dict[str, Any] | None = None, random_state: int = 42,
                 random_search_steps: int = 10, verbose: int = 0, patience: int = 5, skip_duplicate: bool = True, analysis: Any = None,
                 repeat_float_precision: int = 5) -> None:
        needs("bayesian-optimization", "bayes_opt", "BayesOptSearch")
        if random_search_steps < 0 or patience < 1:
            raise ValueError("random_search_steps and patience have to be positive")
        super().__init__(metric=metric, mode=mode)
        import numpy as np

        self._points = list(points_to_evaluate or [])
        self._utility = {"kind": "ucb", "kappa": 2.576, "xi": 0.0, **(utility_kwargs or {})}
        self._seed, self._verbose, self._patience = random_state, verbose, patience
        self._random = np.random.RandomState(random_state)
        self._random_left = random_search_steps
        self._skip, self._digits = skip_duplicate, repeat_float_precision
        self._seen: dict[str, int] = {}
        self._live: dict[str, dict[str, float]] = {}
        self._params: list[Any] = []
        self._bounds: dict[str, tuple[float, float]] = {}
        self._analysis = analysis
        self.optimizer: Any = None
        if space:
            self._set_space(space)

    def _set_space(self, space: dict[str, Any]) -> None:
        if has_unresolved(space):
            given = {name: value for name, value in space.items() if isinstance(value, tuple) and not has_unresolved(value)}
            self._bounds = {**self.convert_search_space(space), **given}
            self._params = parameters(space, "BayesOpt")
        else:
            self._bounds = {name: (float(low), float(high)) for name, (low, high) in space.items()}
        self.optimizer = self._make()
        if self._analysis is not None:
            self.register_analysis(self._analysis)

    def _make(self) -> Any:
        import bayes_opt

        common = {"f": None, "pbounds": self._bounds, "verbose": self._verbose, "random_state": self._seed, "allow_duplicate_points": True}
        kind, kappa, xi = self._utility["kind"], self._utility["kappa"], self._utility["xi"]
        if not hasattr(bayes_opt, "acquisition"):      # before version 2
            self._acquisition = bayes_opt.UtilityFunction(kind=kind, kappa=kappa, xi=xi)
            return bayes_opt.BayesianOptimization(**common)
        made = {"ucb": lambda: bayes_opt.acquisition.UpperConfidenceBound(kappa=kappa), "ei": lambda: bayes_opt.acquisition.ExpectedImprovement(xi=xi),
                "poi": lambda: bayes_opt.acquisition.ProbabilityOfImprovement(xi=xi)}
        self._acquisition = None
        return bayes_opt.BayesianOptimization(acquisition_function=made[kind](), **common)

    @staticmethod
    def convert_search_space(spec: dict[str, Any], join: bool = False) -> dict[str, Any]:
        """The bounds of a space; with `join` also what has none."""
        bounds: dict[str, Any] = {}
        for p in parameters(spec, "BayesOpt"):
            if p.kind != "float":
                raise ValueError(f"BayesOpt does not support parameters of type {p.domain!r} ({p.name}): it knows real numbers only")
            if p.log:
                log.warning("BayesOpt does not know orders of magnitude: %s is searched evenly from %g to %g", p.name, p.lower, p.upper)
            bounds[p.name] = (p.lower, p.upper)
        return {**spec, **bounds} if join else bounds

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        return self._take_search(metric, mode, config, has_space=self.optimizer is not None)

    def suggest(self, trial_id: str) -> Any:
        self._require_search(self.optimizer is not None, "space")
        if self._points:
            point = {name: float(value) for name, value in flat_point(self._points.pop(0)).items()}
        elif self._random_left > 0:
            self._random_left -= 1
            point = {name: float(self._random.uniform(*bounds)) for name, bounds in self._bounds.items()}
        else:
            known = self.optimizer.suggest(self._acquisition) if self._acquisition is not None else self.optimizer.suggest()
            point = {name: float(value) for name, value in known.items()}
        key = json.dumps({name: round(value, self._digits) for name, value in point.items()}, sort_keys=True)
        self._seen[key] = self._seen.get(key, 0) + 1
        if self._skip and self._seen[key] > self._patience:
            return Searcher.FINISHED
        if self._skip and self._seen[key] > 1:
            point = {name: float(self._random.uniform(*bounds)) for name, bounds in self._bounds.items()}
        self._live[trial_id] = point
        steps = {p.name: min(max(p.quantized(point[p.name]), p.lower), p.upper) for p in self._params if p.step is not None}
        return unflat({**point, **steps})

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        point = self._live.pop(trial_id, None)
        value = None if error else self._value(result, lower_is_better=False)
        if point is not None and value is not None and abs(value) != float("inf"):
            self.optimizer.register(params=point, target=value)

    def register_analysis(self, analysis: Any) -> None:
        """Learn from an earlier search."""
        for trial in analysis.trials:
            value = self._value(trial.last_result, lower_is_better=False)
            if value is not None and abs(value) != float("inf"):
                flat = flat_point(trial.config)
                self.optimizer.register(params={name: flat[name] for name in self._bounds}, target=value)
