"""Data-parallel training with PyTorch."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raygo.train._checkpoint import Checkpoint
from raygo.train._settings import RunConfig, ScalingConfig
from raygo.train.data_parallel_trainer import DataParallelTrainer
from raygo.train.torch.config import TorchConfig

__all__ = ["TorchTrainer"]


class TorchTrainer(DataParallelTrainer):
    """Runs a training function on each of several workers that are one torch.distributed process group.

    Parameters
    ----------
    train_loop_per_worker : callable
        Takes the config, or nothing; uses `raygo.train.torch.prepare_model` and `prepare_data_loader`.
    train_loop_config : dict, optional
        The config.
    torch_config : TorchConfig, optional
        The process group: raygo's own backend, or nccl with GPUs.
    scaling_config, run_config, datasets, dataset_config, metadata, resume_from_checkpoint
        As for `raygo.train.DataParallelTrainer`.

    Examples
    --------
    >>> trainer = TorchTrainer(loop, train_loop_config={"lr": 1e-3}, scaling_config=ScalingConfig(num_workers=2))  # doctest: +SKIP
    >>> trainer.fit().metrics["loss"]                                                                             # doctest: +SKIP
    """

    def __init__(self, train_loop_per_worker: Callable[..., Any], *, train_loop_config: dict[str, Any] | None = None,
                 torch_config: TorchConfig | None = None, scaling_config: ScalingConfig | None = None, run_config: RunConfig | None = None,
                 datasets: dict[str, Any] | None = None, dataset_config: Any = None, validation_config: Any = None,
                 metadata: dict[str, Any] | None = None, resume_from_checkpoint: Checkpoint | None = None) -> None:
        super().__init__(train_loop_per_worker, train_loop_config=train_loop_config, backend_config=torch_config or TorchConfig(),
                         scaling_config=scaling_config, dataset_config=dataset_config, run_config=run_config, datasets=datasets,
                         metadata=metadata, resume_from_checkpoint=resume_from_checkpoint, validation_config=validation_config)
