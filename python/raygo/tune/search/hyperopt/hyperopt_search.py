"""Search by hyperopt's tree-structured Parzen estimator."""
from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any

from raygo.tune.search._spaces import Parameter, flat_point
from raygo.tune.search.searcher import Searcher
from raygo.tune.search.util import UNDEFINED_METRIC_MODE, UNDEFINED_SEARCH_SPACE, needs
from raygo.tune.search.variant_generator import has_unresolved, without_grids

__all__ = ["HyperOptSearch"]

HYPEROPT_UNDEFINED_DETAILS = " This issue can also come up with HyperOpt if your search space only contains constant values."


class HyperOptSearch(Searcher):
    """Proposes what hyperopt's TPE proposes.

    Parameters
    ----------
    space : dict, optional
        A space of raygo.tune or of ``hyperopt.hp``; the Tuner's param_space by default.
    metric, mode : str, optional
        What is optimised.
    points_to_evaluate : list of dict, optional
        Configurations for the first trials.
    n_initial_points : int
        How many random points come first.
    random_state_seed : int, optional
        A seed.
    gamma : float
        The share of points that count as good.
    """

    def __init__(self, space: dict[str, Any] | None = None, metric: str | None = None, mode: str | None = None,
                 points_to_evaluate: list[dict[str, Any]] | None = None, n_initial_points: int = 20, random_state_seed: int | None = None,
                 gamma: float = 0.25) -> None:
        hpo = needs("hyperopt", "hyperopt", "HyperOptSearch")
        import numpy as np

        super().__init__(metric=metric, mode=mode)
        self._algo = partial(hpo.tpe.suggest, n_startup_jobs=n_initial_points, gamma=gamma)
        self._points = list(points_to_evaluate or [])
        self._random = np.random.default_rng(random_state_seed)
        self._domain: Any = None
        self._trials: Any = None
        self._live: dict[str, int] = {}           # trial -> hyperopt's number
        self._space: Any = None
        if space is not None:
            self._set_space(space)

    def _set_space(self, space: dict[str, Any]) -> None:
        import hyperopt

        if not isinstance(space, dict):
            raise TypeError(f"space is a {type(space).__name__}: give a dict")
        if has_unresolved(space):
            without_grids(space, "HyperOpt")
            space = _convert(space, ())
        self._space = space
        self._domain = hyperopt.Domain(lambda spc: spc, space)
        self._trials = hyperopt.Trials()
        if self._points:
            from hyperopt.fmin import generate_trials_to_calculate

            self._trials = generate_trials_to_calculate([self._hyperopt_point(p, hyperopt) for p in self._points])
            self._trials.refresh()

    def _hyperopt_point(self, point: dict[str, Any], hyperopt: Any) -> dict[str, Any]:
        """A point in hyperopt's terms, which has numbers for choices."""
        known = self._domain.params
        values = {name: value for name, value in flat_point(point, known).items() if name in known}
        for name, options in _choices(self._space).items():
            if name in values:
                values[name] = options.index(values[name])
        try:
            hyperopt.pyll.rec_eval(self._domain.expr, memo=self._domain.memo_from_config(values))
        except AssertionError:           # how hyperopt says it
            missing = ", ".join(sorted(set(self._domain.params) - set(values)))
            raise ValueError(f"points_to_evaluate has {point}, which lacks {missing}: HyperOpt takes points with all values only") from None
        return values

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        return self._take_search(metric, mode, config, has_space=self._domain is not None)

    def suggest(self, trial_id: str) -> Any:
        import hyperopt

        if self._domain is None:
            raise RuntimeError(UNDEFINED_SEARCH_SPACE.format(cls="HyperOptSearch", space="space") + HYPEROPT_UNDEFINED_DETAILS)
        if not self._metric or not self._mode:
            raise RuntimeError(UNDEFINED_METRIC_MODE.format(cls="HyperOptSearch", metric=self._metric, mode=self._mode))
        waiting = [t for t in self._trials._dynamic_trials if t["state"] == hyperopt.JOB_STATE_NEW and t["tid"] not in self._live.values()]
        if not waiting:
            ids = self._trials.new_trial_ids(1)
            self._trials.refresh()
            self._trials.insert_trial_docs(self._algo(ids, self._domain, self._trials, int(self._random.integers(2**31 - 1))))
            self._trials.refresh()
            waiting = [t for t in self._trials._dynamic_trials if t["tid"] in ids]
        trial = waiting[0]
        self._live[trial_id] = trial["tid"]
        trial["state"] = hyperopt.JOB_STATE_RUNNING
        config = hyperopt.base.spec_from_misc(trial["misc"])
        memo = self._domain.memo_from_config(config)
        return _plain(hyperopt.pyll.rec_eval(self._domain.expr, memo=memo))

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        import hyperopt

        number = self._live.pop(trial_id, None)
        if number is None:
            return
        trial = next(t for t in self._trials._dynamic_trials if t["tid"] == number)
        loss = None if error else self._value(result, lower_is_better=True)
        if loss is None:
            trial["state"] = hyperopt.JOB_STATE_ERROR
            trial["misc"]["error"] = (str(hyperopt.base.JOB_STATE_ERROR), "Trial failed")
        else:
            trial["state"] = hyperopt.JOB_STATE_DONE
            status = "fail" if math.isinf(loss) else "ok"
            trial["result"] = {"loss": loss, "status": status}
        self._trials.refresh()

    def get_state(self) -> dict[str, Any]:
        return {key: copy.copy(value) if key == "_live" else value for key, value in self.__dict__.items()}

    @staticmethod
    def convert_search_space(spec: dict[str, Any], prefix: str = "") -> dict[str, Any]:
        """A space of raygo.tune in hyperopt's terms."""
        without_grids(spec, "HyperOpt")
        return _convert(spec, tuple(prefix.split("/")) if prefix else ())  # type: ignore[no-any-return]


