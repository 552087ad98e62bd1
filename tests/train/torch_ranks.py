"""Runs a function on the ranks of one torch.distributed process group, each in a worker process of its own.

``RAYGO_TEST_BACKEND=gloo`` runs the tests of the backend against torch's own one, which is how what they expect was found.
"""
from __future__ import annotations

import datetime
import os
import tempfile
from collections.abc import Callable
from typing import Any

import raygo
from raygo._calls import call
from raygo.train.torch import TorchConfig

BACKEND = os.environ.get("RAYGO_TEST_BACKEND", "raygo")


def run(function: Callable[..., Any], *args: Any, world: int = 2, backend: str = BACKEND, timeout: float = 60) -> list[Any]:
    """What `function(*args)` returned on each rank."""
    with tempfile.TemporaryDirectory() as folder:
        return raygo.get(start(function, *args, folder=folder, world=world, backend=backend, timeout=timeout), timeout=240)


def start(function: Callable[..., Any], *args: Any, folder: str, world: int = 2, backend: str = BACKEND, timeout: float = 60) -> list[Any]:
    """The same without waiting: one reference for each rank."""
    call("modules.preload", {"modules": list(TorchConfig().preload)})        # those of trainers: one import of torch serves all tests
    store = os.path.join(folder, "store")
    task = raygo.remote(num_cpus=1, max_retries=0)(_rank)
    return [task.remote(function, args, rank, world, backend, store, timeout) for rank in range(world)]


def _rank(function: Callable[..., Any], args: tuple[Any, ...], rank: int, world: int, backend: str, store: str, timeout: float) -> Any:
    import torch
    import torch.distributed as dist

    if "raygo" in backend:
        from raygo.util.collective.torch_backend import register_backend

        register_backend()
    torch.set_num_threads(1)
    dist.init_process_group(backend, store=dist.FileStore(store, world), rank=rank, world_size=world, timeout=datetime.timedelta(seconds=timeout))
    try:
        return function(*args)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
