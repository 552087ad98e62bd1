"""Search by Ax, Bayesian optimisation with constraints."""
from __future__ import annotations

import math
from typing import Any

from raygo.tune.search._spaces import flat_point, nested, parameters
from raygo.tune.search.searcher import Searcher
from raygo.tune.search.util import UNDEFINED_METRIC_MODE, UNDEFINED_SEARCH_SPACE, needs
from raygo.tune.search.variant_generator import has_unresolved

__all__ = ["AxSearch"]


class AxSearch(Searcher):
    """Proposes what Ax proposes.

    Parameters
    ----------
    space : dict or list of dict, optional
        A space of raygo.tune, or Ax's parameters; the Tuner's param_space by default.
    metric, mode : str, optional
        What is optimised.
    points_to_evaluate : list of dict, optional
        Configurations for the first trials.
    parameter_constraints, outcome_constraints : list of str, optional
        In Ax's notation, such as ``"x3 >= x4"``.
    ax_client : ax.service.ax_client.AxClient, optional
        A client of one's own; with an experiment, which has the space, or without.
    **ax_kwargs
        For AxClient.
    """

    def __init__(self, space: Any = None, metric: str | None = None, mode: str | None = None, points_to_evaluate: list[dict[str, Any]] | None = None,
                 parameter_constraints: list[str] | None = None, outcome_constraints: list[str] | None = None, ax_client: Any = None,
                 **ax_kwargs: Any) -> None:
        needs("ax-platform", "ax.service.ax_client", "AxSearch")
        super().__init__(metric=metric, mode=mode)
        self._points = list(points_to_evaluate or [])
        self._constraints, self._outcomes = parameter_constraints, outcome_constraints
        self._client, self._kwargs = ax_client, ax_kwargs
        self._params: list[Any] = []
        self._space: Any = None
        self._ready = False
        self._live: dict[str, int] = {}
        if space is not None:
            self._set_space(space)

    def _set_space(self, space: Any) -> None:
        if isinstance(space, dict):
            self._params = parameters(space, "Ax")
            space = self.convert_search_space(space)
        self._space = space

    @staticmethod
    def convert_search_space(spec: dict[str, Any]) -> list[dict[str, Any]]:
        """A space of raygo.tune in Ax's terms."""
        found: list[dict[str, Any]] = []
        for p in parameters(spec, "Ax"):
            name = p.name.replace("/", ".")
            if p.kind == "choice":
                found.append({"name": name, "type": "choice", "values": list(p.categories), "is_ordered": False})
            elif p.kind == "normal":
                raise ValueError(f"Ax does not know the distribution of {p.name}: use tune.uniform")
            else:
                found.append({"name": name, "type": "range", "bounds": [p.lower, p.upper], "log_scale": p.log,
                              "value_type": "int" if p.kind == "int" else "float"})
        return found

    def _make(self) -> None:
        from ax.service.ax_client import AxClient
        from ax.service.utils.instantiation import ObjectiveProperties

        self._client = self._client or AxClient(**{"verbose_logging": False, **self._kwargs})
        try:
            has = bool(self._client.experiment)
        except Exception:                 # it has none, which Ax says in different ways
            has = False
        if not has:
            if not self._space:
                raise RuntimeError(UNDEFINED_SEARCH_SPACE.format(cls="AxSearch", space="space"))
            if not self._metric or not self._mode:
                raise RuntimeError(UNDEFINED_METRIC_MODE.format(cls="AxSearch", metric=self._metric, mode=self._mode))
            self._client.create_experiment(parameters=self._space, objectives={str(self._metric): ObjectiveProperties(minimize=self._mode == "min")},
                                           parameter_constraints=self._constraints, outcome_constraints=self._outcomes)
        self._ready = True

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        if (self._space is not None or self._ready) and has_unresolved(config):
            return False
        self._take_properties(metric, mode)
        if self._space is None and config:
            self._set_space(config)
        return True

    def suggest(self, trial_id: str) -> Any:
        if not self._ready:
            self._make()
        if self._points:
            point = {name.replace("/", "."): value for name, value in flat_point(self._points.pop(0)).items()}
            values, number = self._client.attach_trial(point)
        else:
            from ax.exceptions.core import DataRequiredError
            from ax.exceptions.generation_strategy import MaxParallelismReachedException

            try:
                values, number = self._client.get_next_trial()
            except (MaxParallelismReachedException, DataRequiredError):
                return None
        self._live[trial_id] = number
        if not self._params:
            return dict(values)
        named = {p.name: values[p.name.replace("/", ".")] for p in self._params}
        for p in self._params:
            if p.step is not None:
                named[p.name] = min(max(p.quantized(named[p.name]), p.lower), p.upper)
        return nested(named, self._params)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        number = self._live.pop(trial_id, None)
        if number is None:
            return
        value = None if error else self._value(result, lower_is_better=True)
        if value is None or not math.isfinite(value):
            self._client.log_trial_failure(number)
            return
        from raygo.train._result import dig

        wanted = [str(self._metric), *(str(c).split()[0] for c in self._outcomes or [])]
        self._client.complete_trial(number, raw_data={name: (float(dig(result or {}, name)), 0.0) for name in wanted})
