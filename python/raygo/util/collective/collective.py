"""Collective operations: the functions, and the groups that this process is in."""
from __future__ import annotations

import threading
from typing import Any

import raygo
from raygo import _session
from raygo.util.collective import types
from raygo.util.collective._declared import Declaration, declare, find, forget
from raygo.util.collective.backend_registry import get_backend_registry
from raygo.util.collective.collective_group.base_collective_group import BaseGroup
from raygo.util.collective.types import ReduceOp

__all__ = ["GroupManager", "allgather", "allgather_multigpu", "allreduce", "allreduce_multigpu", "barrier", "broadcast", "broadcast_multigpu",
           "create_collective_group", "destroy_collective_group", "get_collective_group_size", "get_group_handle", "get_rank", "gloo_available",
           "init_collective_group", "is_backend_available", "is_group_initialized", "nccl_available", "recv", "recv_multigpu", "reduce", "reduce_multigpu",
           "reducescatter", "reducescatter_multigpu", "send", "send_multigpu"]


class GroupManager:
    """The groups of this process, by name."""

    def __init__(self) -> None:
        self._groups: dict[str, BaseGroup] = {}
        self._joining: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def joining(self, group_name: str) -> threading.Lock:
        """Held by the thread that makes this process a rank: a rank must not join twice."""
        with self._lock:
            return self._joining.setdefault(group_name, threading.Lock())

    def create_collective_group(self, backend: str, world_size: int, rank: int, group_name: str, gloo_timeout: int | None = None) -> BaseGroup:
        """Make this process a rank; waits for the others."""
        timeout = 30000 if gloo_timeout is None else gloo_timeout
        kind = types.Backend(backend)
        if kind == types.Backend.NCCL:
            from raygo.util.collective.collective_group.nccl_collective_group import NCCLGroup

            group: BaseGroup = NCCLGroup(world_size, rank, group_name, timeout)
        elif kind in (types.Backend.GLOO, types.Backend.RAYGO):
            from raygo.util.collective.collective_group.raygo_group import RaygoGroup

            group = RaygoGroup(world_size, rank, group_name, timeout)
        else:
            group = get_backend_registry().get(kind)(world_size, rank, group_name)
        with self._lock:
            self._groups[group_name] = group
        return group

    def is_group_exist(self, group_name: str) -> bool:
        """Whether this process is in a group of that name."""
        return group_name in self._groups

    def get_group_by_name(self, group_name: str) -> BaseGroup | None:
        """The group, or None."""
        return self._groups.get(group_name)

    def destroy_collective_group(self, group_name: str) -> None:
        """Leave a group; nothing when this process is not in it."""
        with self._lock:
            group = self._groups.pop(group_name, None)
        if group is not None:
            group.destroy_group()


_manager = GroupManager()


def _check_inside_worker() -> None:
    if _session.get().role != "worker":
        raise RuntimeError("raygo.util.collective is for actors and tasks: the driver is no rank of a group. Call this in one of them, or declare the group "
                           "with create_collective_group(actors, ...).")


def _name(group_name: Any) -> str:
    if not isinstance(group_name, str) or not group_name:
        raise ValueError(f"group_name is {group_name!r}: give a string that is not empty")
    return group_name


def nccl_available() -> bool:
    """Whether arrays on GPUs can be exchanged in this process."""
    from raygo.util.collective.collective_group.nccl_collective_group import NCCLGroup

    return NCCLGroup.check_backend_availability()


def gloo_available() -> bool:
    """Whether arrays in the CPU's memory can be exchanged: always."""
    return True


def is_backend_available(backend: str) -> bool:
    """Whether a backend of that name works in this process."""
    try:
        kind = types.Backend(backend)
    except ValueError:
        return False
    if kind == types.Backend.NCCL:
        return nccl_available()
    return kind in (types.Backend.GLOO, types.Backend.RAYGO) or get_backend_registry().check(kind)


def is_group_initialized(group_name: str) -> bool:
    """Whether this process is in a group of that name."""
    return _manager.is_group_exist(group_name)


