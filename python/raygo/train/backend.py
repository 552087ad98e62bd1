"""How workers are made into a group: for torch, a process group."""
from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raygo.train._worker_group import WorkerGroup

__all__ = ["Backend", "BackendConfig"]


class BackendConfig:
    """Settings of a backend; `backend_cls` says which."""

    @property
    def backend_cls(self) -> type[Backend]:
        """The backend."""
        return Backend

    @property
    def train_func_context(self) -> Any:
        """A context manager that the training function runs in."""
        return contextlib.nullcontext

    @property
    def framework(self) -> str | None:
        """The framework's name."""
        return None

    @property
    def preload(self) -> tuple[str, ...]:
        """Modules that every worker imports: workers are forked from a process that has them."""
        return ()

    def to_dict(self) -> dict[str, Any]:
        """The settings."""
        return {key: value for key, value in vars(self).items() if not key.startswith("_")}


class Backend:
    """Hooks in the driver, around training."""

    share_cuda_visible_devices: bool = False
    has_replica_groups: bool = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def on_start(self, worker_group: WorkerGroup, backend_config: Any) -> None:
        """The workers are there."""

    def on_training_start(self, worker_group: WorkerGroup, backend_config: Any) -> None:
        """The training function is about to start."""

    def on_shutdown(self, worker_group: WorkerGroup, backend_config: Any) -> None:
        """The training function has ended everywhere."""
