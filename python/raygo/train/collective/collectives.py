"""barrier, and rank 0's value for all."""
from __future__ import annotations

from typing import TypeVar

from raygo.train import _session
from raygo.train.error import SessionMisuseError

__all__ = ["barrier", "broadcast_from_rank_zero"]

T = TypeVar("T")


def broadcast_from_rank_zero(data: T) -> T:
    """Rank 0's `data`, on all workers; every worker has to call it.

    Parameters
    ----------
    data : object
        Of rank 0; what others give is not looked at.
    """
    if _session.current is None:
        raise SessionMisuseError("broadcast_from_rank_zero is meant for the training function of a trainer")
    given = data if _session.current.place.world_rank == 0 else None
    got: T = _session.current.together("broadcast_from_rank_zero", given)
    return got


def barrier() -> None:
    """Wait until all workers are here."""
    if _session.current is None:
        raise SessionMisuseError("barrier is meant for the training function of a trainer")
    _session.current.together("barrier")
