"""Checkpoints that hold an LightGBM model."""
from __future__ import annotations

import os
import tempfile
from typing import Any

import lightgbm

from raygo.train._boosting import model_file
from raygo.train._framework_checkpoint import FrameworkCheckpoint

__all__ = ["LightGBMCheckpoint"]


class LightGBMCheckpoint(FrameworkCheckpoint):
    """A checkpoint with a booster in one file."""

    MODEL_FILENAME = "model.txt"

    @classmethod
    def from_model(cls, booster: lightgbm.Booster, *, preprocessor: Any = None, path: str | None = None) -> LightGBMCheckpoint:
        """A checkpoint of a booster.

        Parameters
        ----------
        booster : lightgbm.Booster
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

    def get_model(self) -> lightgbm.Booster:
        """The booster."""
        with self.as_directory() as folder:
            return lightgbm.Booster(model_file=model_file(folder, self.MODEL_FILENAME))
