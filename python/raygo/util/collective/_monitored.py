"""A barrier that says who did not come."""
from __future__ import annotations

import array
import time
from typing import Any

from raygo import _binding
from raygo.util.collective import _codes


def monitored_barrier(group: _binding.Group, timeout: float, all_ranks: bool, tag: int) -> None:
    """Wait until all ranks are here.

    Rank 0 hears each of the others and then tells them how it went: one byte for each rank.  Messages between two ranks break no group when they do not come,
    so it can go on, as after torch's own.

    Parameters
    ----------
    group : Group
        Whose ranks.
    timeout : float
        Seconds.
    all_ranks : bool
        Whether to wait for those after the first that did not come, to name them all.
    tag : int
        Of the messages.
    """
    until = time.monotonic() + timeout
    here = array.array("B", bytes(group.size))
    address, _ = here.buffer_info()
    if group.rank:
        hello = array.array("B", [1])
        _timed(group.isend(hello.buffer_info()[0], 1, _codes.BYTE, 0, tag, hello), until, timeout, "rank 0 did not come to")
        # Rank 0 may use up its time before it tells what came of it.
        _timed(group.irecv(address, group.size, _codes.BYTE, 0, tag, here), until + timeout, timeout, "rank 0 did not say what came of")
    else:
        here[0] = 1
        heard = array.array("B", bytes(group.size))
        base, _ = heard.buffer_info()
        works = {rank: group.irecv(base + rank, 1, _codes.BYTE, rank, tag, heard) for rank in range(1, group.size)}
        for rank, work in works.items():
            try:
                work.wait(max(0.001, until - time.monotonic()))
                here[rank] = 1
            except TimeoutError:
                if not all_ranks:
                    break
        for rank, work in works.items():
            if not here[rank]:
                work.cancel()
        for rank in range(1, group.size):
            if here[rank]:
                group.isend(address, group.size, _codes.BYTE, rank, tag, here)
    missing = [rank for rank in range(group.size) if not here[rank]]
    if missing:
        which = f"rank {missing[0]}" if not all_ranks or len(missing) == 1 else f"ranks {', '.join(map(str, missing))}"
        raise RuntimeError(f"monitored_barrier: {which} of the group {group.name} did not come within {timeout:g} s. "
                           "Look there for what it is doing, or give a longer timeout.")


def _timed(work: Any, until: float, timeout: float, what: str) -> None:
    try:
        work.wait(max(0.001, until - time.monotonic()))
    except TimeoutError:
        work.cancel()
        raise RuntimeError(f"monitored_barrier: {what} this barrier within {timeout:g} s") from None
