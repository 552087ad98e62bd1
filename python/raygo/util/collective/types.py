"""Words that collective operations use."""
from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import ClassVar

__all__ = ["AllGatherOptions", "AllReduceOptions", "Backend", "BarrierOptions", "BroadcastOptions", "RecvOptions", "ReduceOp", "ReduceOptions",
           "ReduceScatterOptions", "SendOptions", "cupy_available", "torch_available", "unset_timeout_ms"]

unset_timeout_ms = timedelta(milliseconds=-1)


class Backend:
    """What moves the arrays; `Backend(name)` is the name as it is kept.

    GLOO (also written torch_gloo) and RAYGO are the same here: raygo's own, for arrays in the CPU's memory.  NCCL is for arrays on GPUs.
    """

    NCCL: ClassVar[str] = "NCCL"
    GLOO: ClassVar[str] = "GLOO"
    RAYGO: ClassVar[str] = "RAYGO"
    UNRECOGNIZED: ClassVar[str] = "unrecognized"

    def __new__(cls, name: str) -> str:  # type: ignore[misc]
        """The name, or a ValueError."""
        found = {"NCCL": cls.NCCL, "GLOO": cls.GLOO, "TORCH_GLOO": cls.GLOO, "RAYGO": cls.RAYGO}.get(str(name).upper())
        if found is None:
            from raygo.util.collective.backend_registry import registered

            if str(name).upper() in registered:
                return str(name).upper()
            raise ValueError(f"Unrecognized backend: {name!r}. Give 'gloo' (or 'raygo', the same here) for arrays in the CPU's memory, 'nccl' for GPUs.")
        return found


class ReduceOp(Enum):
    """How values are put together."""

    SUM = 0
    PRODUCT = 1
    MIN = 2
    MAX = 3
    AVERAGE = 4


@dataclass
class AllReduceOptions:
    """Of `allreduce`."""

    reduceOp: ReduceOp = ReduceOp.SUM
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class BarrierOptions:
    """Of `barrier`."""

    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class ReduceOptions:
    """Of `reduce`."""

    reduceOp: ReduceOp = ReduceOp.SUM
    root_rank: int = 0
    root_tensor: int = 0
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class AllGatherOptions:
    """Of `allgather`."""

    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class BroadcastOptions:
    """Of `broadcast`."""

    root_rank: int = 0
    root_tensor: int = 0
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class ReduceScatterOptions:
    """Of `reducescatter`."""

    reduceOp: ReduceOp = ReduceOp.SUM
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class SendOptions:
    """Of `send`."""

    dst_rank: int = 0
    dst_gpu_index: int = 0
    n_elements: int = 0
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class RecvOptions:
    """Of `recv`."""

    src_rank: int = 0
    src_gpu_index: int = 0
    n_elements: int = 0
    unset_timeout_ms: timedelta = unset_timeout_ms


def torch_available() -> bool:
    """Whether torch is installed."""
    return importlib.util.find_spec("torch") is not None


def cupy_available() -> bool:
    """Whether CuPy is installed."""
    return importlib.util.find_spec("cupy") is not None
