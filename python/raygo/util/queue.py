"""A first-in, first-out queue that tasks and actors share."""
from __future__ import annotations

import asyncio
import queue as _stdlib
from collections.abc import Iterable, Sequence
from typing import Any

import raygo

__all__ = ["Empty", "Full", "Queue"]


class Empty(_stdlib.Empty):
    """There is nothing to get."""


class Full(_stdlib.Full):
    """There is no room to put."""


class Queue:
    """A queue held by an actor; pass it to tasks like any value.

    Parameters
    ----------
    maxsize : int
        How many items fit; 0 or less: no limit.
    actor_options : dict, optional
        Options of the actor, as for ``Actor.options(...)``.

    Examples
    --------
    >>> q = Queue(maxsize=2)             # doctest: +SKIP
    >>> q.put("a"); q.get()              # doctest: +SKIP
    'a'
    """

    def __init__(self, maxsize: int = 0, actor_options: dict[str, Any] | None = None) -> None:
        self.maxsize = maxsize
        options = {"num_cpus": 0, **(actor_options or {})}
        self.actor = raygo.remote(**options)(_QueueActor).remote(maxsize)

    def __len__(self) -> int:
        return self.size()

    def size(self) -> int:
        """How many items are in it."""
        return int(raygo.get(self.actor.qsize.remote()))

    def qsize(self) -> int:
        """How many items are in it."""
        return self.size()

    def empty(self) -> bool:
        """Whether there is nothing in it."""
        return bool(raygo.get(self.actor.empty.remote()))

    def full(self) -> bool:
        """Whether it holds `maxsize` items."""
        return bool(raygo.get(self.actor.full.remote()))

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Add an item at the end.

        Parameters
        ----------
        item : object
            What to add.
        block : bool
            Wait for room; otherwise, or when `timeout` seconds have passed, `Full` is raised.
        timeout : float, optional
            None waits for ever.
        """
        raygo.get(self._put(item, block, timeout))

    async def put_async(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """`put` for coroutines."""
        await self._put(item, block, timeout)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Take the first item.

        Parameters
        ----------
        block : bool
            Wait for one; otherwise, or when `timeout` seconds have passed, `Empty` is raised.
        timeout : float, optional
            None waits for ever.
        """
        return raygo.get(self._get(block, timeout))

    async def get_async(self, block: bool = True, timeout: float | None = None) -> Any:
        """`get` for coroutines."""
        return await self._get(block, timeout)

    def put_nowait(self, item: Any) -> None:
        """`put(item, block=False)`."""
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        """`get(block=False)`."""
        return self.get(block=False)

    def put_nowait_batch(self, items: Iterable[Any]) -> None:
        """Add all items, or none and raise `Full` when they do not all fit."""
        if isinstance(items, (str, bytes)) or not isinstance(items, Iterable):
            raise TypeError(f"put_nowait_batch takes a list of items, not {type(items).__name__}")
        raygo.get(self.actor.put_batch.remote(list(items)))

    def get_nowait_batch(self, num_items: int) -> list[Any]:
        """Take `num_items` items, or none and raise `Empty` when there are fewer."""
        if not isinstance(num_items, int) or isinstance(num_items, bool):
            raise TypeError(f"num_items is an int, not {type(num_items).__name__}")
        if num_items < 0:
            raise ValueError(f"'num_items' must be nonnegative, it is {num_items}")
        return list(raygo.get(self.actor.get_batch.remote(num_items)))

    def shutdown(self, force: bool = False, grace_period_s: int = 5) -> None:
        """End the actor; the queue cannot be used afterwards.

        Parameters
        ----------
        force : bool
            At once, with calls under way failing; otherwise it gets `grace_period_s` seconds to end by itself.
        grace_period_s : int
            After that it is ended by force.
        """
        if self.actor is None:
            return
        if not force:
            ending = self.actor.__ray_terminate__.remote()
            raygo.wait([ending], num_returns=1, timeout=grace_period_s)
        raygo.kill(self.actor, no_restart=True)
        self.actor = None

    def _put(self, item: Any, block: bool, timeout: float | None) -> Any:
        return self.actor.put.remote(item, _patience(block, timeout))

    def _get(self, block: bool, timeout: float | None) -> Any:
        return self.actor.get.remote(_patience(block, timeout))


def _patience(block: bool, timeout: float | None) -> float | None:
    """Seconds to wait: 0 not at all, None for ever."""
    if not block:
        return 0.0
    if timeout is not None and timeout < 0:
        raise ValueError(f"'timeout' must be a non-negative number, it is {timeout}")
    return timeout


class _QueueActor:
    """Holds the items.  A call that waits is a coroutine that waits, so puts and gets pass each other."""

    def __init__(self, maxsize: int) -> None:
        self.maxsize = maxsize
        self.queue: asyncio.Queue[Any] = asyncio.Queue(maxsize)

    async def qsize(self) -> int:
        return self.queue.qsize()

    async def empty(self) -> bool:
        return self.queue.empty()

    async def full(self) -> bool:
        return self.queue.full()

    async def put(self, item: Any, patience: float | None) -> None:
        try:
            if patience is None:
                await self.queue.put(item)
            elif patience == 0:
                self.queue.put_nowait(item)
            else:
                await asyncio.wait_for(self.queue.put(item), patience)
        except (asyncio.QueueFull, asyncio.TimeoutError):
            raise Full(f"the queue holds {self.queue.qsize()} of {self.maxsize} items" + _after(patience)) from None

    async def get(self, patience: float | None) -> Any:
        try:
            if patience is None:
                return await self.queue.get()
            if patience == 0:
                return self.queue.get_nowait()
            return await asyncio.wait_for(self.queue.get(), patience)
        except (asyncio.QueueEmpty, asyncio.TimeoutError):
            raise Empty("the queue is empty" + _after(patience)) from None

    async def put_batch(self, items: Sequence[Any]) -> None:
        if self.maxsize > 0 and len(items) + self.queue.qsize() > self.maxsize:
            raise Full(f"Cannot add {len(items)} items to queue of size {self.queue.qsize()} and maxsize {self.maxsize}.")
        for item in items:
            self.queue.put_nowait(item)

    async def get_batch(self, num_items: int) -> list[Any]:
        if num_items > self.queue.qsize():
            raise Empty(f"Cannot get {num_items} items from queue of size {self.queue.qsize()}.")
        return [self.queue.get_nowait() for _ in range(num_items)]


def _after(patience: float | None) -> str:
    return f" after {patience} s" if patience else ""
