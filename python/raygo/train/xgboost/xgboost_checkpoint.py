"""Checkpoints that hold an XGBoost model."""
from __future__ import annotations

import os
import tempfile
from typing import Any

import xgboost

from raygo.train._boosting import model_file
from raygo.train._framework_checkpoint import FrameworkCheckpoint

__all__ = ["XGBoostCheckpoint"]


class XGBoostCheckpoint(FrameworkCheckpoint):
    """A checkpoint with a booster in one file."""

    MODEL_FILENAME = "model.json"

    @classmethod
    def from_model(cls, booster: xgboost.Booster, *, preprocessor: Any = None, path: str | None = None) -> XGBoostCheckpoint:
        """A checkpoint of a booster.

        Parameters
        ----------
        booster : xgboost.Booster
            The model.
        preprocessor : object, optional
            What prepares its inputs, for `get_preprocessor`.
        path : str, optional
            The folder; a new temporary one by default.
        """
        folder = path or tempfile.mkdtemp(prefix="checkpoint_")
        os.makedirs(folder, exist_ok=True)
        booster.save_model(os.path.join(folder, cls.MODEL_FILENAME))
        made = cls(folder)
        made.keep_preprocessor(preprocessor)
        return made

    def get_model(self) -> xgboost.Booster:
        """The booster."""
        with self.as_directory() as folder:
            booster = xgboost.Booster()
            booster.load_model(model_file(folder, self.MODEL_FILENAME))
            return booster
