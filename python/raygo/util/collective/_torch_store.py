"""torch's store as the one that a group's ranks find each other through."""
from __future__ import annotations

import time
import uuid
from datetime import timedelta
from typing import Any

from raygo import _binding

_SLICE = 1.0            # seconds: torch's stores cannot be interrupted while they wait
_TIMED_OUT = 2          # RAYGO_ETIMEDOUT
_WITHDRAWN = b"-"


class GroupStore:
    """What `_binding.Group` needs of a store."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def set(self, key: str, value: bytes) -> None:
        """Set a key."""
        self._store.set(key, value)

    def get(self, key: str, timeout: float) -> bytes:
        """The value of a key, when it has one."""
        end = time.monotonic() + timeout
        while True:
            left = end - time.monotonic()
            try:
                self._store.wait([key], timedelta(seconds=max(min(left, _SLICE), 0.001)))       # less is none at all, which is torch's word for no limit
                return bytes(self._store.get(key))
            except RuntimeError as error:
                if "timeout" not in str(error).lower() and "timed out" not in str(error).lower():
                    raise
                if left <= _SLICE:
                    raise TimeoutError(str(error)) from error


def agree(store: Any, group: str, rank: int, size: int, timeout: float) -> int:
    """The number of the group that these ranks are about to make: what others left in the store must not be taken for what its ranks say.

    A store may have been used under this name before, by groups that were made and by some that were not, of which each rank may have tried another number of
    times.  So each rank asks anew, under a number of its own, and takes back what it asked when it gives up; rank 0 answers the latest askings of all.

    Parameters
    ----------
    store : Store
        torch's.
    group : str
        Its name, for messages.
    rank, size : int
        This rank, and how many there are.
    timeout : float
        Seconds.
    """
    asks = GroupStore(store)
    end = time.monotonic() + timeout
    if rank:
        return _ask(store, asks, group, rank, end, timeout)
    found: dict[int, tuple[int, bytes]] = {}
    while len(found) < size - 1:
        missing = [other for other in range(1, size) if other not in found]
        for other in missing:
            try:
                found[other] = _latest(store, asks, other, end)
            except TimeoutError:
                late = [other] + [r for r in missing if r > other and not _is_there(store, asks, r)]
                raise _absent(group, f"of {size} ranks, {len(late)} did not come in time ({', '.join(map(str, late))})", late[0], timeout) from None
        # Some may have given up while others were waited for.
        found = {other: ask for other, ask in found.items() if asks.get(f"raygo/ask/{other}/{ask[0]}", 1) == ask[1]}
    number = int(store.add("raygo/groups", 1)) - 1
    for other, (count, word) in found.items():
        store.add(f"raygo/answered/{other}", count - _count(store, f"raygo/answered/{other}"))
        asks.set(f"raygo/answer/{word.decode()}", str(number).encode())
    return number


def _ask(store: Any, asks: GroupStore, group: str, rank: int, end: float, timeout: float) -> int:
    word = uuid.uuid4().hex.encode()
    mine = f"raygo/ask/{rank}/{_count(store, f'raygo/asked/{rank}') + 1}"
    asks.set(mine, word)        # before it is counted: who is killed between is overwritten by its successor
    store.add(f"raygo/asked/{rank}", 1)
    try:
        return int(asks.get(f"raygo/answer/{word.decode()}", end + 1 - time.monotonic()))
    except TimeoutError:
        asks.set(mine, _WITHDRAWN)
        raise _absent(group, f"rank {rank} waited for rank 0 in vain: it, or a rank that it waits for, did not come in time", 0, timeout) from None
    except BaseException:
        asks.set(mine, _WITHDRAWN)
        raise


def _latest(store: Any, asks: GroupStore, rank: int, end: float) -> tuple[int, bytes]:
    """What a rank asked last, with its number, when it has asked and not taken it back."""
    count = _count(store, f"raygo/answered/{rank}") + 1
    while True:
        count = max(count, _count(store, f"raygo/asked/{rank}"))
        word = asks.get(f"raygo/ask/{rank}/{count}", end - time.monotonic())
        if word != _WITHDRAWN:
            return count, word
        count += 1


def _is_there(store: Any, asks: GroupStore, rank: int) -> bool:
    try:
        _latest(store, asks, rank, time.monotonic())
    except TimeoutError:
        return False
    return True


def _count(store: Any, key: str) -> int:
    return int(store.add(key, 0))


def _absent(group: str, what: str, rank: int, timeout: float) -> _binding.GroupError:
    text = f"Group {group} was not made within {timeout:g} s: {what}. Start them all with the same name, size and store, or allow more time."
    return _binding.GroupError(text, _TIMED_OUT, rank)
