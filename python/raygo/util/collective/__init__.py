"""Collective operations between tasks and actors, with Ray's names.

Members call `init_collective_group`, or the driver declares actors a group with `create_collective_group`; then `allreduce`, `broadcast` and the others work on
arrays of NumPy and tensors of torch, in place.  For training loops, `raygo.train.torch` sets up torch.distributed instead.
``python/docs/collectives.md`` says more.
"""
from __future__ import annotations

from raygo._binding import GroupError as CollectiveError
from raygo.util.collective.backend_registry import register_collective_backend
from raygo.util.collective.collective import (
    allgather,
    allgather_multigpu,
    allreduce,
    allreduce_multigpu,
    barrier,
    broadcast,
    broadcast_multigpu,
    create_collective_group,
    destroy_collective_group,
    get_collective_group_size,
    get_group_handle,
    get_rank,
    gloo_available,
    init_collective_group,
    is_backend_available,
    is_group_initialized,
    nccl_available,
    recv,
    recv_multigpu,
    reduce,
    reduce_multigpu,
    reducescatter,
    reducescatter_multigpu,
    send,
    send_multigpu,
)
from raygo.util.collective.types import Backend, ReduceOp

__all__ = ["Backend", "CollectiveError", "ReduceOp", "allgather", "allgather_multigpu", "allreduce", "allreduce_multigpu", "barrier", "broadcast",
           "broadcast_multigpu", "create_collective_group", "destroy_collective_group", "get_collective_group_size", "get_group_handle", "get_rank",
           "gloo_available", "init_collective_group", "is_backend_available", "is_group_initialized", "nccl_available", "recv", "recv_multigpu", "reduce",
           "reduce_multigpu", "reducescatter", "reducescatter_multigpu", "register_collective_backend", "send", "send_multigpu"]
