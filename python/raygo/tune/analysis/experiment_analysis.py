"""What came of a search: the best trials, their configs and checkpoints, tables."""
from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, Any

from raygo.train._files import join, resolve
from raygo.train._result import dig
from raygo.tune.experiment.trial import Trial
from raygo.tune.logger.logger import flatten
from raygo.tune.result import DEFAULT_METRIC, EXPR_RESULT_FILE, TRAINING_ITERATION

if TYPE_CHECKING:
    import pandas

    from raygo.train import Checkpoint

__all__ = ["ExperimentAnalysis"]

_SCOPES = ("last", "avg", "last-5-avg", "last-10-avg", "all")


class ExperimentAnalysis:
    """The trials of a search.

    Parameters
    ----------
    experiment_checkpoint_path : str
        The experiment's folder, or a file in it.
    storage_filesystem : pyarrow.fs.FileSystem, optional
        Where that is.
    trials : list of Trial, optional
        The trials; read from the folder by default.
    default_metric, default_mode : str, optional
        What "best" means where a method is not told.
    """

    def __init__(self, experiment_checkpoint_path: str | os.PathLike[str], *, storage_filesystem: Any = None, trials: list[Trial] | None = None,
                 default_metric: str | None = None, default_mode: str | None = None) -> None:
        if default_mode not in (None, "max", "min"):
            raise ValueError("`default_mode` has to be None or one of [min, max]")
        # A mode alone is about what trainables return that return a bare number.
        self.default_metric, self.default_mode = default_metric or (DEFAULT_METRIC if default_mode else None), default_mode
        self._files, path = resolve(experiment_checkpoint_path, storage_filesystem)
        if path.endswith((".json", ".pkl")):
            path = path.rpartition("/")[0]
        self.experiment_path = path
        if trials is None:
            from raygo.tune.execution.state import load_trials
            from raygo.tune.execution.storage import ExperimentStorage

            base, _, name = path.rpartition("/")
            storage = ExperimentStorage(base, name, None if self._files.local else self._files.arrow(), read_only=True)
            storage.fetch()
            trials = load_trials(storage.local_path, storage, {})
        self.trials: list[Trial] = trials

    # ---- the best

    @property
    def best_trial(self) -> Trial:
        """The best trial by the default metric."""
        best = self.get_best_trial(self._metric(None), self._mode(None))
        if best is None:
            raise RuntimeError(f"no trial has reported {self.default_metric}")
        return best

    @property
    def best_config(self) -> dict[str, Any]:
        """Its config."""
        return self.best_trial.config

    @property
    def best_checkpoint(self) -> Checkpoint | None:
        """Its best checkpoint."""
        return self.get_best_checkpoint(self.best_trial)

    @property
    def best_result(self) -> dict[str, Any]:
        """Its last report."""
        return self.best_trial.last_result

    @property
    def best_dataframe(self) -> pandas.DataFrame:
        """All its reports."""
        return self.trial_dataframe(self.best_trial)

    @property
    def best_result_df(self) -> pandas.DataFrame:
        """Its last report, as a table of one row."""
        import pandas

        return pandas.DataFrame.from_records([flatten(self.best_result)], index="trial_id")

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """The last report of each trial, by its id."""
        return {trial.trial_id: trial.last_result for trial in self.trials}

    @property
    def results_df(self) -> pandas.DataFrame:
        """The last report of each trial, as a table."""
        import pandas

        return pandas.DataFrame.from_records([flatten(t.last_result) for t in self.trials if t.last_result], index="trial_id")

    def get_best_trial(self, metric: str | None = None, mode: str | None = None, scope: str = "last", filter_nan_and_inf: bool = True) -> Trial | None:
        """The best trial, or None if none has reported the metric.

        Parameters
        ----------
        metric, mode : str, optional
            What "best" means.
        scope : {"last", "avg", "last-5-avg", "last-10-avg", "all"}
            Which reports count: the last one, the mean of all, of the last 5 or 10, or the best of all.
        filter_nan_and_inf : bool
            Leave trials out whose value is not a finite number.
        """
        if len(self.trials) == 1:
            return self.trials[0]
        metric, mode = self._metric(metric), self._mode(mode)
        if scope not in _SCOPES:
            raise ValueError(f"scope is {scope!r}: give one of {', '.join(_SCOPES)}")
        best: tuple[bool, float] | None = None
        found: Trial | None = None
        for trial in self.trials:
            value = _value(trial, metric, mode, scope)
            if value is None or (filter_nan_and_inf and not math.isfinite(value)):
                continue
            # NaN is the worst there is.
            key = (value == value, 0.0 if value != value else value if mode == "max" else -value)
            if best is None or key > best:
                best, found = key, trial
        return found

    def get_best_config(self, metric: str | None = None, mode: str | None = None, scope: str = "last") -> dict[str, Any] | None:
        """The config of the best trial."""
        best = self.get_best_trial(metric, mode, scope)
        return best.config if best is not None else None

    def get_best_checkpoint(self, trial: Trial, metric: str | None = None, mode: str | None = None) -> Checkpoint | None:
        """The best of a trial's checkpoints; without a metric, the one that got furthest."""
        metric, mode = metric or self.default_metric or TRAINING_ITERATION, self._mode(mode)
        best: tuple[float, Checkpoint] | None = None
        for checkpoint, metrics in trial.checkpoints:
            value = dig(metrics, metric)
            if value is None or value != value:
                continue
            score = float(value) if mode == "max" else -float(value)
            if best is None or score >= best[0]:
                best = (score, checkpoint)
        return best[1] if best is not None else None

    def get_last_checkpoint(self, trial: Trial | None = None, metric: str = TRAINING_ITERATION, mode: str = "max") -> Checkpoint | None:
        """The newest checkpoint of a trial; of the one that got furthest by default."""
        trial = trial or self.get_best_trial(metric, mode)
        return trial.checkpoint if trial is not None else None

    # ---- tables

    def dataframe(self, metric: str | None = None, mode: str | None = None) -> pandas.DataFrame:
        """A row for each trial: its last report, or its best by a metric; the config as ``config/...``, the folder as ``logdir``.

        Parameters
        ----------
        metric, mode : str, optional
            Which report; the last one of a trial that has never reported the metric.
        """
        import pandas

        if mode not in (None, "max", "min"):
            raise ValueError("If set, `mode` has to be one of [min, max]")
        if mode is not None and metric is None:
            raise ValueError(f"dataframe(mode={mode!r}) needs a `metric` too")
        mode = mode or self.default_mode
        rows = []
        for trial in self.trials:
            row = (_best_row(self.reports(trial), metric, mode) if metric and mode else None) or trial.last_result
            if row:
                rows.append({**flatten(row), "logdir": trial.path})
        return pandas.DataFrame(rows)

    @property
    def trial_dataframes(self) -> dict[str, pandas.DataFrame]:
        """All reports of each trial, by its id."""
        return {trial.trial_id: self.trial_dataframe(trial) for trial in self.trials}

    def trial_dataframe(self, trial: Trial) -> pandas.DataFrame:
        """All reports of a trial."""
        import pandas

        return pandas.DataFrame([flatten(row) for row in self.reports(trial)])

    def reports(self, trial: Trial) -> list[dict[str, Any]]:
        """All reports of a trial; those that it fell back behind, as it failed and began again from a checkpoint, are left out."""
        path = join(trial.path, EXPR_RESULT_FILE)
        if not self._files.is_file(path):
            return [trial.last_result] if trial.last_result else []
        rows: list[dict[str, Any]] = []
        for line in self._files.read(path).decode().splitlines():
            try:
                row = json.loads(line)
            except ValueError:           # the line that a killed driver was writing
                continue
            while rows and row.get(TRAINING_ITERATION, math.inf) <= rows[-1].get(TRAINING_ITERATION, -math.inf):
                rows.pop()
            rows.append(row)
        return rows

    def get_all_configs(self, prefix: bool = False) -> dict[str, dict[str, Any]]:
        """The configs by the trials' ids; with `prefix` flat, as ``config/a/b``."""
        return {t.trial_id: flatten(t.config, "config/") if prefix else t.config for t in self.trials}

    def _metric(self, metric: str | None) -> str:
        found = metric or self.default_metric
        if not found:
            raise ValueError("No `metric` has been passed and there is no default: give one, or give `metric` to TuneConfig")
        return found

    def _mode(self, mode: str | None) -> str:
        found = mode or self.default_mode
        if found not in ("max", "min"):
            raise ValueError(f"`mode` is {found!r}: give 'max' or 'min', here or to TuneConfig")
        return found

    def __repr__(self) -> str:
        return f"ExperimentAnalysis({self.experiment_path!r}, {len(self.trials)} trials)"


def _value(trial: Trial, metric: str, mode: str, scope: str) -> float | None:
    if scope == "last":
        value = dig(trial.last_result, metric)
        return float(value) if isinstance(value, (int, float)) or hasattr(value, "item") else None
    trace = trial.metric_analysis.get(metric)
    return None if trace is None else trace[mode if scope == "all" else scope]


def _best_row(rows: list[dict[str, Any]], metric: str, mode: str) -> dict[str, Any] | None:
    found = [(value, i) for i, row in enumerate(rows) if (value := dig(row, metric)) is not None and value == value]
    if not found:
        return None
    best = (max if mode == "max" else min)(value for value, _ in found)
    return next(rows[i] for value, i in found if value == best)
