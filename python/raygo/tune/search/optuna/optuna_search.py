"""Search by Optuna."""
from __future__ import annotations

import logging
from numbers import Real
from typing import Any

from raygo.tune.result import TRAINING_ITERATION
from raygo.tune.search._spaces import Parameter, flat_point, unflat
from raygo.tune.search.searcher import Searcher
from raygo.tune.search.util import UNDEFINED_METRIC_MODE, UNDEFINED_SEARCH_SPACE, needs
from raygo.tune.search.variant_generator import assign_value, has_unresolved, parse_spec_vars, without_grids

__all__ = ["OptunaSearch"]

log = logging.getLogger("raygo.tune")

DEFINE_BY_RUN_WARN_THRESHOLD_S = 1


class OptunaSearch(Searcher):
    """Proposes what an Optuna sampler proposes, and tells the study how it went.

    Parameters
    ----------
    space : dict or callable, optional
        A space of raygo.tune, Optuna's distributions by name, or a function of an Optuna trial that suggests values and may return a dict of
        constants; the Tuner's param_space by default.  A `choice` may be of dicts with domains of their own: these are only suggested when
        they are chosen.
    metric, mode : str or list of str, optional
        What is optimised; lists for several objectives.
    points_to_evaluate : list of dict, optional
        Configurations, or parts of them, for the first trials.
    sampler : optuna.samplers.BaseSampler, optional
        TPESampler by default, for several objectives too.
    study_name : str, optional
        The name of the study.
    storage : optuna.storages.BaseStorage, optional
        Where the study is kept; in memory by default.
    seed : int, optional
        Of the default sampler.
    evaluated_rewards : list, optional
        The outcomes of `points_to_evaluate`, which are then not tried again.

    Examples
    --------
    >>> search = OptunaSearch(metric="loss", mode="min", seed=1)              # doctest: +SKIP
    >>> Tuner(train, param_space={"lr": tune.loguniform(1e-4, 1)},
    ...       tune_config=TuneConfig(search_alg=search, num_samples=50))      # doctest: +SKIP
    """

    def __init__(self, space: Any = None, metric: Any = None, mode: Any = None, points_to_evaluate: list[dict[str, Any]] | None = None,
                 sampler: Any = None, study_name: str | None = None, storage: Any = None, seed: int | None = None,
                 evaluated_rewards: list[Any] | None = None) -> None:
        optuna = needs("optuna", "optuna", "OptunaSearch")
        super().__init__(metric=metric, mode=mode)
        if sampler is not None and not isinstance(sampler, optuna.samplers.BaseSampler):
            raise ValueError(f"sampler is a {type(sampler).__name__}: give an Optuna sampler")
        if sampler is not None and seed is not None:
            log.warning("OptunaSearch: seed is for the default sampler; give it to yours")
        if storage is not None and not isinstance(storage, optuna.storages.BaseStorage):
            raise ValueError(f"storage is a {type(storage).__name__}: give an Optuna storage")
        self._space: Any = None
        self._points = list(points_to_evaluate or [])
        self._rewards = list(evaluated_rewards or [])
        if self._rewards and len(self._rewards) != len(self._points):
            raise ValueError(f"there are {len(self._points)} points_to_evaluate and {len(self._rewards)} evaluated_rewards")
        self._sampler, self._study_name, self._storage, self._seed = sampler, study_name, storage, seed
        self._study: Any = None
        self._trials: dict[str, Any] = {}
        if space is not None:
            self._set_space(space)
            if self._space and self._mode:
                self._make_study()

    def _set_space(self, space: Any) -> None:
        if isinstance(space, dict):
            without_grids(space, "Optuna")
        elif not callable(space):
            raise TypeError(f"space is a {type(space).__name__}: give a dict of domains, or a function of an Optuna trial")
        self._space = space

    def _make_study(self) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        modes = list(self._mode) if isinstance(self._mode, (list, tuple)) else [self._mode]
        sampler = self._sampler or optuna.samplers.TPESampler(seed=self._seed)
        self._study = optuna.create_study(storage=self._storage or optuna.storages.InMemoryStorage(), sampler=sampler, study_name=self._study_name,
                                          directions=["minimize" if mode == "min" else "maximize" for mode in modes], load_if_exists=True)
        for i, point in enumerate(self._points):
            if i < len(self._rewards):
                self.add_evaluated_point(point, self._rewards[i])
            else:
                self._study.enqueue_trial(self._indexed(point))

    @staticmethod
    def convert_search_space(spec: dict[str, Any]) -> dict[str, Any]:
        """A space in Optuna's terms: distributions by name, ``a/b`` for b within a."""
        without_grids(spec, "Optuna")
        return {p.name: _distribution(p) for p in (Parameter(path, domain, "Optuna") for path, domain in parse_spec_vars(spec)[1])}

    def _indexed(self, point: dict[str, Any]) -> dict[str, Any]:
        """A point by names, with the numbers of choices that Optuna cannot hold itself."""
        params = self._params()
        flat = flat_point(point, params)
        for name, param in params.items():
            if name in flat and param.kind == "choice" and not _plain(param):
                flat[name] = param.categories.index(flat[name])
        return flat

    def _params(self) -> dict[str, Parameter]:
        if callable(self._space) or not has_unresolved(self._space):
            return {}
        return {p.name: p for p in (Parameter(path, domain, "Optuna") for path, domain in parse_spec_vars(self._space)[1])}

    def set_search_properties(self, metric: Any, mode: Any, config: dict[str, Any], **spec: Any) -> bool:
        if self._space and has_unresolved(config):
            return False
        if self._space is None:
            self._set_space(config)
        self._take_properties(metric, mode)
        if self._study is None:
            self._make_study()
        return True

    def suggest(self, trial_id: str) -> Any:
        if not self._space:
            raise RuntimeError(UNDEFINED_SEARCH_SPACE.format(cls="OptunaSearch", space="space"))
        if not self._metric or self._study is None:
            raise RuntimeError(UNDEFINED_METRIC_MODE.format(cls="OptunaSearch", metric=self._metric, mode=self._mode))
        trial = self._study.ask()
        self._trials[trial_id] = trial
        if callable(self._space):
            constants = self._space(trial)
            if constants is not None and not (isinstance(constants, dict) and all(isinstance(key, str) for key in constants)):
                raise TypeError("The return value of the define-by-run function passed in the `space` argument should be either None or a dict "
                                f"with `str` keys. Got {type(constants)}.")
            return unflat({**(constants or {}), **trial.params})
        return self._suggest(trial, self._space, ())

    def _suggest(self, trial: Any, space: Any, path: tuple[Any, ...]) -> Any:
        """The space with a value in the place of each domain, also of those in a chosen value."""
        import copy

        config = copy.copy(space) if isinstance(space, dict) else space
        if not isinstance(config, dict):
            return config
        if not has_unresolved(space):
            return _suggest_distributions(trial, space)
        config = _containers(space)
        for where, domain in parse_spec_vars(space)[1]:
            value = _ask(trial, Parameter((*path, *where), domain, "Optuna"))
            if isinstance(value, dict) and has_unresolved(value):
                value = self._suggest(trial, value, (*path, *where))
            assign_value(config, where, value)
        return config

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if isinstance(self._metric, (list, tuple)):
            return                       # Optuna prunes by one objective only
        from raygo.train._result import dig

        value, trial = dig(result, self._metric), self._trials.get(trial_id)
        if trial is not None and isinstance(value, Real):
            trial.report(float(value), int(result.get(TRAINING_ITERATION, 0)))

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        import optuna

        trial = self._trials.pop(trial_id, None)
        if trial is None:                # of a search before a restart
            return
        values = self._values(result)
        if error or values is None:
            state = optuna.trial.TrialState.FAIL if error else optuna.trial.TrialState.PRUNED
            self._study.tell(trial, state=state)
        else:
            self._study.tell(trial, values=values)

    def _values(self, result: dict[str, Any] | None) -> list[float] | None:
        """The objectives; NaN, which Optuna does not take, is the worst there is."""
        from raygo.train._result import dig

        metrics = list(self._metric) if isinstance(self._metric, (list, tuple)) else [self._metric]
        modes = list(self._mode) if isinstance(self._mode, (list, tuple)) else [self._mode] * len(metrics)
        values: list[float] = []
        for metric, mode in zip(metrics, modes, strict=True):
            value = dig(result, metric) if result else None
            if value is None:
                return None
            number = float(value)
            values.append(number if number == number else float("inf") if mode == "min" else float("-inf"))
        return values

    def add_evaluated_point(self, parameters: dict[str, Any], value: Any, error: bool = False, pruned: bool = False,
                            intermediate_values: list[float] | None = None) -> None:
        import optuna

        if callable(self._space):
            raise TypeError("OptunaSearch cannot learn from points where its space is a function, whose values it does not know: give a dict")
        if not self._space:
            raise RuntimeError(UNDEFINED_SEARCH_SPACE.format(cls="OptunaSearch", space="space"))
        if self._study is None:
            self._make_study()
        params = self._params()
        flat = {name: v for name, v in self._indexed(parameters).items() if name in params}
        state = optuna.trial.TrialState.FAIL if error else optuna.trial.TrialState.PRUNED if pruned else optuna.trial.TrialState.COMPLETE
        values = None if error or pruned else list(value) if isinstance(value, (list, tuple)) else [value]
        self._study.add_trial(optuna.trial.create_trial(state=state, values=values, params=flat,
                                                        distributions={name: _distribution(params[name]) for name in flat},
                                                        intermediate_values=dict(enumerate(intermediate_values or []))))

    def set_state(self, state: dict[str, Any]) -> None:
        # Metric and mode may have been given anew.
        mine = {key: self.__dict__[key] for key in ("_metric", "_mode") if self.__dict__.get(key) is not None}
        self.__dict__.update({**state, **mine})


