"""What a training function does to its model and data, once, before its loop."""
from __future__ import annotations

import functools
import os
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import raygo
from raygo import _step_profile
from raygo.train._absent import absent
from raygo.train.context import get_context
from raygo.train.torch import _amp

if TYPE_CHECKING:
    import torch
    from torch.utils.data import DataLoader

__all__ = ["accelerate", "backward", "enable_reproducibility", "get_device", "get_devices", "prepare_data_loader", "prepare_model",
           "prepare_optimizer"]


def get_devices() -> list[torch.device]:
    """The devices that this worker was given: its GPUs, or the CPU."""
    import torch

    ids = [str(gpu) for gpu in raygo.get_gpu_ids()] if raygo.is_initialized() else []
    if not torch.cuda.is_available():
        if ids:
            raise RuntimeError(f"This worker was given the GPUs {', '.join(ids)}, but torch finds no CUDA here. "
                               "Install a torch build with CUDA, or use ScalingConfig(use_gpu=False).")
        return [torch.device("cpu")]
    if not ids:
        return [torch.device("cpu")] if raygo.is_initialized() else [torch.device("cuda:0")]
    visible = [v for v in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if v]
    return [torch.device(f"cuda:{visible.index(gpu) if gpu in visible else index}") for index, gpu in enumerate(ids)]


def get_device() -> torch.device:
    """The first of `get_devices`.

    Examples
    --------
    >>> raygo.train.torch.get_device()                    # doctest: +SKIP
    device(type='cpu')
    """
    return get_devices()[0]