def init_collective_group(world_size: int, rank: int, backend: str = types.Backend.NCCL, group_name: str = "default", gloo_timeout: int = 30000) -> None:
    """Make this actor or task a rank of a group; waits until all ranks have called it.

    Parameters
    ----------
    world_size : int
        How many ranks the group has.
    rank : int
        This one's place, from 0.
    backend : str
        "gloo" (or "raygo") for arrays in the CPU's memory, "nccl" for GPUs.
    group_name : str
        Its name.
    gloo_timeout : int
        Milliseconds to wait for other ranks, here and in every operation.

    Raises
    ------
    RuntimeError
        This process is in a group of that name already, or the others did not come in time.
    """
    _check_inside_worker()
    _name(group_name)
    if world_size < 1 or not 0 <= rank < world_size:
        raise ValueError(f"init_collective_group: rank {rank} of {world_size} cannot be: ranks go from 0 to world_size - 1")
    with _manager.joining(group_name):
        if _manager.is_group_exist(group_name):
            raise RuntimeError(f"Trying to initialize a group twice: this process is in a group {group_name!r} already. Call destroy_collective_group() first.")
        _manager.create_collective_group(backend, world_size, rank, group_name, gloo_timeout)


def create_collective_group(actors: list[Any], world_size: int, ranks: list[int], backend: str = types.Backend.NCCL, group_name: str = "default",
                            gloo_timeout: int = 30000) -> None:
    """Declare from outside that actors are a group; each joins at its first operation.

    Parameters
    ----------
    actors : list of ActorHandle
        The members.
    world_size : int
        How many they are.
    ranks : list of int
        The place of each.
    backend, group_name, gloo_timeout
        As for `init_collective_group`.

    Raises
    ------
    RuntimeError
        There is a group of that name, or actors and ranks do not fit together.
    """
    kind = types.Backend(backend)
    _name(group_name)
    if len(ranks) != len(actors):
        raise RuntimeError(f"Each actor should correspond to one rank. Got '{len(ranks)}' ranks but '{len(actors)}' actors")
    if set(ranks) != set(range(len(ranks))):
        raise RuntimeError(f"Ranks must be a permutation from 0 to {len(ranks) - 1}. Got {ranks}.")
    if world_size != len(actors):
        raise RuntimeError(f"world_size is {world_size} and {len(actors)} actors were given: all members must be named")
    declare(group_name, Declaration({actor._actor_id.hex(): rank for actor, rank in zip(actors, ranks, strict=True)}, world_size, kind, gloo_timeout))


def destroy_collective_group(group_name: str = "default") -> None:
    """Leave a group, and forget that it was declared."""
    _name(group_name)
    _manager.destroy_collective_group(group_name)
    forget(group_name)


def get_rank(group_name: str = "default") -> int:
    """This process's rank in a group; -1 when it is in none of that name."""
    _check_inside_worker()
    group = _manager.get_group_by_name(group_name)
    return -1 if group is None else group.rank


def get_collective_group_size(group_name: str = "default") -> int:
    """How many ranks a group has; -1 when this process is in none of that name."""
    _check_inside_worker()
    group = _manager.get_group_by_name(group_name)
    return -1 if group is None else group.world_size


def get_group_handle(group_name: str = "default") -> BaseGroup:
    """The group itself; joins it if it was declared.

    Raises
    ------
    RuntimeError
        There is none of that name.
    """
    group = _manager.get_group_by_name(_name(group_name))
    if group is not None:
        return group
    _check_inside_worker()
    with _manager.joining(group_name):      # another thread may be about to join
        return _manager.get_group_by_name(group_name) or _join_declared(group_name)


def _join_declared(group_name: str) -> BaseGroup:
    declared = find(group_name)
    own = raygo.get_runtime_context().get_actor_id()
    if declared is None or own not in declared.ranks:
        what = "is not one of its members" if declared is not None else "has not been initialized in this process, nor declared"
        raise RuntimeError(f"The collective group {group_name!r} {what if declared is None else f'was declared and this actor {what}'}. "
                           "Call init_collective_group() in every member, or create_collective_group(actors, ...) in the driver.")
    return _manager.create_collective_group(declared.backend, declared.world_size, declared.ranks[own], group_name, declared.timeout)


def _other(group: BaseGroup, rank: int, what: str, also_self: bool = True) -> None:
    if not 0 <= rank < group.world_size:
        raise ValueError(f"{what} is {rank}: the group {group.group_name!r} has ranks 0 to {group.world_size - 1}")
    if not also_self and rank == group.rank:
        raise RuntimeError(f"The destination rank '{rank}' is this process itself: {what} must be another rank")


