"""A barrier that says who did not come."""
from __future__ import annotations

import array
import time
from typing import Any

from raygo import _binding
from raygo.util.collective import _codes

_HELLO = 8      # bytes of a barrier's number


class Barriers:
    """One rank's monitored barriers, counted: a rank that came too late must not be taken for one that has come to the next."""

    def __init__(self) -> None:
        self._number = 0

    def monitored(self, group: _binding.Group, timeout: float, all_ranks: bool, tag: int) -> None:
        """Wait until all ranks are here.

        Rank 0 hears the barrier's number of each of the others and then tells them how it went: the number, and one byte for each rank.  Messages between
        two ranks break no group when they do not come, so it can go on, as after torch's own.

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
        self._number += 1
        until = time.monotonic() + timeout
        here = self._ask(group, until, timeout, tag) if group.rank else self._preside(group, until, all_ranks, tag)
        missing = [rank for rank in range(group.size) if not here[rank]]
        if missing:
            which = f"rank {missing[0]}" if not all_ranks or len(missing) == 1 else f"ranks {', '.join(map(str, missing))}"
            raise RuntimeError(f"monitored_barrier: {which} of the group {group.name} did not come within {timeout:g} s. "
                               "Look there for what it is doing, or give a longer timeout.")

    def _ask(self, group: _binding.Group, until: float, timeout: float, tag: int) -> bytes:
        hello = array.array("B", self._number.to_bytes(_HELLO, "little"))
        _timed(group.isend(hello.buffer_info()[0], _HELLO, _codes.BYTE, 0, tag, hello), until, timeout, "rank 0 did not come to")
        while True:
            answer = array.array("B", bytes(_HELLO + group.size))
            # Rank 0 may use up its time before it tells what came of it.
            _timed(group.irecv(answer.buffer_info()[0], len(answer), _codes.BYTE, 0, tag, answer), until + timeout, timeout, "rank 0 did not say what came of")
            if _number(answer) >= self._number:
                return answer[_HELLO:].tobytes()
            # Of a barrier for which this rank did not wait so long.

    def _preside(self, group: _binding.Group, until: float, all_ranks: bool, tag: int) -> bytes:
        here = bytearray(group.size)
        here[0] = 1
        heard = {rank: array.array("B", bytes(_HELLO)) for rank in range(1, group.size)}
        works = {rank: _listen(group, rank, buffer, tag) for rank, buffer in heard.items()}
        for rank in works:
            while not here[rank]:
                try:
                    works[rank].wait(max(0.001, until - time.monotonic()))
                except TimeoutError:
                    break
                if (number := _number(heard[rank])) >= self._number:
                    here[rank] = 1
                    continue
                late = bytearray(b"\1" * group.size)
                late[rank] = 0
                _tell(group, rank, number, late, tag)
                works[rank] = _listen(group, rank, heard[rank], tag)
            if not here[rank] and not all_ranks:
                break
        for rank, work in works.items():
            if not here[rank]:
                work.cancel()
        for rank in range(1, group.size):
            if here[rank]:
                _tell(group, rank, self._number, here, tag)
        return bytes(here)


def _number(message: array.array[int]) -> int:
    return int.from_bytes(message[:_HELLO].tobytes(), "little")


def _listen(group: _binding.Group, rank: int, buffer: array.array[int], tag: int) -> Any:
    return group.irecv(buffer.buffer_info()[0], _HELLO, _codes.BYTE, rank, tag, buffer)


def _tell(group: _binding.Group, rank: int, number: int, here: bytearray, tag: int) -> None:
    answer = array.array("B", number.to_bytes(_HELLO, "little") + bytes(here))
    group.isend(answer.buffer_info()[0], len(answer), _codes.BYTE, rank, tag, answer)


def _timed(work: Any, until: float, timeout: float, what: str) -> None:
    try:
        work.wait(max(0.001, until - time.monotonic()))
    except TimeoutError:
        work.cancel()
        raise RuntimeError(f"monitored_barrier: {what} this barrier within {timeout:g} s") from None
