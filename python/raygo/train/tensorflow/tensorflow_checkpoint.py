"""Checkpoints that hold a Keras model."""
from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any

from raygo.train._framework_checkpoint import FrameworkCheckpoint

__all__ = ["TensorflowCheckpoint"]


class TensorflowCheckpoint(FrameworkCheckpoint):
    """A checkpoint with a model in Keras's file, an HDF5 file or a SavedModel's folder."""

    MODEL_FILENAME = "model.keras"
    _METADATA = "_model_filename"

    @classmethod
    def from_model(cls, model: Any, *, preprocessor: Any = None) -> TensorflowCheckpoint:
        """A checkpoint of a Keras model."""
        folder = tempfile.mkdtemp(prefix="checkpoint_")
        model.save(os.path.join(folder, cls.MODEL_FILENAME))
        made = cls(folder)
        made.keep_preprocessor(preprocessor)
        return made

    @classmethod
    def from_h5(cls, file_path: str, *, preprocessor: Any = None) -> TensorflowCheckpoint:
        """A checkpoint of an HDF5 file that Keras has written."""
        if not os.path.isfile(file_path) or not file_path.endswith(".h5"):
            raise ValueError(f"{file_path} is no file that ends in .h5")
        folder = tempfile.mkdtemp(prefix="checkpoint_")
        shutil.copy(file_path, folder)
        made = cls(folder)
        made.update_metadata({cls._METADATA: os.path.basename(file_path)})
        made.keep_preprocessor(preprocessor)
        return made

    @classmethod
    def from_saved_model(cls, dir_path: str, *, preprocessor: Any = None) -> TensorflowCheckpoint:
        """A checkpoint of a SavedModel's folder."""
        if not os.path.isdir(dir_path):
            raise ValueError(f"{dir_path} is no folder")
        made = cls(shutil.copytree(dir_path, os.path.join(tempfile.mkdtemp(prefix="checkpoint_"), "saved_model")))
        made.update_metadata({cls._METADATA: "."})
        made.keep_preprocessor(preprocessor)
        return made

    def get_model(self) -> Any:
        """The Keras model; of a SavedModel, what TensorFlow loads."""
        name = self.get_metadata().get(self._METADATA, self.MODEL_FILENAME)
        with self.as_directory() as folder:
            if name == ".":
                import tensorflow as tf

                return tf.saved_model.load(folder)
            import keras

            return keras.models.load_model(os.path.join(folder, name))
