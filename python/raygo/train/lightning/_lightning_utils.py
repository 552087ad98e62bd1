"""Strategies, the environment and the callback that a Lightning Trainer is made with."""
from __future__ import annotations

import importlib
import os
import tempfile
from typing import TYPE_CHECKING, Any

import raygo.train
from raygo.train import Checkpoint, CheckpointUploadMode
from raygo.train.context import get_context
from raygo.train.lightning._package import import_lightning
from raygo.train.torch import get_device

if TYPE_CHECKING:
    import pytorch_lightning as pl
    import torch
    from pytorch_lightning.plugins.environments import LightningEnvironment
    from pytorch_lightning.strategies import DDPStrategy, DeepSpeedStrategy, FSDPStrategy
else:
    pl = import_lightning()
    DDPStrategy, FSDPStrategy, DeepSpeedStrategy = pl.strategies.DDPStrategy, pl.strategies.FSDPStrategy, pl.strategies.DeepSpeedStrategy
    LightningEnvironment = importlib.import_module(f"{pl.__name__}.plugins.environments").LightningEnvironment

__all__ = ["RayDDPStrategy", "RayDeepSpeedStrategy", "RayFSDPStrategy", "RayLightningEnvironment", "RayTrainReportCallback", "prepare_trainer"]


class _OnWorkers:
    """What the strategies share: the device is the worker's, and samplers know all workers."""

    @property
    def root_device(self) -> torch.device:
        """This worker's device."""
        return get_device()

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        """What Lightning makes its DistributedSampler with."""
        context = get_context()
        return {"num_replicas": context.get_world_size(), "rank": context.get_world_rank()}


class RayDDPStrategy(_OnWorkers, DDPStrategy):  # type: ignore[misc]
    """DistributedDataParallel over the trainer's workers; it takes what Lightning's DDPStrategy takes."""


class RayFSDPStrategy(_OnWorkers, FSDPStrategy):  # type: ignore[misc]
    """FullyShardedDataParallel over the trainer's workers; it takes what Lightning's FSDPStrategy takes."""


class RayDeepSpeedStrategy(_OnWorkers, DeepSpeedStrategy):  # type: ignore[misc]
    """DeepSpeed over the trainer's workers; it takes what Lightning's DeepSpeedStrategy takes, and needs the package deepspeed."""


class RayLightningEnvironment(LightningEnvironment):  # type: ignore[misc]
    """Tells Lightning that its processes are there already: the trainer's workers."""

    @property
    def creates_processes_externally(self) -> bool:
        """They are raygo's."""
        return True

    def world_size(self) -> int:
        """How many workers there are."""
        return get_context().get_world_size()

    def global_rank(self) -> int:
        """This worker's number."""
        return get_context().get_world_rank()

    def local_rank(self) -> int:
        """This worker's number among those on its machine."""
        return get_context().get_local_rank()

    def node_rank(self) -> int:
        """This machine's number."""
        return get_context().get_node_rank()

    def set_world_size(self, size: int) -> None:
        """The trainer has decided."""

    def set_global_rank(self, rank: int) -> None:
        """The trainer has decided."""

    def teardown(self) -> None:
        """The process group is the trainer's."""


class RayTrainReportCallback(pl.callbacks.Callback):  # type: ignore[misc]
    """Reports the logged metrics and a checkpoint after every epoch of training.

    The checkpoint has Lightning's file ``checkpoint.ckpt``; beside the logged metrics there are "epoch" and "step".

    Parameters
    ----------
    checkpoint_upload_mode : CheckpointUploadMode, optional
        As for `raygo.train.report`.
    validation : bool
        As for `raygo.train.report`.
    """

    CHECKPOINT_NAME = "checkpoint.ckpt"

    def __init__(self, checkpoint_upload_mode: CheckpointUploadMode | None = None, validation: Any = False) -> None:
        super().__init__()
        self._upload = checkpoint_upload_mode or CheckpointUploadMode.SYNC
        self._validation = validation
        if self._upload is CheckpointUploadMode.NO_UPLOAD:
            raise ValueError("RayTrainReportCallback: NO_UPLOAD would keep a checkpoint whose folder is removed; use SYNC or ASYNC")

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Report."""
        metrics = {name: value.item() if hasattr(value, "item") else value for name, value in trainer.callback_metrics.items()}
        metrics["epoch"] = trainer.current_epoch
        metrics["step"] = trainer.global_step
        folder = tempfile.mkdtemp(prefix="lightning-checkpoint-")
        # Every rank takes part: of sharded states each writes its own, and else rank 0 writes alone.
        trainer.save_checkpoint(os.path.join(folder, self.CHECKPOINT_NAME), weights_only=False)
        raygo.train.report(metrics, checkpoint=Checkpoint.from_directory(folder), checkpoint_upload_mode=self._upload,
                           delete_local_checkpoint_after_upload=True, validation=self._validation)


def prepare_trainer(trainer: pl.Trainer) -> pl.Trainer:
    """Check that a Lightning Trainer is made for raygo's workers.

    Raises
    ------
    RuntimeError
        Its strategy or its environment would start processes of its own, or take part in no group.
    """
    package = pl.__name__
    if not isinstance(trainer, pl.Trainer):
        raise RuntimeError(f"prepare_trainer was given a {type(trainer).__module__}.{type(trainer).__name__}, but raygo.train.lightning uses {package} in "
                           f"this process: make the Trainer with {package} too, or import the other package before raygo.train.lightning")
    strategies = (RayDDPStrategy, RayFSDPStrategy, RayDeepSpeedStrategy)
    if not isinstance(trainer.strategy, strategies):
        raise RuntimeError(f"Invalid strategy class: {type(trainer.strategy)}. To use Lightning in a raygo trainer's workers, make the Trainer with "
                           f"strategy= one of {', '.join(s.__name__ for s in strategies)} of raygo.train.lightning.")
    environment = getattr(trainer.strategy, "cluster_environment", None)
    if not isinstance(environment, RayLightningEnvironment):
        raise RuntimeError(f"Invalid cluster environment: {type(environment)}. Make the Trainer with plugins=[RayLightningEnvironment()] of "
                           "raygo.train.lightning, so that it takes the workers that are there.")
    return trainer
