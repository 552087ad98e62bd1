"""Who runs, and for how long."""
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from raygo.tune.experiment.trial import Trial

if TYPE_CHECKING:
    from raygo.tune.execution.controller import TuneController

__all__ = ["FIFOScheduler", "TrialScheduler"]


class TrialScheduler:
    """Decides after each report whether the trial goes on, and which trial starts next.

    Subclasses answer `on_trial_result` with `CONTINUE`, `PAUSE`, `STOP` or `NOOP` (the scheduler has seen to the trial itself).
    """

    CONTINUE = "CONTINUE"
    PAUSE = "PAUSE"
    STOP = "STOP"
    NOOP = "NOOP"

    _metric: str | None = None
    _mode: str | None = None
    _supports_buffered_results = True

    @property
    def metric(self) -> str | None:
        """What trials are compared by."""
        return self._metric

    @property
    def supports_buffered_results(self) -> bool:
        """Whether several reports may be taken at once."""
        return self._supports_buffered_results

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Told before the search; False where metric or mode are known already and others are given."""
        if self._metric and metric:
            return False
        if self._mode and mode:
            return False
        self._metric = metric or self._metric
        self._mode = mode or self._mode
        return True

    def on_trial_add(self, tune_controller: TuneController, trial: Trial) -> None:
        """There is a new trial."""

    def on_trial_error(self, tune_controller: TuneController, trial: Trial) -> None:
        """A trial has failed for good."""

    def on_trial_result(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> str:
        """A trial has reported; what is it to do?"""
        return TrialScheduler.CONTINUE

    def on_trial_complete(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> None:
        """A trial has ended."""

    def on_trial_remove(self, tune_controller: TuneController, trial: Trial) -> None:
        """A trial that was not running was stopped."""

    def choose_trial_to_run(self, tune_controller: TuneController) -> Trial | None:
        """The trial to start next."""
        raise NotImplementedError

    def debug_string(self) -> str:
        """What to show of it."""
        return type(self).__name__

    def save(self, checkpoint_path: str) -> None:
        """Write the state into a file."""
        from raygo import cloudpickle

        with open(checkpoint_path, "wb") as file:
            file.write(cloudpickle.dumps(self.__dict__))

    def restore(self, checkpoint_path: str) -> None:
        """Read the state from a file."""
        from raygo import cloudpickle

        with open(checkpoint_path, "rb") as file:
            self.__dict__.update(cloudpickle.loads(file.read()))

    # ---- for the schedulers here

    def _compare_by(self, time_attr: str, metric: str | None, mode: str | None) -> None:
        if mode is not None and mode not in ("min", "max"):
            raise ValueError("`mode` must be 'min' or 'max'!")
        self._time_attr, self._metric, self._mode = time_attr, metric, mode

    def _score(self, result: dict[str, Any]) -> float | None:
        """The metric, larger is better, NaN worst of all; None where the report does not have it."""
        from raygo.train._result import dig

        value = dig(result, self._metric) if self._metric else None
        if value is None:
            return None
        score = float(value) if self._mode == "max" else -float(value)
        return -math.inf if score != score else score

    def _require_metric(self) -> None:
        if not self._metric or not self._mode:
            from raygo.tune.error import TuneError

            raise TuneError(f"{type(self).__name__} does not know what to compare trials by: metric is {self._metric!r}, mode is {self._mode!r}. "
                            "Give metric and mode to it or to TuneConfig.")


class FIFOScheduler(TrialScheduler):
    """Runs trials in the order in which they come, to their end."""

    def on_trial_result(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> str:
        return TrialScheduler.CONTINUE

    def choose_trial_to_run(self, tune_controller: TuneController) -> Trial | None:
        paused = None
        for trial in tune_controller.startable_trials():
            if trial.status == Trial.PENDING:
                return trial
            paused = paused or trial
        return paused

    def debug_string(self) -> str:
        return "Using FIFO scheduling algorithm."
