"""Arrays in the CPU's memory, by raygo's own collectives."""
from __future__ import annotations

from datetime import timedelta
from typing import Any

from raygo import _binding
from raygo.util.collective import _codes
from raygo.util.collective._meeting import Meeting
from raygo.util.collective.collective_group.base_collective_group import BaseGroup
from raygo.util.collective.types import (
    AllGatherOptions,
    AllReduceOptions,
    BarrierOptions,
    BroadcastOptions,
    RecvOptions,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    SendOptions,
)

__all__ = ["RaygoGroup"]

_OPS = {ReduceOp.SUM: _codes.SUM, ReduceOp.PRODUCT: _codes.PRODUCT, ReduceOp.MIN: _codes.MIN, ReduceOp.MAX: _codes.MAX, ReduceOp.AVERAGE: _codes.AVG}


class _Array:
    """An array of NumPy or a tensor of torch, as an address, a count and a type."""

    __slots__ = ("address", "code", "count", "dtype", "held", "original")

    def __init__(self, array: Any, operation: str, written: bool) -> None:
        self.original = array
        module = type(array).__module__.partition(".")[0]
        if hasattr(array, "data_ptr"):
            if array.device.type != "cpu":
                raise RuntimeError(f"{operation}: the tensor is on {array.device} and the group is for arrays in the CPU's memory: "
                                   "make the group with backend='nccl', or give tensor.cpu()")
            self.held = array if array.is_contiguous() else array.contiguous()
            self.address, self.count, self.dtype = self.held.data_ptr(), array.numel(), str(array.dtype).removeprefix("torch.")
        elif hasattr(array, "__array_interface__"):
            if written and not array.flags.writeable:
                raise ValueError(f"{operation}: the array is read-only, as those that raygo.get returns are, and its values would be replaced: give a copy")
            if not array.dtype.isnative:
                raise TypeError(f"{operation}: the array's bytes are in the other order ({array.dtype.str}): give array.astype(array.dtype.newbyteorder('='))")
            self.held = array if array.flags.c_contiguous else array.copy(order="C")
            self.address, self.count, self.dtype = self.held.ctypes.data, array.size, array.dtype.name
        else:
            raise RuntimeError(f"{operation}: unrecognized tensor type {type(array)!r} ({module}): give an array of NumPy or a tensor of torch")
        try:
            self.code = _codes.DTYPES[self.dtype]
        except KeyError:
            raise TypeError(f"{operation}: arrays of {self.dtype} cannot be exchanged: give one of {', '.join(_codes.DTYPES)}") from None

    @property
    def block(self) -> tuple[int, int]:
        return self.address, self.count

    def finish(self) -> None:
        """Copy what has come into the caller's array, where that was not used itself."""
        if self.held is not self.original:
            if hasattr(self.original, "copy_"):
                self.original.detach().copy_(self.held)
            else:
                self.original[...] = self.held


