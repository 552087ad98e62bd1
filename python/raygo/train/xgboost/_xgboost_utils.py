"""The callback that reports each boosting round."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import xgboost
from xgboost.callback import TrainingCallback

from raygo.train._boosting import Destination, Metrics, Reporter, checkpoint_of, model_file
from raygo.train._checkpoint import Checkpoint

__all__ = ["RayTrainReportCallback"]


class ReportCallback(TrainingCallback):  # type: ignore[misc]
    """Reports to `_destination`; the model is the file `filename` of a checkpoint."""

    CHECKPOINT_NAME = "model.ubj"
    _destination: Destination

    def __init__(self, metrics: Metrics = None, filename: str = CHECKPOINT_NAME, frequency: int = 0, checkpoint_at_end: bool = True,
                 results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None) -> None:
        self._reporter = Reporter(metrics, filename, frequency, checkpoint_at_end, results_postprocessing_fn)
        self._last: dict[str, Any] = {}
        self._saved_rounds = -1

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> xgboost.Booster:
        """The model of a checkpoint that this callback reported.

        Parameters
        ----------
        checkpoint : Checkpoint
            The checkpoint.
        filename : str
            Its file, if the callback was given another one.
        """
        with checkpoint.as_directory() as folder:
            booster = xgboost.Booster()
            booster.load_model(model_file(folder, filename))
            return booster

    def after_iteration(self, model: xgboost.Booster, epoch: int, evals_log: dict[str, dict[str, Any]]) -> bool:
        """Report the round."""
        found: dict[str, Any] = {}
        for data, by_name in evals_log.items():
            for name, values in by_name.items():
                value = values[-1]
                found[f"{data}-{name}"] = value[0] if isinstance(value, tuple) else value      # cv gives a mean and a deviation
        self._last = self._reporter.chosen(found)
        if self._reporter.is_due(epoch):
            self._report_with_checkpoint(model)
        else:
            self._destination.report(dict(self._last))
        return False

    def after_training(self, model: xgboost.Booster) -> xgboost.Booster:
        """Report the last round once more with its checkpoint, unless it had one."""
        if self._reporter.at_end and self._saved_rounds != model.num_boosted_rounds():
            self._report_with_checkpoint(model)
        return model

    def _report_with_checkpoint(self, model: xgboost.Booster) -> None:
        self._saved_rounds = model.num_boosted_rounds()
        if not self._destination.saves():
            self._destination.report(dict(self._last))
            return
        with checkpoint_of(model.save_model, self._reporter.filename) as checkpoint:
            self._destination.report(dict(self._last), checkpoint)


class RayTrainReportCallback(ReportCallback):
    """Reports the evaluation's metrics after every boosting round, and checkpoints.

    Parameters
    ----------
    metrics : str, list of str or dict, optional
        Which metrics, as "valid-error"; a dict has the name to report each under.  All by default.
    filename : str
        The model's file in a checkpoint.
    frequency : int
        A checkpoint every so many rounds; 0: none before the end.
    checkpoint_at_end : bool
        A checkpoint at the end; the last round is reported once more with it.
    results_postprocessing_fn : callable, optional
        Takes the dict of metrics and gives what is reported.

    Examples
    --------
    >>> xgboost.train(params, dtrain, evals=[(dvalid, "valid")], callbacks=[RayTrainReportCallback({"error": "valid-error"})])   # doctest: +SKIP
    """

    _destination = Destination()
