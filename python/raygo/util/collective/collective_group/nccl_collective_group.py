"""Tensors on GPUs, by NCCL.  Nothing here was run on a GPU."""
from __future__ import annotations

import sys
from typing import Any

from raygo.util.collective import _codes
from raygo.util.collective._meeting import Meeting
from raygo.util.collective.collective_group.base_collective_group import BaseGroup
from raygo.util.collective.collective_group.raygo_group import _OPS
from raygo.util.collective.types import (
    AllGatherOptions,
    AllReduceOptions,
    BarrierOptions,
    BroadcastOptions,
    RecvOptions,
    ReduceOptions,
    ReduceScatterOptions,
    SendOptions,
)

__all__ = ["NCCLGroup"]


class NCCLGroup(BaseGroup):
    """One rank of a group, with one GPU; see `BaseGroup`.  Operations return when they are queued on torch's current stream.

    Parameters
    ----------
    world_size, rank, group_name
        As for every group.
    gloo_timeout : int
        Milliseconds that the ranks wait for each other.

    Raises
    ------
    RuntimeError
        There is no GPU, or no NCCL.
    """

    def __init__(self, world_size: int, rank: int, group_name: str, gloo_timeout: int = 30000) -> None:
        super().__init__(world_size, rank, group_name)
        if not self.check_backend_availability():
            raise RuntimeError(f"init_collective_group({group_name!r}, backend='nccl'): this process sees no GPU that NCCL can use, or has no torch. "
                               "Give the actor num_gpus=1, or backend='gloo' for arrays in the CPU's memory.")
        from raygo._nccl import NcclGroup

        seconds = gloo_timeout / 1000
        with Meeting(group_name, world_size, seconds) as meeting:
            self._group = NcclGroup(group_name, rank, world_size, meeting, seconds)
            # As in RaygoGroup; a barrier here is one of the GPUs, so the host waits for it.
            self.barrier()
            if rank == 0:
                meeting.end()
            self.barrier()

    @classmethod
    def backend(cls) -> str:
        """Ray's name for it."""
        return "NCCL"

    @classmethod
    def check_backend_availability(cls) -> bool:
        """Whether there is a GPU, torch for its tensors, and NCCL."""
        from raygo.util.collective.types import torch_available

        if not torch_available():
            return False
        import torch

        if not torch.cuda.is_available():
            return False
        from raygo._nccl import candidates

        return bool(candidates())

    def destroy_group(self) -> None:
        """Leave it, when what is queued is done."""
        self._group.close()

    def _run(self, kind: str, source: Any, target: Any, count: int, like: Any, op: int = 0, root: int = 0) -> None:
        import torch

        name = str(like.dtype).removeprefix("torch.")
        if name not in _codes.DTYPES:
            raise TypeError(f"{kind}: tensors of {like.dtype} cannot be exchanged: give one of {', '.join(_codes.DTYPES)}")
        stream = torch.cuda.current_stream(like.device).cuda_stream
        self._group.run(kind, source.data_ptr() if source is not None else 0, target.data_ptr() if target is not None else 0, count, _codes.DTYPES[name],
                        op, root, stream)

    def allreduce(self, tensor: Any, allreduce_options: AllReduceOptions = AllReduceOptions()) -> None:  # noqa: B008
        """Every rank gets the reduction in place of its own values."""
        own = _on_gpu(tensor, "allreduce")
        self._run("allreduce", own, own, own.numel(), own, _OPS[allreduce_options.reduceOp])
        _back(tensor, own)

    def barrier(self, barrier_options: BarrierOptions = BarrierOptions()) -> None:  # noqa: B008
        """Wait until all ranks are here."""
        import torch

        one = torch.ones(1, device="cuda")
        self._run("allreduce", one, one, 1, one, _codes.SUM)
        torch.cuda.current_stream(one.device).synchronize()

    def reduce(self, tensor: Any, reduce_options: ReduceOptions = ReduceOptions()) -> None:  # noqa: B008
        """The root gets the reduction in place of its own values."""
        own, root = _on_gpu(tensor, "reduce"), reduce_options.root_rank
        self._run("reduce", own, own if self.rank == root else None, own.numel(), own, _OPS[reduce_options.reduceOp], root)
        if self.rank == root:
            _back(tensor, own)

    def allgather(self, tensor_list: list[Any], tensor: Any, allgather_options: AllGatherOptions = AllGatherOptions()) -> None:  # noqa: B008
        """Every rank gets the tensors of all, which have one size."""
        own = _on_gpu(tensor, "allgather")
        self._one_for_each(tensor_list, "allgather")
        whole = own.new_empty(self.world_size, own.numel())
        self._run("allgather", own, whole, own.numel(), own)
        for target, piece in zip(tensor_list, whole, strict=True):
            target.detach().copy_(piece.view(target.shape))

    def broadcast(self, tensor: Any, broadcast_options: BroadcastOptions = BroadcastOptions()) -> None:  # noqa: B008
        """Every rank gets the root's values."""
        own, root = _on_gpu(tensor, "broadcast"), broadcast_options.root_rank
        self._run("broadcast", own if self.rank == root else None, own, own.numel(), own, root=root)
        _back(tensor, own)

    def reducescatter(self, tensor: Any, tensor_list: list[Any],
                      reducescatter_options: ReduceScatterOptions = ReduceScatterOptions()) -> None:  # noqa: B008
        """Every rank gets its piece of the reduction."""
        import torch

        piece = _on_gpu(tensor, "reducescatter")
        whole = torch.cat([t.reshape(-1) for t in self._one_for_each(tensor_list, "reducescatter")])
        self._run("reducescatter", whole, piece, piece.numel(), piece, _OPS[reducescatter_options.reduceOp])
        _back(tensor, piece)

    def send(self, tensor: Any, send_options: SendOptions) -> None:
        """Send to a rank."""
        own = _on_gpu(tensor, "send")
        self._run("send", own, None, own.numel(), own, root=send_options.dst_rank)

    def recv(self, tensor: Any, recv_options: RecvOptions) -> None:
        """Receive from a rank."""
        own = _on_gpu(tensor, "recv")
        self._run("recv", None, own, own.numel(), own, root=recv_options.src_rank)
        _back(tensor, own)

    def _one_for_each(self, tensors: Any, operation: str) -> list[Any]:
        if not isinstance(tensors, (list, tuple)) or len(tensors) != self.world_size:
            got = f"{len(tensors)}" if isinstance(tensors, (list, tuple)) else f"a {type(tensors).__name__}"
            raise RuntimeError(f"{operation}: the group {self.group_name!r} has {self.world_size} ranks and needs a list of as many tensors, not {got}")
        return [_on_gpu(t, operation) for t in tensors]


def _on_gpu(tensor: Any, operation: str) -> Any:
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(tensor, torch.Tensor) or tensor.device.type != "cuda":
        where = getattr(tensor, "device", type(tensor).__name__)
        raise RuntimeError(f"{operation}: a group with backend='nccl' takes torch's tensors on a GPU, and this is on {where}: "
                           "make the group with backend='gloo' for arrays in the CPU's memory")
    return tensor.contiguous()


def _back(tensor: Any, own: Any) -> None:
    if own is not tensor and own.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(own)