class RaygoGroup(BaseGroup):
    """One rank of a group; see `BaseGroup`.

    Parameters
    ----------
    world_size, rank, group_name
        As for every group.
    gloo_timeout : int
        Milliseconds that the ranks wait for each other, when the group is made and in every operation.
    """

    def __init__(self, world_size: int, rank: int, group_name: str, gloo_timeout: int = 30000) -> None:
        super().__init__(world_size, rank, group_name)
        seconds = gloo_timeout / 1000
        with Meeting(group_name, world_size, seconds) as meeting:
            self._group = _binding.Group(group_name, rank, world_size, meeting, timeout=seconds, library=_codes.library())
            # Between two barriers: when all have been told all, and before anybody can make a group of the same name again.
            if self._group.nodes > 1:
                meeting.keep([f"{group_name}/net/{other}" for other in range(world_size)])
            self._group.barrier()
            if rank == 0:
                meeting.end()
            self._group.barrier()

    @classmethod
    def backend(cls) -> str:
        """GLOO is what Ray calls the backend for the CPU."""
        return "GLOO"

    def destroy_group(self) -> None:
        """Leave it."""
        self._group.close()

    def allreduce(self, tensor: Any, allreduce_options: AllReduceOptions = AllReduceOptions()) -> None:  # noqa: B008
        """Every rank gets the reduction in place of its own values."""
        array = _Array(tensor, "allreduce", True)
        self._group.allreduce(array.address, array.address, array.count, array.code, _OPS[allreduce_options.reduceOp], _seconds(allreduce_options.timeout_ms))
        array.finish()

    def barrier(self, barrier_options: BarrierOptions = BarrierOptions()) -> None:  # noqa: B008
        """Wait until all ranks are here."""
        self._group.barrier(_seconds(barrier_options.timeout_ms))

    def reduce(self, tensor: Any, reduce_options: ReduceOptions = ReduceOptions()) -> None:  # noqa: B008
        """The root gets the reduction in place of its own values."""
        root = reduce_options.root_rank
        array = _Array(tensor, "reduce", self.rank == root)
        self._group.reduce(array.address, array.address, array.count, array.code, _OPS[reduce_options.reduceOp], root, _seconds(reduce_options.timeout_ms))
        if self.rank == root:
            array.finish()

    def allgather(self, tensor_list: list[Any], tensor: Any, allgather_options: AllGatherOptions = AllGatherOptions()) -> None:  # noqa: B008
        """Every rank gets the arrays of all."""
        own = _Array(tensor, "allgather", False)
        arrays = self._one_for_each(tensor_list, own, "allgather", True)
        self._group.allgather(own.address, [a.block for a in arrays], own.count, own.code, _seconds(allgather_options.timeout_ms))
        for array in arrays:
            array.finish()

    def broadcast(self, tensor: Any, broadcast_options: BroadcastOptions = BroadcastOptions()) -> None:  # noqa: B008
        """Every rank gets the root's values."""
        root = broadcast_options.root_rank
        array = _Array(tensor, "broadcast", self.rank != root)
        self._group.broadcast(array.address, array.count, array.code, root, _seconds(broadcast_options.timeout_ms))
        if self.rank != root:
            array.finish()

    def reducescatter(self, tensor: Any, tensor_list: list[Any],
                      reducescatter_options: ReduceScatterOptions = ReduceScatterOptions()) -> None:  # noqa: B008
        """Every rank gets its piece of the reduction."""
        piece = _Array(tensor, "reducescatter", True)
        arrays = self._one_for_each(tensor_list, piece, "reducescatter", False)
        self._group.reducescatter([a.block for a in arrays], piece.address, piece.count, piece.code, _OPS[reducescatter_options.reduceOp],
                                  _seconds(reducescatter_options.timeout_ms))
        piece.finish()

    def send(self, tensor: Any, send_options: SendOptions) -> None:
        """Send to a rank."""
        array = _Array(tensor, "send", False)
        self._group.send(array.address, array.count, array.code, send_options.dst_rank, 0, _seconds(send_options.timeout_ms))

    def recv(self, tensor: Any, recv_options: RecvOptions) -> None:
        """Receive from a rank."""
        array = _Array(tensor, "recv", True)
        self._group.recv(array.address, array.count, array.code, recv_options.src_rank, 0, _seconds(recv_options.unset_timeout_ms))
        array.finish()

    def _one_for_each(self, tensors: Any, single: _Array, operation: str, written: bool) -> list[_Array]:
        if not isinstance(tensors, (list, tuple)) or len(tensors) != self.world_size:
            got = f"{len(tensors)}" if isinstance(tensors, (list, tuple)) else f"a {type(tensors).__name__}"
            raise RuntimeError(f"{operation}: the group {self.group_name!r} has {self.world_size} ranks and needs a list of as many arrays, not {got}")
        arrays = [_Array(t, operation, written) for t in tensors]
        for i, array in enumerate(arrays):
            if array.code != single.code:
                raise TypeError(f"{operation}: array {i} of the list is of {array.dtype} and the single one of {single.dtype}: all must be of one type")
        return arrays


def _seconds(timeout: timedelta) -> float | None:
    seconds = timeout.total_seconds()
    return seconds if seconds > 0 else None
