"""Checkpoints that hold an XGBoost model."""
from __future__ import annotations

import os
import tempfile
from typing import Any

import xgboost

from raygo.train._boosting import model_file
from raygo.train._checkpoint import Checkpoint

__all__ = ["XGBoostCheckpoint"]


class XGBoostCheckpoint(Checkpoint):
    """A checkpoint with a booster in one file."""

    MODEL_FILENAME = "model.json"

    @classmethod
    def from_model(cls, booster: xgboost.Booster, *, preprocessor: Any = None, path: str | None = None) -> XGBoostCheckpoint:
        """A checkpoint of a booster.

        Parameters
        ----------
        booster : xgboost.Booster
            The model.
        path : str, optional
            The folder; a new temporary one by default.
        """
        if preprocessor is not None:
            raise NotImplementedError("XGBoostCheckpoint(preprocessor=...): raygo.data's preprocessors are not there yet")
        folder = path or tempfile.mkdtemp(prefix="checkpoint_")
        os.makedirs(folder, exist_ok=True)
        booster.save_model(os.path.join(folder, cls.MODEL_FILENAME))
        return cls(folder)

    def get_model(self) -> xgboost.Booster:
        """The booster."""
        with self.as_directory() as folder:
            booster = xgboost.Booster()
            booster.load_model(model_file(folder, self.MODEL_FILENAME))
            return booster
