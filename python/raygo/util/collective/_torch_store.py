"""torch's store as the one that a group's ranks find each other through."""
from __future__ import annotations

from datetime import timedelta
from typing import Any


class GroupStore:
    """What `_binding.Group` needs of a store."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def set(self, key: str, value: bytes) -> None:
        """Set a key."""
        self._store.set(key, value)

    def get(self, key: str, timeout: float) -> bytes:
        """The value of a key, when it has one."""
        try:
            self._store.wait([key], timedelta(seconds=max(timeout, 0.001)))     # less is none at all, which is torch's word for no limit
        except RuntimeError as error:
            if "timeout" in str(error).lower() or "timed out" in str(error).lower():
                raise TimeoutError(str(error)) from error
            raise
        return bytes(self._store.get(key))


def incarnation(store: Any, size: int) -> int:
    """How many groups have used this store under this name before: what they left must not be taken for what the ranks of the next one say."""
    return (int(store.add("raygo/ranks", 1)) - 1) // size
