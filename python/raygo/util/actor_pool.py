"""A fixed set of actors that share a stream of work."""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import raygo

V = TypeVar("V")

__all__ = ["ActorPool", "V"]


class ActorPool:
    """Hands each value to an actor that is free.

    Parameters
    ----------
    actors : list
        Handles of the actors.

    Examples
    --------
    >>> pool = ActorPool([Worker.remote(), Worker.remote()])                       # doctest: +SKIP
    >>> list(pool.map(lambda actor, v: actor.double.remote(v), [1, 2, 3]))         # doctest: +SKIP
    [2, 4, 6]
    """

    def __init__(self, actors: Iterable[Any]) -> None:
        self._idle: deque[Any] = deque(actors)
        self._running: dict[Any, tuple[int, Any]] = {}   # reference -> (place in the order of submits, actor)
        self._by_place: dict[int, Any] = {}              # place -> reference, those not handed out yet
        self._waiting: deque[tuple[Callable[[Any, Any], Any], Any]] = deque()
        self._next_place = 0                             # of the next submit

    def map(self, fn: Callable[[Any, V], Any], values: Iterable[V]) -> Iterator[Any]:
        """Apply `fn(actor, value)` to each value; results come in the order of the values.

        Results of earlier submits that nobody fetched are dropped.
        """
        self._drop_results()
        for value in values:
            self.submit(fn, value)
        return self._drain(self.get_next)

    def map_unordered(self, fn: Callable[[Any, V], Any], values: Iterable[V]) -> Iterator[Any]:
        """Like `map`, but results come as they are ready."""
        self._drop_results()
        for value in values:
            self.submit(fn, value)
        return self._drain(self.get_next_unordered)

    def submit(self, fn: Callable[[Any, V], Any], value: V) -> None:
        """Run `fn(actor, value)` on a free actor, or as soon as one is free.

        Parameters
        ----------
        fn : callable
            Takes an actor and a value and returns the reference of the call it made.
        value : object
            The second argument.
        """
        if not self._idle:
            self._waiting.append((fn, value))
            return
        actor = self._idle.popleft()
        try:
            ref = fn(actor, value)
        except BaseException:
            self._idle.append(actor)
            raise
        key = tuple(ref) if isinstance(ref, list) else ref
        self._running[key] = (self._next_place, actor)
        self._by_place[self._next_place] = key
        self._next_place += 1

    def has_next(self) -> bool:
        """Whether a submitted value has a result that was not handed out yet."""
        return bool(self._running)

    def has_free(self) -> bool:
        """Whether an actor is free and nothing waits for one."""
        return bool(self._idle) and not self._waiting

    def get_next(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """The oldest result that was not handed out yet, in the order of the submits.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait; without it, as long as it takes.
        ignore_if_timedout : bool
            When the time is up, drop that result instead of leaving it for the next call.

        Raises
        ------
        StopIteration
            No result is left.
        TimeoutError
            The result did not come in time.
        """
        if not self.has_next():
            raise StopIteration("No more results to get")
        place = next(iter(self._by_place))                # the oldest that was not handed out
        ref = self._by_place[place]
        timed_out = False
        if timeout is not None:
            ready, _ = raygo.wait(_flat(ref), num_returns=len(_flat(ref)), timeout=timeout)
            timed_out = len(ready) < len(_flat(ref))
            if timed_out and not ignore_if_timedout:
                raise TimeoutError(f"no result of submit {place} within {timeout} s; it goes on and can be asked for again")
        del self._by_place[place]
        self._free(ref)
        if timed_out:
            raise TimeoutError(f"no result within {timeout} s; it was dropped as ignore_if_timedout asks")
        return raygo.get(list(ref) if isinstance(ref, tuple) else ref)

    def get_next_unordered(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """The result that is ready first.  Parameters and errors are those of `get_next`."""
        if not self.has_next():
            raise StopIteration("No more results to get")
        first = {(_flat(key)[0]): key for key in self._running}
        ready, _ = raygo.wait(list(first), num_returns=1, timeout=timeout)
        if not ready and not ignore_if_timedout:
            raise TimeoutError(f"none of {len(first)} calls was ready within {timeout} s")
        ref = first[ready[0]] if ready else next(iter(self._running))
        place, _ = self._running[ref]
        del self._by_place[place]
        self._free(ref)
        if not ready:
            raise TimeoutError(f"none of {len(first)} calls was ready within {timeout} s; the oldest was dropped as ignore_if_timedout asks")
        return raygo.get(list(ref) if isinstance(ref, tuple) else ref)

    def push(self, actor: Any) -> None:
        """Add an actor.  One that is in the pool already is refused with a ValueError."""
        if actor in self._idle or any(actor == busy for _, busy in self._running.values()):
            raise ValueError("Actor already belongs to current ActorPool")
        self._return(actor)

    def pop_idle(self) -> Any:
        """Take a free actor out of the pool; None when there is none."""
        return self._idle.popleft() if self.has_free() else None

    def _free(self, ref: Any) -> None:
        _, actor = self._running.pop(ref)
        self._return(actor)

    def _return(self, actor: Any) -> None:
        self._idle.append(actor)
        if self._waiting:
            self.submit(*self._waiting.popleft())

    def _drop_results(self) -> None:
        """Forget results that nobody fetched, as map starts from a clean sheet."""
        while self.has_next():
            try:
                self.get_next_unordered()
            except Exception:  # nobody asked for this result, so nobody for its error
                continue

    def _drain(self, take: Callable[[], Any]) -> Iterator[Any]:
        while self.has_next():
            yield take()


def _flat(ref: Any) -> list[Any]:
    return list(ref) if isinstance(ref, tuple) else [ref]
