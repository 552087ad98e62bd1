"""The results of a search."""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from raygo.train import Result
from raygo.train._kept import best_of
from raygo.tune.experiment.trial import Trial

if TYPE_CHECKING:
    import pandas

    from raygo.tune.analysis import ExperimentAnalysis

__all__ = ["ResultGrid"]


class TrialResult(Result):
    """A trial's outcome.  The table of its reports is read when it is asked for."""

    def __init__(self, trial: Trial, analysis: ExperimentAnalysis) -> None:
        self._trial, self._analysis = trial, analysis
        self._table: Any = None
        super().__init__(trial.last_result, trial.checkpoint, trial.get_error(), trial.path, None,       # type: ignore[arg-type]
                         best_of(trial.checkpoints, trial.checkpoint_config), None if analysis._files.local else analysis._files.arrow())

    @property
    def metrics_dataframe(self) -> Any:
        """All reports, a row each."""
        if self._table is None:
            self._table = self._analysis.trial_dataframe(self._trial)
        return self._table

    @metrics_dataframe.setter
    def metrics_dataframe(self, value: Any) -> None:
        pass

    @property
    def config(self) -> dict[str, Any]:
        """What the trial was called with."""
        return self._trial.config


class ResultGrid:
    """The results of a search, one for each trial, in the order in which they came.

    Parameters
    ----------
    experiment_analysis : ExperimentAnalysis
        The trials.

    Examples
    --------
    >>> grid = Tuner(train, param_space={"lr": grid_search([0.1, 1.0])}).fit()    # doctest: +SKIP
    >>> grid.get_best_result("loss", "min").config["lr"]                          # doctest: +SKIP
    0.1
    """

    def __init__(self, experiment_analysis: ExperimentAnalysis) -> None:
        self._experiment_analysis = experiment_analysis
        self._made: dict[int, Result] = {}

    @property
    def experiment_path(self) -> str:
        """The folder of the search on the storage."""
        return self._experiment_analysis.experiment_path

    @property
    def filesystem(self) -> Any:
        """Where `experiment_path` is, as pyarrow names it."""
        return self._experiment_analysis._files.arrow()

    def get_best_result(self, metric: str | None = None, mode: str | None = None, scope: str = "last", filter_nan_and_inf: bool = True) -> Result:
        """The best result.

        Parameters
        ----------
        metric, mode : str, optional
            What "best" means; TuneConfig's by default.
        scope : {"last", "avg", "last-5-avg", "last-10-avg", "all"}
            Which reports count: the last one, the mean of all, of the last 5 or 10, or the best of all.
        filter_nan_and_inf : bool
            Leave trials out whose value is not a finite number.

        Raises
        ------
        RuntimeError
            No trial has reported the metric.
        """
        analysis = self._experiment_analysis
        if len(self) > 1:
            if not (metric or analysis.default_metric):
                raise ValueError("No metric is provided. Give `metric` to get_best_result, or to the TuneConfig of the Tuner.")
            if not (mode or analysis.default_mode):
                raise ValueError("No mode is provided. Give `mode` to get_best_result, or to the TuneConfig of the Tuner.")
        best = analysis.get_best_trial(metric, mode, scope, filter_nan_and_inf)
        name = metric or analysis.default_metric
        if best is None or (not best.last_result and name):
            reported = sorted({str(key) for trial in analysis.trials for key in trial.metric_analysis})
            failed = f" {self.num_errors} of {len(self)} trials failed, the first with: {self.errors[0]}" if self.errors else ""
            raise RuntimeError(f"No best trial found for the given metric: {name}. This means that no trial has reported this metric, or all values reported "
                               f"for this metric are NaN. Reported were: {', '.join(reported) or 'nothing'}.{failed} To not ignore NaN values, you can set the "
                               "`filter_nan_and_inf` arg to False.")
        return self[analysis.trials.index(best)]

    def get_dataframe(self, filter_metric: str | None = None, filter_mode: str | None = None) -> pandas.DataFrame:
        """A row for each trial: its last report, or its best by a metric.

        Parameters
        ----------
        filter_metric, filter_mode : str, optional
            Which report of each trial.
        """
        return self._experiment_analysis.dataframe(metric=filter_metric, mode=filter_mode)

    def __len__(self) -> int:
        return len(self._experiment_analysis.trials)

    def __getitem__(self, i: int) -> Result:
        trials = self._experiment_analysis.trials
        i = range(len(trials))[i]
        if i not in self._made:
            self._made[i] = TrialResult(trials[i], self._experiment_analysis)
        return self._made[i]

    def __iter__(self) -> Iterator[Result]:
        return (self[i] for i in range(len(self)))

    @property
    def errors(self) -> list[BaseException]:
        """What trials failed with."""
        return [error for trial in self._experiment_analysis.trials if trial.status == Trial.ERROR and (error := trial.get_error()) is not None]

    @property
    def num_errors(self) -> int:
        """How many trials failed."""
        return sum(trial.status == Trial.ERROR for trial in self._experiment_analysis.trials)

    @property
    def num_terminated(self) -> int:
        """How many trials ended well, or were stopped."""
        return sum(trial.status == Trial.TERMINATED for trial in self._experiment_analysis.trials)

    def __repr__(self) -> str:
        results = ",\n  ".join(repr(result) for result in self)
        return f"ResultGrid<[\n  {results}\n]>"