def allreduce(tensor: Any, group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """Replace the values of an array on every rank by their reduction.

    Parameters
    ----------
    tensor : numpy.ndarray or torch.Tensor
        The same size and type on all ranks.
    group_name : str
        The group.
    op : ReduceOp
        How.
    """
    get_group_handle(group_name).allreduce(tensor, types.AllReduceOptions(op))


def barrier(group_name: str = "default") -> None:
    """Wait until all ranks are here."""
    get_group_handle(group_name).barrier(types.BarrierOptions())


def reduce(tensor: Any, dst_rank: int = 0, group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """Replace the values of an array on one rank by the reduction of all."""
    group = get_group_handle(group_name)
    _other(group, dst_rank, "dst_rank")
    group.reduce(tensor, types.ReduceOptions(op, dst_rank))


def broadcast(tensor: Any, src_rank: int = 0, group_name: str = "default") -> None:
    """Replace the values of an array on every rank by one rank's."""
    group = get_group_handle(group_name)
    _other(group, src_rank, "src_rank")
    group.broadcast(tensor, types.BroadcastOptions(src_rank))


def allgather(tensor_list: list[Any], tensor: Any, group_name: str = "default") -> None:
    """Fill a list of arrays, one for each rank, with the arrays of all ranks."""
    get_group_handle(group_name).allgather(tensor_list, tensor, types.AllGatherOptions())


def reducescatter(tensor: Any, tensor_list: list[Any], group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """Reduce lists of arrays, one for each rank, and give each rank its own of the results in `tensor`."""
    get_group_handle(group_name).reducescatter(tensor, tensor_list, types.ReduceScatterOptions(op))


def send(tensor: Any, dst_rank: int, group_name: str = "default") -> None:
    """Send an array to another rank."""
    group = get_group_handle(group_name)
    _other(group, dst_rank, "dst_rank", also_self=False)
    group.send(tensor, types.SendOptions(dst_rank))


def recv(tensor: Any, src_rank: int, group_name: str = "default") -> None:
    """Fill an array with what another rank sends."""
    group = get_group_handle(group_name)
    _other(group, src_rank, "src_rank", also_self=False)
    group.recv(tensor, types.RecvOptions(src_rank))


# ---- Ray's forms for processes with several GPUs: a worker of raygo has one array for each operation


def _one(tensors: list[Any], operation: str) -> Any:
    if not isinstance(tensors, (list, tuple)) or len(tensors) != 1:
        raise RuntimeError(f"{operation}: each rank gives one array in a list; use one worker for each GPU")
    return tensors[0]


def allreduce_multigpu(tensor_list: list[Any], group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """`allreduce` of a list of one array."""
    allreduce(_one(tensor_list, "allreduce_multigpu"), group_name, op)


def reduce_multigpu(tensor_list: list[Any], dst_rank: int = 0, dst_tensor: int = 0, group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """`reduce` of a list of one array."""
    reduce(_one(tensor_list, "reduce_multigpu"), dst_rank, group_name, op)


def broadcast_multigpu(tensor_list: list[Any], src_rank: int = 0, src_tensor: int = 0, group_name: str = "default") -> None:
    """`broadcast` of a list of one array."""
    broadcast(_one(tensor_list, "broadcast_multigpu"), src_rank, group_name)


def allgather_multigpu(output_tensor_lists: list[Any], input_tensor_list: list[Any], group_name: str = "default") -> None:
    """`allgather` of a list of one array."""
    allgather(_one(output_tensor_lists, "allgather_multigpu"), _one(input_tensor_list, "allgather_multigpu"), group_name)


def reducescatter_multigpu(output_tensor_list: list[Any], input_tensor_lists: list[Any], group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """`reducescatter` into a list of one array."""
    reducescatter(_one(output_tensor_list, "reducescatter_multigpu"), _one(input_tensor_lists, "reducescatter_multigpu"), group_name, op)


def send_multigpu(tensor: Any, dst_rank: int, dst_gpu_index: int, group_name: str = "default", n_elements: int = 0) -> None:
    """`send`; of the first `n_elements` when that is not 0."""
    send(tensor.reshape(-1)[:n_elements] if n_elements else tensor, dst_rank, group_name)


def recv_multigpu(tensor: Any, src_rank: int, src_gpu_index: int, group_name: str = "default", n_elements: int = 0) -> None:
    """`recv`; into the first `n_elements` when that is not 0."""
    recv(tensor.reshape(-1)[:n_elements] if n_elements else tensor, src_rank, group_name)


def synchronize(gpu_id: int) -> None:
    """Wait until a GPU has done what it was given."""
    import torch

    torch.cuda.synchronize(gpu_id)