def _convert(value: Any, path: tuple[Any, ...]) -> Any:
    from raygo.tune.search.sample import Domain

    if isinstance(value, Domain):
        return _expression(Parameter(path, value, "HyperOpt"))
    if isinstance(value, dict):
        return {key: _convert(inner, (*path, key)) for key, inner in value.items()}
    if isinstance(value, (list, tuple)) and has_unresolved(value):
        return [_convert(inner, (*path, i)) for i, inner in enumerate(value)]
    return value


def _expression(p: Parameter) -> Any:
    from hyperopt import hp

    name = p.name
    if p.kind == "choice":
        return hp.choice(name, [_convert(value, (*p.path, f"{name}_{i}")) for i, value in enumerate(p.categories)])
    if p.kind == "normal":
        return hp.qnormal(name, p.mean, p.sd, p.step) if p.step else hp.normal(name, p.mean, p.sd)
    if p.log:
        low, high = math.log(p.lower), math.log(p.upper)
        step = p.step or (1 if p.kind == "int" else None)
        made = hp.qloguniform(name, low, high, step) if step else hp.loguniform(name, low, high)
    elif p.kind == "int":
        made = hp.quniform(name, p.lower, p.upper, p.step or 1)
    else:
        made = hp.quniform(name, p.lower, p.upper, p.step) if p.step else hp.uniform(name, p.lower, p.upper)
    if p.kind == "int":
        from hyperopt.pyll import scope

        return scope.int(made)
    return made


def _choices(space: Any) -> dict[str, list[Any]]:
    """The options of each choice of a converted space, where they are plain values."""
    from hyperopt.pyll import as_apply, dfs

    found: dict[str, list[Any]] = {}
    for node in dfs(as_apply(space)):
        if node.name == "switch" and node.pos_args[0].name == "hyperopt_param":
            options = [option.obj for option in node.pos_args[1:] if option.name == "literal"]
            if len(options) == len(node.pos_args) - 1:
                found[node.pos_args[0].pos_args[0].obj] = options
    return found


def _plain(value: Any) -> Any:
    """hyperopt gives tuples and NumPy's numbers."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return [_plain(inner) for inner in value]
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value
