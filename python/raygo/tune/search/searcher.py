"""What proposes configurations."""
from __future__ import annotations

import glob
import math
import os
from typing import Any

__all__ = ["Searcher"]


class Searcher:
    """Subclass it for a search algorithm of one's own: `suggest` proposes, `on_trial_complete` learns.

    Parameters
    ----------
    metric : str or list of str, optional
        What is optimised; TuneConfig's by default.
    mode : {"max", "min"} or list of them, optional
        Whether large or small values are good.

    Examples
    --------
    >>> class Ladder(Searcher):
    ...     step = 0
    ...     def suggest(self, trial_id):
    ...         self.step += 1
    ...         return {"lr": 10.0 ** -self.step} if self.step <= 5 else Searcher.FINISHED
    """

    FINISHED = "FINISHED"
    CKPT_FILE_TMPL = "searcher-state-{}.pkl"

    def __init__(self, metric: Any = None, mode: Any = None) -> None:
        check_mode(metric, mode)
        self._metric = metric
        self._mode = mode

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        """Told before the search; False where metric, mode or space are known already and others are given."""
        return False

    def suggest(self, trial_id: str) -> Any:
        """The next configuration; None: not yet; `FINISHED`: no more."""
        raise NotImplementedError

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """A trial has reported."""

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """A trial has ended; `result` is its last report."""

    def add_evaluated_point(self, parameters: dict[str, Any], value: float, error: bool = False, pruned: bool = False,
                            intermediate_values: list[float] | None = None) -> None:
        """A configuration whose outcome is known from elsewhere."""
        raise NotImplementedError(f"{type(self).__name__} cannot learn from points that it did not propose")

    def add_evaluated_trials(self, trials_or_analysis: Any, metric: str) -> None:
        """Trials of another search."""
        from raygo.train._result import dig
        from raygo.tune.experiment import Trial

        trials = trials_or_analysis if isinstance(trials_or_analysis, (list, tuple)) else getattr(trials_or_analysis, "trials", [trials_or_analysis])
        for trial in trials:
            if trial.status not in (Trial.TERMINATED, Trial.ERROR):
                continue
            value = dig(trial.last_result, metric)
            if value is not None:
                self.add_evaluated_point(trial.config, value, error=trial.status == Trial.ERROR)

    @property
    def metric(self) -> Any:
        """What is optimised."""
        return self._metric

    @property
    def mode(self) -> Any:
        """Whether large or small values are good."""
        return self._mode

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Told how many trials run at once; True if the searcher sees to it itself."""
        return False

    def on_pause(self, trial_id: str) -> None:
        """A trial was paused."""

    def on_unpause(self, trial_id: str) -> None:
        """A trial goes on."""

    def get_state(self) -> dict[str, Any]:
        """What `set_state` takes."""
        return dict(self.__dict__)

    def set_state(self, state: dict[str, Any]) -> None:
        """Take up what `get_state` gave."""
        self.__dict__.update(state)

    def save(self, checkpoint_path: str) -> None:
        """Write the state into a file."""
        from raygo import cloudpickle

        with open(checkpoint_path + ".tmp", "wb") as file:
            file.write(cloudpickle.dumps(self.get_state()))
        os.replace(checkpoint_path + ".tmp", checkpoint_path)

    def restore(self, checkpoint_path: str) -> None:
        """Read the state from a file."""
        from raygo import cloudpickle

        with open(checkpoint_path, "rb") as file:
            self.set_state(cloudpickle.loads(file.read()))

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Write the state into a folder."""
        self.save(os.path.join(checkpoint_dir, self.CKPT_FILE_TMPL.format(session_str)))

    def restore_from_dir(self, checkpoint_dir: str) -> None:
        """Read the newest state of a folder."""
        files = glob.glob(os.path.join(glob.escape(checkpoint_dir), self.CKPT_FILE_TMPL.format("*")))
        if not files:
            raise RuntimeError(f"no state of a searcher in {checkpoint_dir}")
        self.restore(max(files, key=os.path.getmtime))

    # ---- for the searchers here

    def _take_properties(self, metric: Any, mode: Any) -> None:
        check_mode(metric, mode)
        self._metric = metric or self._metric
        self._mode = mode or self._mode
        self._check_metric()

    def _take_search(self, metric: Any, mode: Any, config: dict[str, Any], has_space: bool) -> bool:
        """`set_search_properties` of a searcher with a `_set_space`."""
        from raygo.tune.search.variant_generator import has_unresolved

        if has_space and has_unresolved(config):
            return False
        self._take_properties(metric, mode)
        if not has_space and config:
            self._set_space(config)
        return True

    def _set_space(self, space: Any) -> None:
        raise NotImplementedError

    def _require_search(self, has_space: bool, argument: str) -> None:
        """Nothing can be proposed without a space and something to optimise."""
        from raygo.tune.search.util import UNDEFINED_METRIC_MODE, UNDEFINED_SEARCH_SPACE

        if not has_space:
            raise RuntimeError(UNDEFINED_SEARCH_SPACE.format(cls=type(self).__name__, space=argument))
        if not self._metric or not self._mode:
            raise RuntimeError(UNDEFINED_METRIC_MODE.format(cls=type(self).__name__, metric=self._metric, mode=self._mode))

    def _check_metric(self) -> None:
        if self._mode is None:
            self._mode = "max"
        if self._metric is None:
            from raygo.tune.result import DEFAULT_METRIC

            self._metric = DEFAULT_METRIC

    def _value(self, result: dict[str, Any] | None, lower_is_better: bool) -> float | None:
        """The metric of a result with its sign for an optimiser; NaN is the worst there is, None: it is not there."""
        from raygo.train._result import dig

        value = dig(result, self._metric) if result else None
        if value is None:
            return None
        number = float(value)
        signed = number if (self._mode == "min") == lower_is_better else -number
        if math.isnan(signed):
            return math.inf if lower_is_better else -math.inf
        return signed


def check_mode(metric: Any, mode: Any) -> None:
    """Refuse what is not a mode."""
    modes = mode if isinstance(mode, (list, tuple)) else [mode]
    if any(m not in ("max", "min", None) for m in modes):
        raise ValueError(f"`mode` must be 'min' or 'max', not {mode!r}")
    if isinstance(metric, (list, tuple)) and isinstance(mode, (list, tuple)) and len(metric) != len(mode):
        raise ValueError(f"there are {len(metric)} metrics and {len(mode)} modes: give one mode for each metric")
