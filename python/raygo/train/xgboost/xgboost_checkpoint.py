"""Checkpoints that hold an XGBoost model."""
from __future__ import annotations

import xgboost

from raygo.train._boosting import BoosterCheckpoint
from raygo.train.xgboost._xgboost_utils import ReportCallback

__all__ = ["XGBoostCheckpoint"]


class XGBoostCheckpoint(BoosterCheckpoint):
    """A checkpoint with a booster in one file."""

    MODEL_FILENAME = "model.json"

    def get_model(self) -> xgboost.Booster:
        """The booster."""
        return ReportCallback.get_model(self, self.MODEL_FILENAME)
