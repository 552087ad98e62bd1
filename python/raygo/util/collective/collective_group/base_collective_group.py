"""What a backend's group must offer."""
from __future__ import annotations

from abc import ABCMeta, abstractmethod
from typing import Any

from raygo.util.collective.types import AllGatherOptions, AllReduceOptions, BarrierOptions, BroadcastOptions, ReduceOptions, ReduceScatterOptions

__all__ = ["BaseGroup"]


class BaseGroup(metaclass=ABCMeta):
    """One rank of a group.

    Parameters
    ----------
    world_size, rank : int
        The size of the group and this process's place in it.
    group_name : str
        Its name.
    """

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        self._world_size = world_size
        self._rank = rank
        self._group_name = group_name

    @property
    def rank(self) -> int:
        """This process's place."""
        return self._rank

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return self._world_size

    @property
    def group_name(self) -> str:
        """Its name."""
        return self._group_name

    def destroy_group(self) -> None:  # noqa: B027 - those that hold nothing have nothing to do
        """Leave it."""

    @classmethod
    def backend(cls) -> str:
        """The backend's name."""
        raise NotImplementedError(f"{cls.__name__} does not say its backend's name")

    @classmethod
    def check_backend_availability(cls) -> bool:
        """Whether it works in this process."""
        return True

    @abstractmethod
    def allreduce(self, tensor: Any, allreduce_options: AllReduceOptions = AllReduceOptions()) -> None:  # noqa: B008 - Ray's signature
        """See `raygo.util.collective.allreduce`."""

    @abstractmethod
    def barrier(self, barrier_options: BarrierOptions = BarrierOptions()) -> None:  # noqa: B008
        """See `raygo.util.collective.barrier`."""

    @abstractmethod
    def reduce(self, tensor: Any, reduce_options: ReduceOptions = ReduceOptions()) -> None:  # noqa: B008
        """See `raygo.util.collective.reduce`."""

    @abstractmethod
    def allgather(self, tensor_list: list[Any], tensor: Any, allgather_options: AllGatherOptions = AllGatherOptions()) -> None:  # noqa: B008
        """See `raygo.util.collective.allgather`."""

    @abstractmethod
    def broadcast(self, tensor: Any, broadcast_options: BroadcastOptions = BroadcastOptions()) -> None:  # noqa: B008
        """See `raygo.util.collective.broadcast`."""

    @abstractmethod
    def reducescatter(self, tensor: Any, tensor_list: list[Any],
                      reducescatter_options: ReduceScatterOptions = ReduceScatterOptions()) -> None:  # noqa: B008
        """See `raygo.util.collective.reducescatter`."""

    @abstractmethod
    def send(self, tensor: Any, send_options: Any) -> None:
        """See `raygo.util.collective.send`."""

    @abstractmethod
    def recv(self, tensor: Any, recv_options: Any) -> None:
        """See `raygo.util.collective.recv`."""
