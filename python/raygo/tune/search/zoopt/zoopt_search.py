"""Search by ZOOpt's ASRacos."""
from __future__ import annotations

from typing import Any

from raygo.tune.search._spaces import flat_point, nested, parameters
from raygo.tune.search.searcher import Searcher
from raygo.tune.search.util import needs
from raygo.tune.search.variant_generator import has_unresolved

__all__ = ["ZOOptSearch"]


class ZOOptSearch(Searcher):
    """Proposes what ZOOpt proposes.

    Parameters
    ----------
    algo : str
        "asracos".
    budget : int
        How many trials there will be.
    dim_dict : dict, optional
        ZOOpt's dimensions by name; the Tuner's param_space by default.
    metric, mode : str, optional
        What is optimised.
    points_to_evaluate : list of dict, optional
        Configurations for the first trials.
    parallel_num : int
        How many trials run at once.
    """

    optimizer: Any = None

    def __init__(self, algo: str = "asracos", budget: int | None = None, dim_dict: dict[str, Any] | None = None, metric: str | None = None,
                 mode: str | None = None, points_to_evaluate: list[dict[str, Any]] | None = None, parallel_num: int = 1, **kwargs: Any) -> None:
        needs("zoopt", "zoopt", "ZOOptSearch")
        if budget is None:
            raise ValueError("ZOOptSearch needs to know the `budget`: how many trials there will be")
        if algo.lower() not in ("asracos", "sracos"):
            raise ValueError(f"`algo` is {algo!r}: give 'asracos'")
        super().__init__(metric=metric, mode=mode)
        self._points = list(points_to_evaluate or [])
        self._budget, self._parallel, self._kwargs = budget, parallel_num, kwargs
        self._params: list[Any] = []
        self._live: dict[str, Any] = {}
        self._names: list[str] = []
        self._dims: dict[str, Any] | None = None
        if dim_dict is not None:
            self._set_space(dim_dict)

    def _set_space(self, space: dict[str, Any]) -> None:
        if has_unresolved(space):
            self._params = parameters(space, "ZOOpt")
            space = self.convert_search_space(space)
        self._dims = space

    @staticmethod
    def convert_search_space(spec: dict[str, Any], join: bool = False) -> dict[str, Any]:
        """A space of raygo.tune in ZOOpt's terms."""
        from zoopt import ValueType

        dims: dict[str, Any] = {}
        for p in parameters(spec, "ZOOpt"):
            if p.kind == "choice":
                dims[p.name] = (ValueType.GRID, list(p.categories))
            elif p.kind == "normal" or p.log:
                raise ValueError(f"ZOOpt does not know the distribution of {p.name}: use tune.uniform, tune.randint or tune.choice")
            elif p.kind == "int":
                dims[p.name] = (ValueType.DISCRETE, [p.lower, p.upper], True)
            else:
                dims[p.name] = (ValueType.CONTINUOUS, [p.lower, p.upper], p.step or 1e-12)
        return {**spec, **dims} if join else dims

    def _make(self) -> None:
        import zoopt
        from zoopt.algos.opt_algorithms.racos.sracos import SRacosTune

        assert self._dims is not None
        self._names = list(self._dims)
        dimension = zoopt.Dimension2([self._dims[name] for name in self._names])
        options = zoopt.Parameter(budget=self._budget, init_samples=[[flat_point(point)[name] for name in self._names] for point in self._points] or None)
        self.optimizer = SRacosTune(dimension=dimension, parameter=options, parallel_num=self._parallel, **self._kwargs)

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        return self._take_search(metric, mode, config, has_space=self._dims is not None)

    def suggest(self, trial_id: str) -> Any:
        self._require_search(self._dims is not None, "dim_dict")
        if self.optimizer is None:
            self._make()
        solution = self.optimizer.suggest()
        if not solution and not self._live:          # ZOOpt waits for trials that have all ended
            self.optimizer.semaphore = 1
            solution = self.optimizer.suggest()
        if solution == "FINISHED":
            return Searcher.FINISHED
        if not solution:
            return None
        self._live[trial_id] = solution
        values = {name: x.item() if hasattr(x, "item") else x for name, x in zip(self._names, solution.get_x(), strict=True)}
        return nested(values, self._params) if self._params else values

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        solution = self._live.pop(trial_id, None)
        value = None if error else self._value(result, lower_is_better=True)
        if solution is not None and value is not None and self.optimizer is not None:
            self.optimizer.complete(solution, value)
