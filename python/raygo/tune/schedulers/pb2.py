"""PB2: population based training whose new values come from a Gaussian process."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from raygo.tune.error import TuneError
from raygo.tune.schedulers.pbt import PopulationBasedTraining
from raygo.tune.search.sample import uniform
from raygo.tune.search.variant_generator import assign_value, get_value

if TYPE_CHECKING:
    from raygo.tune.execution.controller import TuneController
    from raygo.tune.experiment.trial import Trial

__all__ = ["PB2"]

_WINDOW = 1000       # observations that the process is fitted to
_STARTS = 20


class PB2(PopulationBasedTraining):
    """Like PopulationBasedTraining, but a weak trial's new values are those from which a Gaussian process expects most.

    The process (scikit-learn's) learns how much the metric rose over an interval, given the time, the metric before and the values; the new
    values are where its upper confidence bound is highest, for the strong trial's time and metric.

    Parameters
    ----------
    hyperparam_bounds : dict
        The lowest and highest value of each number that may change, ``{"lr": [1e-5, 1e-1]}``; nested like the config.
    time_attr, metric, mode, perturbation_interval, quantile_fraction, log_config, require_attrs, synch, custom_explore_fn
        As for PopulationBasedTraining.
    """

    def __init__(self, time_attr: str = "time_total_s", metric: str | None = None, mode: str | None = None, perturbation_interval: float = 60.0,
                 hyperparam_bounds: dict[str, Any] | None = None, quantile_fraction: float = 0.25, log_config: bool = True,
                 require_attrs: bool = True, synch: bool = False, custom_explore_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None) -> None:
        import_pb2_dependencies()
        if not hyperparam_bounds:
            raise TuneError("`hyperparam_bounds` must be specified to use PB2 scheduler.")
        self._bounds = {path: (float(low), float(high)) for path, (low, high) in _paths(hyperparam_bounds, ())}
        super().__init__(time_attr=time_attr, metric=metric, mode=mode, perturbation_interval=perturbation_interval,
                         hyperparam_mutations=_uniform(hyperparam_bounds), quantile_fraction=quantile_fraction,
                         custom_explore_fn=custom_explore_fn, log_config=log_config, require_attrs=require_attrs, synch=synch)
        self._before: dict[str, tuple[float, float]] = {}
        self._data: list[tuple[list[float], float]] = []      # (time, metric before, values), rise

    def on_trial_result(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> str:
        score, now = self._score(result), result.get(self._time_attr)
        if score is not None and now is not None and abs(score) != float("inf"):
            before = self._before.get(trial.trial_id)
            if before is not None and now > before[0]:
                self._data.append(([before[0], before[1], *self._values(trial.config)], (score - before[1]) / (now - before[0])))
                del self._data[:-_WINDOW]
            self._before[trial.trial_id] = (now, score)
        return super().on_trial_result(tune_controller, trial, result)

    def _values(self, config: dict[str, Any]) -> list[float]:
        return [float(get_value(config, path)) for path in self._bounds]

    def _new_config(self, trial: Trial, donor: Trial) -> tuple[dict[str, Any], dict[str, Any]]:
        new = deepcopy(donor.config)
        values = self._propose(self._before.get(donor.trial_id, (0.0, 0.0)))
        for (path, (low, high)), value in zip(self._bounds.items(), values, strict=True):
            value = min(max(value, low), high)
            assign_value(new, path, int(round(value)) if isinstance(get_value(new, path), int) else value)
        self._before[trial.trial_id] = self._before.get(donor.trial_id, (0.0, 0.0))
        if self._custom_explore_fn is not None:
            new = self._custom_explore_fn(new)
        return new, {"/".join(map(str, path)): "gp" for path in self._bounds}

    def _propose(self, place: tuple[float, float]) -> list[float]:
        """The values with the highest upper confidence bound at a time and metric."""
        import numpy as np
        from scipy.optimize import minimize
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, WhiteKernel

        low = np.array([b[0] for b in self._bounds.values()])
        span = np.array([b[1] for b in self._bounds.values()]) - low
        starts = np.random.uniform(size=(_STARTS, len(low)))
        if len(self._data) < 3:
            return [float(v) for v in low + starts[0] * span]
        rows = np.array([x for x, _ in self._data])
        rises = np.array([y for _, y in self._data])
        # All in the unit cube, the rises with mean 0 and deviation 1.
        scale = np.concatenate([_range(rows[:, :2]), [low, span]], axis=1)
        points = (rows - scale[0]) / scale[1]
        at = (np.array(place) - scale[0, :2]) / scale[1, :2]
        model = GaussianProcessRegressor(RBF(np.ones(points.shape[1])) + WhiteKernel(0.1), normalize_y=True, n_restarts_optimizer=2)
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")          # of length scales at their bounds, which few points bring about
            model.fit(points, rises)
        kappa = 0.2 * np.log(2 * len(points)) * len(low) ** 0.5

        def against(x: Any) -> float:
            mean, deviation = model.predict(np.concatenate([at, x])[None], return_std=True)
            return -float(mean[0] + kappa * deviation[0])

        found = [minimize(against, x, bounds=[(0, 1)] * len(low), method="L-BFGS-B") for x in starts[np.argsort([against(x) for x in starts])[:5]]]
        return [float(v) for v in low + min(found, key=lambda f: f.fun).x * span]


def _paths(bounds: dict[str, Any], above: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    for key, value in bounds.items():
        if isinstance(value, dict):
            yield from _paths(value, (*above, key))
        elif not isinstance(value, (list, tuple)) or len(value) != 2 or not value[0] < value[1]:
            raise ValueError(f"`hyperparam_bounds` values must be of the form [low, high] with low < high; {key!r} has {value!r}")
        else:
            yield (*above, key), value


def _uniform(bounds: dict[str, Any]) -> dict[str, Any]:
    return {key: _uniform(value) if isinstance(value, dict) else uniform(*value) for key, value in bounds.items()}


def _range(columns: Any) -> Any:
    """Lowest value and span of each column."""
    import numpy as np

    low = columns.min(axis=0)
    return np.stack([low, np.maximum(columns.max(axis=0) - low, 1e-12)])


def import_pb2_dependencies() -> Any:
    """scikit-learn and scipy, or an error that says to install them."""
    from raygo.tune.search.util import needs

    return needs("scikit-learn", "sklearn.gaussian_process", "PB2")
