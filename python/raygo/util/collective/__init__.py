"""Collective operations between tasks and actors: the names only, what they do comes later.

For training, `raygo.train.torch` sets up `torch.distributed`, which has these operations.
"""
from __future__ import annotations

from typing import Any, NoReturn

from raygo.util.collective.types import ReduceOp

__raygo_stub__ = True

__all__ = ["allgather", "allgather_multigpu", "allreduce", "allreduce_multigpu", "barrier", "broadcast", "broadcast_multigpu",
           "create_collective_group", "destroy_collective_group", "get_collective_group_size", "get_group_handle", "get_rank",
           "init_collective_group", "is_group_initialized", "recv", "recv_multigpu", "reduce", "reduce_multigpu", "reducescatter",
           "reducescatter_multigpu", "send", "send_multigpu"]


def _absent(name: str) -> NoReturn:
    raise NotImplementedError(f"raygo.util.collective.{name} is not there yet in raygo. Inside raygo.train workers use torch.distributed.{name}.")


def init_collective_group(world_size: int, rank: int, backend: str = "NCCL", group_name: str = "default", gloo_timeout: int = 30000) -> None:
    """Not there yet."""
    _absent("init_collective_group")


def create_collective_group(actors: list[Any], world_size: int, ranks: list[int], backend: str = "NCCL", group_name: str = "default",
                            gloo_timeout: int = 30000) -> None:
    """Not there yet."""
    _absent("create_collective_group")


def destroy_collective_group(group_name: str = "default") -> None:
    """Not there yet."""
    _absent("destroy_collective_group")


def is_group_initialized(group_name: str) -> bool:
    """Not there yet."""
    _absent("is_group_initialized")


def get_rank(group_name: str = "default") -> int:
    """Not there yet."""
    _absent("get_rank")


def get_collective_group_size(group_name: str = "default") -> int:
    """Not there yet."""
    _absent("get_collective_group_size")


def get_group_handle(group_name: str = "default") -> Any:
    """Not there yet."""
    _absent("get_group_handle")


def allreduce(tensor: Any, group_name: str = "default", op: Any = ReduceOp.SUM) -> None:
    """Not there yet."""
    _absent("allreduce")


def allreduce_multigpu(tensor_list: list[Any], group_name: str = "default", op: Any = ReduceOp.SUM) -> None:
    """Not there yet."""
    _absent("allreduce_multigpu")


def barrier(group_name: str = "default") -> None:
    """Not there yet."""
    _absent("barrier")


def reduce(tensor: Any, dst_rank: int = 0, group_name: str = "default", op: Any = ReduceOp.SUM) -> None:
    """Not there yet."""
    _absent("reduce")


def reduce_multigpu(tensor_list: list[Any], dst_rank: int = 0, dst_tensor: int = 0, group_name: str = "default", op: Any = ReduceOp.SUM) -> None:
    """Not there yet."""
    _absent("reduce_multigpu")


def broadcast(tensor: Any, src_rank: int = 0, group_name: str = "default") -> None:
    """Not there yet."""
    _absent("broadcast")


def broadcast_multigpu(tensor_list: list[Any], src_rank: int = 0, src_tensor: int = 0, group_name: str = "default") -> None:
    """Not there yet."""
    _absent("broadcast_multigpu")


def allgather(tensor_list: list[Any], tensor: Any, group_name: str = "default") -> None:
    """Not there yet."""
    _absent("allgather")


def allgather_multigpu(output_tensor_lists: list[Any], input_tensor_list: list[Any], group_name: str = "default") -> None:
    """Not there yet."""
    _absent("allgather_multigpu")


def reducescatter(tensor: Any, tensor_list: list[Any], group_name: str = "default", op: Any = ReduceOp.SUM) -> None:
    """Not there yet."""
    _absent("reducescatter")


def reducescatter_multigpu(output_tensor_list: list[Any], input_tensor_lists: list[Any], group_name: str = "default",
                           op: Any = ReduceOp.SUM) -> None:
    """Not there yet."""
    _absent("reducescatter_multigpu")


def send(tensor: Any, dst_rank: int, group_name: str = "default") -> None:
    """Not there yet."""
    _absent("send")


def send_multigpu(tensor: Any, dst_rank: int, dst_gpu_index: int, group_name: str = "default", n_elements: int = 0) -> None:
    """Not there yet."""
    _absent("send_multigpu")


def recv(tensor: Any, src_rank: int, group_name: str = "default") -> None:
    """Not there yet."""
    _absent("recv")


def recv_multigpu(tensor: Any, src_rank: int, src_gpu_index: int, group_name: str = "default", n_elements: int = 0) -> None:
    """Not there yet."""
    _absent("recv_multigpu")
