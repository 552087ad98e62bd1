"""Data-parallel training with TensorFlow."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raygo.train._checkpoint import Checkpoint
from raygo.train._settings import RunConfig, ScalingConfig
from raygo.train.data_parallel_trainer import DataParallelTrainer
from raygo.train.tensorflow.config import TensorflowConfig

__all__ = ["TensorflowTrainer"]


class TensorflowTrainer(DataParallelTrainer):
    """Runs a training function on each of several workers that are one TensorFlow cluster.

    Parameters
    ----------
    train_loop_per_worker : callable
        Takes the config, or nothing; makes its model under ``tf.distribute.MultiWorkerMirroredStrategy()``.
    train_loop_config : dict, optional
        The config.
    tensorflow_config : TensorflowConfig, optional
        The cluster.
    scaling_config, run_config, datasets, dataset_config, metadata, resume_from_checkpoint
        As for `raygo.train.DataParallelTrainer`.

    Examples
    --------
    >>> TensorflowTrainer(loop, scaling_config=ScalingConfig(num_workers=2)).fit()       # doctest: +SKIP
    """

    def __init__(self, train_loop_per_worker: Callable[..., Any], *, train_loop_config: dict[str, Any] | None = None,
                 tensorflow_config: TensorflowConfig | None = None, scaling_config: ScalingConfig | None = None, dataset_config: Any = None,
                 run_config: RunConfig | None = None, datasets: dict[str, Any] | None = None, validation_config: Any = None,
                 metadata: dict[str, Any] | None = None, resume_from_checkpoint: Checkpoint | None = None) -> None:
        if validation_config is not None:
            raise NotImplementedError("TensorflowTrainer(validation_config=...) is not there yet in raygo")
        super().__init__(train_loop_per_worker, train_loop_config=train_loop_config, backend_config=tensorflow_config or TensorflowConfig(),
                         scaling_config=scaling_config, dataset_config=dataset_config, run_config=run_config, datasets=datasets, metadata=metadata,
                         resume_from_checkpoint=resume_from_checkpoint)