def prepare_model(model: torch.nn.Module, move_to_device: bool | torch.device = True, parallel_strategy: str | None = "ddp",
                  parallel_strategy_kwargs: dict[str, Any] | None = None) -> torch.nn.Module:
    """Move a model to this worker's device and make it train together with the others.

    Parameters
    ----------
    model : torch.nn.Module
        The model.
    move_to_device : bool or torch.device
        Whether to move it, or where.  GPUs are counted within those that the worker was given.
    parallel_strategy : {"ddp", "fsdp", None}
        DistributedDataParallel, FullyShardedDataParallel, or neither.
    parallel_strategy_kwargs : dict, optional
        Passed to that wrapper.
    """
    import torch

    if parallel_strategy not in ("ddp", "fsdp", None):
        raise ValueError(f"parallel_strategy is {parallel_strategy!r}: give 'ddp', 'fsdp' or None")
    device = get_device() if isinstance(move_to_device, bool) else torch.device(move_to_device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if _amp.enabled:
        model.forward = _amp.Autocast(model.forward, device.type)
    if move_to_device is not False:
        model = model.to(device)
    if parallel_strategy is None or get_context().get_world_size() == 1:
        return model
    kwargs = dict(parallel_strategy_kwargs or {})
    if parallel_strategy == "ddp":
        from torch.nn.parallel import DistributedDataParallel

        if device.type != "cpu":
            kwargs = {"device_ids": [device], "output_device": device, **kwargs}
        return DistributedDataParallel(model, **kwargs)
    if device.type == "cpu":
        raise RuntimeError("parallel_strategy='fsdp' needs GPUs: use ScalingConfig(use_gpu=True), or parallel_strategy='ddp'")
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(model, **kwargs)


def prepare_data_loader(data_loader: DataLoader[Any], add_dist_sampler: bool = True, move_to_device: bool = True,
                        auto_transfer: bool = True) -> DataLoader[Any]:
    """Give this worker its part of the data.

    Parameters
    ----------
    data_loader : DataLoader
        Over the whole data set; it is shuffled here if it was there.
    add_dist_sampler : bool
        Use a DistributedSampler, so that each worker sees a part of its own.
    move_to_device : bool
        Bring batches to this worker's GPU.
    auto_transfer : bool
        Copy the next batch while this one is used; with a GPU and pinned memory.

    Notes
    -----
    Call ``loader.sampler.set_epoch(epoch)`` before each epoch, for a new order.
    """
    from torch.utils.data import DistributedSampler, IterableDataset

    world = get_context().get_world_size()
    sharded = isinstance(data_loader.sampler, DistributedSampler)
    if world > 1 and add_dist_sampler and not sharded and not isinstance(data_loader.dataset, IterableDataset):
        data_loader = _with_shard(data_loader)
    if _seed is not None and data_loader.num_workers > 0 and not isinstance(data_loader.worker_init_fn, _SeededWorker):
        data_loader.worker_init_fn = _SeededWorker(data_loader.worker_init_fn)      # loaders start their processes when they are read
    if move_to_device:
        device = get_device()
        if device.type != "cpu":
            return _DeviceLoader(_timed(data_loader), device, auto_transfer)  # type: ignore[return-value]
    return _timed(data_loader)


def _timed(loader: DataLoader[Any]) -> DataLoader[Any]:
    """The loader itself, which from now on counts how long it is waited for; one of a class of the user's own stays as it is."""
    from torch.utils.data import DataLoader

    if type(loader) is DataLoader:
        loader.__class__ = _timed_class()
    return loader


@functools.cache
def _timed_class() -> Any:
    from torch.utils.data import DataLoader

    class TimedDataLoader(DataLoader[Any]):
        def __iter__(self) -> Any:
            return _step_profile.TimedIterator(super().__iter__())

    return TimedDataLoader


def _with_shard(loader: DataLoader[Any]) -> DataLoader[Any]:
    """The same loader with a DistributedSampler."""
    from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler

    batches = loader.batch_sampler
    # Given as such, a BatchSampler has the sampler, the size and the rest; without one, items are not batched.
    sampler = batches.sampler if type(batches) is BatchSampler else loader.sampler
    if type(sampler) not in (RandomSampler, SequentialSampler) or type(batches) not in (BatchSampler, type(None)):
        own = type(batches).__name__ if type(batches) not in (BatchSampler, type(None)) else type(sampler).__name__
        raise ValueError(f"prepare_data_loader cannot split a DataLoader with a {own} of its own: give it add_dist_sampler=False and let the sampler "
                         "choose this worker's part")
    context = get_context()
    # DataLoader's own generator, when it has one, says what seed the order has; every rank must have the same.
    seed = loader.generator.initial_seed() % 2**31 if loader.generator is not None else _seed or 0
    part: DistributedSampler[Any] = DistributedSampler(loader.dataset, num_replicas=context.get_world_size(), rank=context.get_world_rank(),
                                                       shuffle=isinstance(sampler, RandomSampler), seed=seed)
    if isinstance(batches, BatchSampler):
        return _rebuilt(loader, sampler=part, batch_size=batches.batch_size, drop_last=batches.drop_last)
    return _rebuilt(loader, sampler=part, batch_size=None)


def _rebuilt(loader: DataLoader[Any], **changed: Any) -> DataLoader[Any]:
    """A loader like this one."""
    from torch.utils.data import DataLoader

    settings: dict[str, Any] = {name: getattr(loader, name) for name in (
        "num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "generator", "persistent_workers", "multiprocessing_context")}
    if loader.num_workers > 0:
        settings["prefetch_factor"] = loader.prefetch_factor
    if hasattr(loader, "in_order"):       # torch 2.6
        settings["in_order"] = loader.in_order
    return DataLoader(loader.dataset, **{**settings, **changed})


class _DeviceLoader:
    """A DataLoader whose batches arrive on a GPU; anything else is asked of the loader."""

    def __init__(self, loader: DataLoader[Any], device: torch.device, overlap: bool) -> None:
        import torch

        self._loader = loader
        self._device = device
        self._stream = torch.cuda.Stream(device) if overlap and loader.pin_memory else None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        if self._stream is None:
            for batch in self._loader:
                yield _move(batch, self._device, False)
            return
        import torch

        current = torch.cuda.current_stream(self._device)
        coming: Any = None            # a batch and the event that says it has arrived
        for batch in self._loader:
            with torch.cuda.stream(self._stream):
                following = (_move(batch, self._device, True), self._stream.record_event())
            if coming is not None:
                yield _arrived(coming, current)
            coming = following
        if coming is not None:
            yield _arrived(coming, current)


def _arrived(coming: tuple[Any, Any], stream: Any) -> Any:
    batch, event = coming
    stream.wait_event(event)
    _record(batch, stream)
    return batch


def _move(item: Any, device: torch.device, overlap: bool) -> Any:
    if hasattr(item, "to"):
        return item.to(device, non_blocking=overlap)
    if isinstance(item, dict):
        return {key: _move(value, device, overlap) for key, value in item.items()}
    if isinstance(item, (list, tuple)):
        moved = [_move(value, device, overlap) for value in item]
        return type(item)(*moved) if hasattr(item, "_fields") else type(item)(moved)
    return item


def _record(item: Any, stream: Any) -> None:
    """Keeps the memory of a batch from being reused before `stream` is done with it."""
    if hasattr(item, "record_stream"):
        item.record_stream(stream)
    elif isinstance(item, dict):
        for value in item.values():
            _record(value, stream)
    elif isinstance(item, (list, tuple)):
        for value in item:
            _record(value, stream)


def accelerate(amp: bool = False) -> None:
    """Settings of this worker, to be made before `prepare_model`.

    Parameters
    ----------
    amp : bool
        Mixed precision: models run under autocast (float16 on a GPU, bfloat16 on the CPU), and on a GPU `prepare_optimizer` and `backward`
        scale the gradients.
    """
    if amp:
        _amp.enable()


def prepare_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer, scaled where mixed precision needs it; see `accelerate`."""
    scaler = _amp.scaler()
    return _amp.ScaledOptimizer(optimizer, scaler) if scaler is not None else optimizer  # type: ignore[return-value]


def backward(tensor: torch.Tensor) -> None:
    """``tensor.backward()``, scaled where mixed precision needs it; see `accelerate`."""
    scaler = _amp.scaler()
    (scaler.scale(tensor) if scaler is not None else tensor).backward()


TorchWorkerProfiler = absent("raygo.train.torch.train_loop_utils.TorchWorkerProfiler",
                             "use torch.profiler.profile in the training function, or RAYGO_TRAIN_PROFILE=1 for what a step's time goes into")

# The seed of enable_reproducibility; loaders' processes get theirs from it.
_seed: int | None = None


def enable_reproducibility(seed: int = 0) -> None:
    """Seed torch, NumPy, `random` and the loaders that are prepared afterwards, and make torch refuse operations whose result varies."""
    global _seed
    import torch

    _seed = seed
    torch.manual_seed(seed)
    random.seed(seed)
    import numpy

    numpy.random.seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"


class _SeededWorker:
    """A loader process's start: NumPy and `random` follow torch's seed, which DataLoader gives each process; then the user's own."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def __call__(self, worker_id: int) -> None:
        import numpy
        import torch

        seed = torch.initial_seed() % 2**32
        numpy.random.seed(seed)
        random.seed(seed)
        if self._own is not None:
            self._own(worker_id)
