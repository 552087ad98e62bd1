"""Batches as torch tensors."""
from __future__ import annotations

from typing import Any


def to_tensors(arrays: dict[str, Any], dtypes: Any) -> dict[str, Any]:
    """A tensor for each column; raises for a column that is no tensor."""
    import numpy as np
    import torch

    out = {}
    for name, values in arrays.items():
        dtype = dtypes.get(name) if isinstance(dtypes, dict) else dtypes
        if values.dtype.kind not in "biufc":
            raise TypeError(f"the column {name!r} has values of type {values.dtype}, which no torch tensor holds: leave it out with drop_columns, "
                            "make numbers of it with map_batches, or give a collate_fn")
        # torch takes no read-only memory, and what it may write to must not be the object store's.
        array = np.array(values) if not values.flags.writeable or not values.flags.c_contiguous else values
        tensor = torch.from_numpy(array)
        out[name] = tensor.to(dtype) if dtype is not None else tensor
    return out


def to_device(batch: Any, device: Any, pin_memory: bool) -> Any:
    """The batch on `device`."""
    import torch

    if device == "auto":
        device = _own_device()
    if device is None:
        return batch
    target = torch.device(device)
    if pin_memory and target.type == "cuda":
        batch = _each(batch, lambda tensor: tensor.pin_memory())
    if target.type == "cpu":
        return _each(batch, lambda tensor: tensor.to(target))
    return _each(batch, lambda tensor: tensor.to(target, non_blocking=pin_memory))


def _own_device() -> Any:
    from raygo.train import _session

    if _session.current is None:
        return None
    from raygo.train.torch import get_device

    return get_device()


def _each(item: Any, change: Any) -> Any:
    import torch

    if isinstance(item, torch.Tensor):
        return change(item)
    if isinstance(item, dict):
        return {key: _each(value, change) for key, value in item.items()}
    if isinstance(item, (list, tuple)):
        made = [_each(value, change) for value in item]
        return type(item)(*made) if hasattr(item, "_fields") else type(item)(made)
    return item