def _plain(param: Parameter) -> bool:
    return all(isinstance(value, (str, int, float, bool, type(None))) for value in param.categories)


def _ask(trial: Any, param: Parameter) -> Any:
    if param.kind == "choice":
        if _plain(param):
            return trial.suggest_categorical(param.name, param.categories)
        return param.categories[trial.suggest_categorical(param.name, list(range(len(param.categories))))]
    if param.kind == "normal":
        raise ValueError(f"Optuna does not know normal distributions, which {param.name} has: use tune.uniform")
    if param.kind == "int":
        value = trial.suggest_int(param.name, param.lower, param.upper, step=1 if param.log else int(param.step or 1), log=param.log)
        return _within(param, value) if param.log and param.step is not None else value
    if param.log and param.step is not None:          # Optuna has either
        return _within(param, trial.suggest_float(param.name, param.lower, param.upper, log=True))
    return trial.suggest_float(param.name, param.lower, param.upper, step=param.step, log=param.log)


def _within(param: Parameter, value: float) -> Any:
    return min(max(param.quantized(value), param.lower), param.upper)


def _distribution(param: Parameter) -> Any:
    from optuna import distributions as d

    if param.kind == "choice":
        return d.CategoricalDistribution(param.categories if _plain(param) else list(range(len(param.categories))))
    if param.kind == "int":
        return d.IntDistribution(param.lower, param.upper, log=param.log, step=1 if param.log else int(param.step or 1))
    return d.FloatDistribution(param.lower, param.upper, log=param.log, step=None if param.log else param.step)


def _suggest_distributions(trial: Any, space: dict[str, Any]) -> dict[str, Any]:
    """A space in Optuna's own terms, by name."""
    import optuna

    flat = flat_point(space)
    asked = {name: trial._suggest(name, value) for name, value in flat.items() if isinstance(value, optuna.distributions.BaseDistribution)}
    return unflat({**flat, **asked}) if asked else _containers(space)  # type: ignore[no-any-return]


def _containers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _containers(inner) for key, inner in value.items()}
    return [_containers(inner) for inner in value] if isinstance(value, (list, tuple)) and has_unresolved(value) else value


