"""Trials that run Keras report to the search."""
from __future__ import annotations

from raygo.train._keras import ReportCallback
from raygo.tune.integration._report import ToTrial

__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback"]


class TuneReportCheckpointCallback(ReportCallback):
    """Reports Keras's logs and a checkpoint to the search; see `raygo.train.tensorflow.keras.ReportCheckpointCallback`."""

    _destination = ToTrial()


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports Keras's logs to the search.

    Parameters
    ----------
    metrics : str, list of str or dict, optional
        Which; a dict has the name to report each under.  All by default.
    on : str or list of str
        Keras's hooks without "on_".
    """

    def __init__(self, metrics: str | list[str] | dict[str, str] | None = None, on: str | list[str] = "epoch_end") -> None:
        super().__init__(checkpoint_on=[], report_metrics_on=on, metrics=metrics)
