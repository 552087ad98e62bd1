"""How the ranks of a group find each other: an actor that keeps what they say."""
from __future__ import annotations

import contextlib
import threading
from typing import Any

import raygo
from raygo.exceptions import GetTimeoutError, RayActorError

_NAMESPACE = "raygo.util.collective"


class _Board:
    """Keys and values; reading waits until there is one.  Every waiting rank takes one of the actor's threads."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: bytes) -> None:
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def get(self, key: str, timeout: float) -> bytes | None:
        with self._changed:
            self._changed.wait_for(lambda: key in self._values, timeout)
            return self._values.get(key)


class Meeting:
    """The store of a group while it is made.

    Parameters
    ----------
    group : str
        The group's name.
    size : int
        How many ranks will ask at once.
    timeout : float
        Seconds.
    """

    def __init__(self, group: str, size: int, timeout: float) -> None:
        self._group, self._size, self._timeout = group, size, timeout
        self._board: Any = None
        self._kept: dict[str, bytes] = {}

    def __enter__(self) -> Meeting:
        options = {"name": self._group, "namespace": _NAMESPACE, "get_if_exists": True, "lifetime": "detached", "num_cpus": 0,
                   "max_concurrency": 2 * self._size + 2}
        self._board = raygo.remote(_Board).options(**options).remote()
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            self.end()      # what was said would mislead the next attempt

    def keep(self, keys: list[str]) -> None:
        """Keep what was said under these keys beyond the end: addresses are asked for at the first message to a rank."""
        self._kept = {key: self.get(key, self._timeout) for key in keys}

    def end(self) -> None:
        """Take the board away: all have met."""
        with contextlib.suppress(RayActorError, ValueError):
            raygo.kill(self._board)

    def set(self, key: str, value: bytes) -> None:
        """Set a key."""
        raygo.get(self._board.set.remote(key, value), timeout=self._timeout)

    def get(self, key: str, timeout: float) -> bytes:
        """The value of a key, when it has one."""
        if key in self._kept:
            return self._kept[key]
        try:
            value = raygo.get(self._board.get.remote(key, timeout), timeout=timeout + 5)
        except GetTimeoutError:
            value = None
        if value is None:
            raise TimeoutError(f"the group {self._group!r}: nobody has said {key!r} within {timeout:g} s")
        return value
