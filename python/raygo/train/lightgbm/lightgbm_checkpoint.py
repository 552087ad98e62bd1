"""Checkpoints that hold a LightGBM model."""
from __future__ import annotations

import lightgbm

from raygo.train._boosting import BoosterCheckpoint
from raygo.train.lightgbm._lightgbm_utils import ReportCallback

__all__ = ["LightGBMCheckpoint"]


class LightGBMCheckpoint(BoosterCheckpoint):
    """A checkpoint with a booster in one file."""

    MODEL_FILENAME = "model.txt"

    def get_model(self) -> lightgbm.Booster:
        """The booster."""
        return ReportCallback.get_model(self, self.MODEL_FILENAME)
