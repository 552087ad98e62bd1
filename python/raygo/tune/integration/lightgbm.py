"""Trials that run LightGBM report to the search."""
from __future__ import annotations

from typing import Any

from raygo.train.lightgbm._lightgbm_utils import ReportCallback
from raygo.tune.integration._report import ToTrial

__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback"]


class TuneReportCheckpointCallback(ReportCallback):
    """Reports the evaluation's metrics after every iteration to the search, and checkpoints.

    Its parameters are those of `raygo.train.lightgbm.RayTrainReportCallback`.

    Examples
    --------
    >>> callbacks = [TuneReportCheckpointCallback({"error": "valid-binary_error"}, frequency=1)]
    """

    _destination = ToTrial()


class TuneReportCallback(TuneReportCheckpointCallback):
    """The same without checkpoints."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "frequency": 0, "checkpoint_at_end": False})
