"""Search by Nevergrad's optimisers, which need no gradients."""
from __future__ import annotations

from typing import Any

from raygo.tune.search._spaces import Parameter, flat_point, nested, parameters
from raygo.tune.search.searcher import Searcher
from raygo.tune.search.util import needs

__all__ = ["NevergradSearch"]


class NevergradSearch(Searcher):
    """Proposes what a Nevergrad optimiser proposes.

    Parameters
    ----------
    optimizer : class or optimiser, optional
        Of ``nevergrad.optimizers``; NGOpt by default.
    optimizer_kwargs : dict, optional
        For the class.
    space : dict or nevergrad.p.Dict, optional
        A space of raygo.tune or of Nevergrad; the Tuner's param_space by default.
    metric, mode : str, optional
        What is optimised.
    points_to_evaluate : list of dict, optional
        Configurations for the first trials.
    """

    def __init__(self, optimizer: Any = None, optimizer_kwargs: dict[str, Any] | None = None, space: Any = None, metric: str | None = None,
                 mode: str | None = None, points_to_evaluate: list[dict[str, Any]] | None = None) -> None:
        ng = needs("nevergrad", "nevergrad", "NevergradSearch")
        super().__init__(metric=metric, mode=mode)
        self._points = list(points_to_evaluate or [])
        self._factory = optimizer or ng.optimizers.NGOpt
        self._kwargs = {"budget": 100, **(optimizer_kwargs or {})}
        self._params: list[Parameter] = []
        self._optimizer: Any = None
        self._live: dict[str, Any] = {}
        if isinstance(optimizer, ng.optimizers.base.Optimizer):
            if space is not None:
                raise ValueError("an optimiser that is made already has its space: leave `space` out")
            self._optimizer = optimizer
        elif space is not None:
            self._set_space(space)

    def _set_space(self, space: Any) -> None:
        if isinstance(space, dict):
            self._params = parameters(space, "Nevergrad")
            space = self.convert_search_space(space)
        self._optimizer = self._factory(parametrization=space, **self._kwargs)

    @staticmethod
    def convert_search_space(spec: dict[str, Any]) -> Any:
        """A space of raygo.tune in Nevergrad's terms."""
        import nevergrad as ng

        def one(p: Parameter) -> Any:
            if p.kind == "choice":
                return ng.p.Choice(p.categories)
            if p.kind == "normal":
                raise ValueError(f"Nevergrad does not know the distribution of {p.name}: use tune.uniform")
            if p.log:
                made = ng.p.Log(lower=p.lower, upper=p.upper)
            else:
                made = ng.p.Scalar(lower=p.lower, upper=p.upper)
            return made.set_integer_casting() if p.kind == "int" else made

        return ng.p.Dict(**{p.name: one(p) for p in parameters(spec, "Nevergrad")})

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        return self._take_search(metric, mode, config, has_space=self._optimizer is not None)

    def suggest(self, trial_id: str) -> Any:
        self._require_search(self._optimizer is not None, "space")
        if self._points:
            self._optimizer.suggest(**flat_point(self._points.pop(0)))
        asked = self._optimizer.ask()
        self._live[trial_id] = asked
        values = dict(asked.value) if isinstance(asked.value, dict) else dict(asked.kwargs)
        if not self._params:
            return values
        for p in self._params:
            if p.step is not None:
                values[p.name] = min(max(p.quantized(values[p.name]), p.lower), p.upper)
        return nested(values, self._params)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        asked = self._live.pop(trial_id, None)
        value = None if error else self._value(result, lower_is_better=True)
        if asked is not None and value is not None:
            self._optimizer.tell(asked, value)
