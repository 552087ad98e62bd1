"""Arrays on GPUs, by NCCL."""
from __future__ import annotations

from typing import Any, NoReturn

from raygo.util.collective.collective_group.base_collective_group import BaseGroup

__all__ = ["NCCLGroup"]


class NCCLGroup(BaseGroup):
    """One rank of a group; see `BaseGroup`."""

    def __init__(self, world_size: int, rank: int, group_name: str, gloo_timeout: int = 30000) -> None:
        super().__init__(world_size, rank, group_name)
        raise RuntimeError(f"init_collective_group({group_name!r}, backend='nccl'): this process sees no GPU that NCCL can use. "
                           "For arrays in the CPU's memory give backend='gloo'.")

    @classmethod
    def backend(cls) -> str:
        """Ray's name for it."""
        return "NCCL"

    @classmethod
    def check_backend_availability(cls) -> bool:
        """Not yet."""
        return False

    def _absent(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError

    allreduce = barrier = reduce = allgather = broadcast = reducescatter = send = recv = _absent
