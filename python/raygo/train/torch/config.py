"""torch.distributed's process group over the workers."""
from __future__ import annotations

import datetime
import functools
import os
import warnings
from dataclasses import dataclass
from typing import Any

import raygo
from raygo.train._worker_group import WorkerGroup
from raygo.train.backend import Backend, BackendConfig
from raygo.train.constants import DEFAULT_TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S, TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S

__all__ = ["TorchConfig", "TorchConfigContextManager"]


class TorchConfigContextManager:
    """What the training function runs in: on a GPU, its worker's device."""

    def __enter__(self) -> None:
        import torch

        if torch.cuda.is_available():
            from raygo.train.torch.train_loop_utils import get_device

            device = get_device()
            if device.type == "cuda":
                torch.cuda.set_device(device)
                os.environ["ACCELERATE_TORCH_DEVICE"] = str(device)      # accelerate would count GPUs by the local rank

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        pass


@dataclass
class TorchConfig(BackendConfig):
    """The process group.

    Parameters
    ----------
    backend : str, optional
        As torch.distributed names it. By default "nccl" for workers with GPUs, and else raygo's own, "raygo"; "gloo" is torch's for the CPU.
        A group of raygo's that was not asked for by name answers ``torch.distributed.get_backend()`` with "gloo", as on Ray.
    init_method : {"env", "tcp"}
        Taken for compatibility: workers meet through a store on rank 0 whose port the system picks.
    timeout_s : int
        How long an operation waits for other ranks.
    """

    backend: str | None = None
    init_method: str = "env"
    timeout_s: int = 1800

    def __post_init__(self) -> None:
        if self.init_method not in ("env", "tcp"):
            raise ValueError(f'The provided init_method ({self.init_method}) is not supported. Must be either "env" or "tcp".')
        if self.backend is not None and not isinstance(self.backend, str):
            raise ValueError(f"TorchConfig: backend is {self.backend!r}: give a name of torch.distributed's, such as 'gloo', or None")

    @property
    def backend_cls(self) -> type[Backend]:
        """The backend."""
        return _TorchBackend

    @property
    def train_func_context(self) -> Any:
        """What the training function runs in."""
        return TorchConfigContextManager

    @property
    def preload(self) -> tuple[str, ...]:
        """Importing torch takes seconds, forking a process that has it milliseconds."""
        return ("torch", "raygo.train._worker_group", "raygo.util.collective.torch_backend")

    @property
    def framework(self) -> str:
        """The framework's name."""
        return "torch"


class _TorchBackend(Backend):
    share_cuda_visible_devices = True

    def on_start(self, worker_group: WorkerGroup, backend_config: TorchConfig) -> None:
        workers = worker_group.workers
        chosen = backend_config.backend or ("nccl" if all(w.metadata.gpu_ids for w in workers) else self._for_cpus(worker_group))
        one_machine = len({w.metadata.node_id for w in workers}) == 1
        host = "127.0.0.1" if one_machine else workers[0].metadata.node_ip
        port = worker_group.execute_single(0, _open_store, host, len(workers))
        raygo.get([worker_group.execute_single_async(rank, _join, rank, len(workers), host, port, chosen, backend_config.timeout_s, one_machine)
                   for rank in range(len(workers))])
        if backend_config.backend is None and chosen == "raygo":
            worker_group.execute(_answer_to_gloo)

    def _for_cpus(self, worker_group: WorkerGroup) -> str:
        """raygo's own backend, unless a worker's machine cannot have it."""
        reasons = worker_group.execute(_why_not_raygo)
        for rank, reason in enumerate(reasons):
            if reason:
                warnings.warn(f"The workers use torch's backend gloo, as raygo's own does not work in the worker of rank {rank} "
                              f"({worker_group.workers[rank].metadata.hostname}): {reason}. TorchConfig(backend='gloo') says so without this warning.",
                              stacklevel=2)
                return "gloo"
        return "raygo"

    def on_shutdown(self, worker_group: WorkerGroup, backend_config: TorchConfig) -> None:
        patience = float(os.environ.get(TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S, DEFAULT_TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S))
        leaving = worker_group.execute_async(_leave)
        ready, _ = raygo.wait(leaving, num_returns=len(leaving), timeout=patience)
        raygo.get(ready)


def _why_not_raygo() -> str | None:
    """In a worker: what a group of one fails with, None if it can be made."""
    from raygo import _binding

    try:
        _binding.Group("probe", 0, 1, None, timeout=10).close()
    except (_binding.GroupError, OSError, MemoryError) as error:
        return str(error)
    return None


_store: Any = None      # rank 0's, kept alive while the group is


def _open_store(host: str, world_size: int) -> int:
    """In rank 0: opens the store on a port that the system picks, so that no port can be taken in between."""
    global _store
    import torch.distributed as dist

    _store = dist.TCPStore(host, 0, world_size, is_master=True, wait_for_workers=False)
    return int(_store.port)


def _join(rank: int, world_size: int, host: str, port: int, backend: str, timeout_s: int, one_machine: bool) -> None:
    import torch
    import torch.distributed as dist

    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = host, str(port)
    if one_machine and os.path.exists("/sys/class/net/lo"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")     # gloo would look for the host name's interface, which need not work
    if "OMP_NUM_THREADS" not in os.environ or os.environ["OMP_NUM_THREADS"] == "1":
        cpus = raygo.get_runtime_context().get_assigned_resources().get("CPU", 1)
        torch.set_num_threads(max(1, int(cpus)))
    if "raygo" in backend:
        from raygo.util.collective.torch_backend import register_backend

        register_backend()
    # "cpu:gloo,cuda:nccl" is one for each kind of device.
    if unknown := {part.rpartition(":")[2].lower() for part in backend.split(",")} - set(dist.Backend.backend_list):
        raise ValueError(f"TorchConfig(backend={backend!r}): torch.distributed knows no {', '.join(sorted(unknown))} here; it has "
                         f"{', '.join(name for name in dist.Backend.backend_list if name != 'undefined')}")
    timeout = datetime.timedelta(seconds=timeout_s)
    store = _store if rank == 0 else dist.TCPStore(host, port, world_size, is_master=False, timeout=timeout)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=timeout)


def _answer_to_gloo() -> None:
    """In a worker: lets ``torch.distributed.get_backend()`` say "gloo" of a group that nobody asked to be raygo's.

    Programs and libraries written for Ray take another branch, or stop, where a group for the CPU is not called so.  Torch itself goes by
    ``distributed_c10d.get_backend``, which stays: new groups are raygo's as well.
    """
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    @functools.wraps(distributed_c10d.get_backend)
    def get_backend(group: Any = None) -> str:
        name = distributed_c10d.get_backend(group)
        return "gloo" if name == "raygo" else name

    dist.get_backend = get_backend


def _leave() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
