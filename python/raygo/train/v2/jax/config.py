"""jax.distributed over the workers."""
from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import raygo
from raygo.train import _ports
from raygo.train._worker_group import WorkerGroup
from raygo.train.backend import Backend, BackendConfig

__all__ = ["JaxConfig"]

_SHUTDOWN_TIMEOUT_S_ENV = "JAX_DISTRIBUTED_SHUTDOWN_TIMEOUT_S"
_SHUTDOWN_TIMEOUT_S = 30.0


@dataclass
class JaxConfig(BackendConfig):
    """The cluster.

    Parameters
    ----------
    use_tpu : bool
        Not there in raygo.
    use_gpu : bool
        Whether JAX uses the workers' GPUs; the CPU otherwise.
    """

    use_tpu: bool = False
    use_gpu: bool = False

    def __post_init__(self) -> None:
        if self.use_tpu:
            raise NotImplementedError("JaxConfig(use_tpu=True): raygo schedules no TPUs")

    @property
    def backend_cls(self) -> type[Backend]:
        """The backend."""
        return _JaxBackend

    @property
    def framework(self) -> str:
        """The framework's name."""
        return "jax"


class _JaxBackend(Backend):
    def on_start(self, worker_group: WorkerGroup, backend_config: JaxConfig) -> None:
        count = len(worker_group)
        host, port = _ports.addresses(worker_group)[0]
        raygo.get([worker_group.execute_single_async(rank, _join, f"{host}:{port}", count, rank, backend_config.use_gpu) for rank in range(count)])

    def on_shutdown(self, worker_group: WorkerGroup, backend_config: JaxConfig) -> None:
        patience = float(os.environ.get(_SHUTDOWN_TIMEOUT_S_ENV, _SHUTDOWN_TIMEOUT_S))
        leaving = worker_group.execute_async(_leave)
        ready, _ = raygo.wait(leaving, num_returns=len(leaving), timeout=patience)
        raygo.get(ready)


def _join(coordinator: str, processes: int, rank: int, use_gpu: bool) -> None:
    os.environ["JAX_PLATFORMS"] = "cuda" if use_gpu else "cpu"
    import jax

    _ports.release()
    jax.config.update("jax_platforms", os.environ["JAX_PLATFORMS"])      # where jax was imported already
    if not use_gpu:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(coordinator, processes, rank, local_device_ids=None)


def _leave() -> Any:
    import jax

    jax.distributed.shutdown()
