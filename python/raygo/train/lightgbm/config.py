"""LightGBM's network over the workers.

LightGBM is told the addresses of all workers and opens its own sockets, when training begins: `raygo.train._ports` keeps them free until then.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from raygo.train import _ports, _session
from raygo.train._worker_group import WorkerGroup
from raygo.train.backend import Backend, BackendConfig

__all__ = ["LightGBMConfig", "get_network_params"]


@dataclass
class LightGBMConfig(BackendConfig):
    """How the workers are joined; there is nothing to set."""

    @property
    def backend_cls(self) -> type[Backend]:
        """The backend."""
        return _LightGBMBackend

    @property
    def framework(self) -> str:
        """The framework's name."""
        return "lightgbm"

    @property
    def preload(self) -> tuple[str, ...]:
        """Workers are forked from a process that has them."""
        return ("pandas", "pyarrow", "lightgbm")


class _LightGBMBackend(Backend):
    def on_training_start(self, worker_group: WorkerGroup, backend_config: LightGBMConfig) -> None:
        import raygo

        addresses = _ports.addresses(worker_group)
        machines = ",".join(f"{host}:{port}" for host, port in addresses)
        raygo.get([worker_group.execute_single_async(rank, _remember, {"machines": machines, "local_listen_port": port, "num_machines": len(addresses)})
                   for rank, (_, port) in enumerate(addresses)])


_params: dict[str, Any] | None = None


def _remember(params: dict[str, Any]) -> None:
    global _params
    _params = params


def get_network_params() -> dict[str, Any]:
    """The params with which ``lightgbm.train`` joins the other workers: "machines", "local_listen_port" and "num_machines".

    Call it just before ``lightgbm.train``: from then on the worker's port is LightGBM's.

    Examples
    --------
    >>> lightgbm.train({**params, **get_network_params(), "tree_learner": "data_parallel"}, dataset)     # doctest: +SKIP
    """
    if _params is None:
        if (session := _session.current) is not None and session.place.world_size == 1:
            return {}        # the driver itself trains: there is nobody to join
        raise RuntimeError("get_network_params is meant for the training function of a LightGBMTrainer")
    _ports.release()
    return dict(_params)
