"""Where the time of training goes: waiting for data, and exchanging gradients.

Data loaders and the collectives' torch backend say what they spend; a training worker's `report` takes what came together since the last
one.  Communication counts while any operation is under way, also beside a backward pass.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any


class StepProfile:
    """The sums of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._data = 0.0
        self._communication = 0.0
        self._under_way = 0
        self._since = 0.0

    def waited_for_data(self, seconds: float) -> None:
        """A batch has come."""
        with self._lock:
            self._data += seconds

    def begin(self) -> None:
        """An operation of a group has started."""
        with self._lock:
            if self._under_way == 0:
                self._since = time.perf_counter()
            self._under_way += 1

    def end(self) -> None:
        """It has ended."""
        with self._lock:
            self._under_way -= 1
            if self._under_way == 0:
                self._communication += time.perf_counter() - self._since

    def take(self) -> tuple[float, float]:
        """Seconds of data and communication since this was last called."""
        with self._lock:
            taken = self._data, self._communication
            self._data = self._communication = 0.0
            return taken


current = StepProfile()


class TimedIterator:
    """An iterator whose waits are counted as data; anything else is asked of the iterator."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator = iterator

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._iterator, name)

    def __iter__(self) -> TimedIterator:
        return self

    def __next__(self) -> Any:
        begin = time.perf_counter()
        try:
            return next(self._iterator)
        finally:
            current.waited_for_data(time.perf_counter() - begin)
