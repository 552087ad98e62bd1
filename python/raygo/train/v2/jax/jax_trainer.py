"""Data-parallel training with JAX."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raygo.train._settings import RunConfig, ScalingConfig
from raygo.train.data_parallel_trainer import DataParallelTrainer
from raygo.train.v2.jax.config import JaxConfig

__all__ = ["JaxTrainer"]


class JaxTrainer(DataParallelTrainer):
    """Runs a training function on each of several workers that are one jax.distributed cluster.

    Parameters
    ----------
    train_loop_per_worker : callable
        Takes the config, or nothing; sees the devices of all workers in ``jax.devices()``.
    train_loop_config : dict, optional
        The config.
    jax_config : JaxConfig, optional
        The cluster; on the workers' GPUs where `scaling_config` asks for them.
    scaling_config, run_config, datasets, dataset_config
        As for `raygo.train.DataParallelTrainer`.

    Examples
    --------
    >>> JaxTrainer(loop, scaling_config=ScalingConfig(num_workers=2)).fit()       # doctest: +SKIP
    """

    def __init__(self, train_loop_per_worker: Callable[..., Any], *, train_loop_config: dict[str, Any] | None = None,
                 jax_config: JaxConfig | None = None, scaling_config: ScalingConfig | None = None, dataset_config: Any = None,
                 run_config: RunConfig | None = None, datasets: dict[str, Any] | None = None, validation_config: Any = None) -> None:
        if validation_config is not None:
            raise NotImplementedError("JaxTrainer(validation_config=...) is not there yet in raygo")
        use_gpu = bool(scaling_config is not None and scaling_config.use_gpu)
        super().__init__(train_loop_per_worker, train_loop_config=train_loop_config, backend_config=jax_config or JaxConfig(use_gpu=use_gpu),
                         scaling_config=scaling_config, dataset_config=dataset_config, run_config=run_config, datasets=datasets)
