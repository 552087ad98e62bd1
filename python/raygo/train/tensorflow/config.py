"""TensorFlow's cluster over the workers."""
from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from raygo.train import _ports
from raygo.train._worker_group import WorkerGroup
from raygo.train.backend import Backend, BackendConfig

__all__ = ["TensorflowConfig"]


@dataclass
class TensorflowConfig(BackendConfig):
    """How the workers are joined; there is nothing to set."""

    @property
    def backend_cls(self) -> type[Backend]:
        """The backend."""
        return _TensorflowBackend

    @property
    def train_func_context(self) -> Any:
        """TensorFlow's server takes the worker's port when the function makes its strategy."""
        return _port_free

    @property
    def framework(self) -> str:
        """The framework's name."""
        return "tensorflow"


class _TensorflowBackend(Backend):
    def on_start(self, worker_group: WorkerGroup, backend_config: TensorflowConfig) -> None:
        import raygo

        workers = [f"{host}:{port}" for host, port in _ports.addresses(worker_group)]
        raygo.get([worker_group.execute_single_async(rank, _set_cluster, workers, rank) for rank in range(len(workers))])


def _set_cluster(workers: list[str], rank: int) -> None:
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})


@contextlib.contextmanager
def _port_free() -> Iterator[None]:
    _ports.release()
    yield
