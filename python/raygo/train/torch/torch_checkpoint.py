"""Checkpoints that hold a torch model."""
from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any

from raygo.train._framework_checkpoint import FrameworkCheckpoint

if TYPE_CHECKING:
    import torch

__all__ = ["TorchCheckpoint"]

ENCODED_DATA_KEY = "torch_encoded_data"


class TorchCheckpoint(FrameworkCheckpoint):
    """A checkpoint with a model, or its weights, in one file."""

    MODEL_FILENAME = "model.pt"

    @classmethod
    def from_state_dict(cls, state_dict: dict[str, Any], *, preprocessor: Any = None) -> TorchCheckpoint:
        """A checkpoint of weights."""
        return cls._save(state_dict, preprocessor)

    @classmethod
    def from_model(cls, model: torch.nn.Module, *, preprocessor: Any = None) -> TorchCheckpoint:
        """A checkpoint of a whole model, which is pickled; its class must be importable where it is read.

        Of a DistributedDataParallel it is the model in it: only a process group could read the wrapper.
        """
        from torch.nn.parallel import DistributedDataParallel

        return cls._save(model.module if isinstance(model, DistributedDataParallel) else model, preprocessor)

    @classmethod
    def _save(cls, what: Any, preprocessor: Any) -> TorchCheckpoint:
        import torch

        folder = tempfile.mkdtemp(prefix="checkpoint_")
        torch.save(what, os.path.join(folder, cls.MODEL_FILENAME))
        made = cls(folder)
        made.keep_preprocessor(preprocessor)
        return made

    def get_model(self, model: torch.nn.Module | None = None) -> torch.nn.Module:
        """The model.

        Parameters
        ----------
        model : torch.nn.Module, optional
            Where only weights were saved: the model to load them into.
        """
        import torch

        with self.as_directory() as folder:
            saved = torch.load(os.path.join(folder, self.MODEL_FILENAME), map_location="cpu", weights_only=False)
        if isinstance(saved, torch.nn.Module):
            return saved
        if model is None:
            raise ValueError(f"{self!r} holds weights only: give get_model the model to load them into")
        # Weights of a DistributedDataParallel carry its prefix.
        torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(saved, "module.")
        model.load_state_dict(saved)
        return model
