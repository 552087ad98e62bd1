"""Loops over results as they come."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import raygo
from raygo.exceptions import GetTimeoutError

DEFAULT_CHUNK_SIZE = 10
DEFAULT_BACKPRESSURE_SIZE = 100

__all__ = ["DEFAULT_BACKPRESSURE_SIZE", "DEFAULT_CHUNK_SIZE", "as_completed", "map_unordered"]


def _positive(value: int, name: str) -> None:
    if value < 1:
        raise ValueError(f"`{name}` must be >= 1, it is {value}")


def _take_ready(waiting: list[Any], most: int, kwargs: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Blocks for one, then takes at most `most` of those that are ready too."""
    ready, rest = raygo.wait(waiting, num_returns=1, **kwargs)
    if ready and most > 1 and rest:
        more, rest = raygo.wait(rest, num_returns=min(most - 1, len(rest)), **{**kwargs, "timeout": 0})
        ready = ready + more
    return ready, rest


def as_completed(refs: Sequence[Any], *, chunk_size: int = DEFAULT_CHUNK_SIZE, yield_obj_refs: bool = False,
                 **kwargs: Any) -> Iterator[Any]:
    """Yield results in the order in which they become ready.

    Parameters
    ----------
    refs : list of ObjectRef
        What to wait for.
    chunk_size : int
        How many ready results are fetched at once.
    yield_obj_refs : bool
        Yield references instead of values.
    **kwargs
        Passed to `raygo.wait` (`timeout`, `fetch_local`).

    Examples
    --------
    >>> for value in as_completed([work.remote(i) for i in range(3)]):   # doctest: +SKIP
    ...     print(value)
    """
    _positive(chunk_size, "chunk_size")
    if "num_returns" in kwargs:
        raise ValueError("as_completed waits for one result at a time: num_returns cannot be given, use chunk_size")
    waiting = list(refs)
    while waiting:
        ready, waiting = _take_ready(waiting, chunk_size, kwargs)
        if not ready:
            raise GetTimeoutError(
                f"none of {len(waiting)} results was ready within timeout={kwargs.get('timeout')} s")
        yield from ready if yield_obj_refs else raygo.get(ready)


def map_unordered(fn: Any, items: Iterable[Any], *, backpressure_size: int | None = DEFAULT_BACKPRESSURE_SIZE,
                  chunk_size: int = DEFAULT_CHUNK_SIZE, yield_obj_refs: bool = False, **kwargs: Any) -> Iterator[Any]:
    """Apply a remote function to items and yield the results as they become ready.

    Parameters
    ----------
    fn : remote function or actor method
        Called as ``fn.remote(item)``.
    items : iterable
        May be endless: at most `backpressure_size` calls are in flight.
    backpressure_size : int, optional
        None submits everything at once.
    chunk_size, yield_obj_refs, **kwargs
        As for `as_completed`.

    Examples
    --------
    >>> sorted(map_unordered(double, range(3)))       # doctest: +SKIP
    [0, 2, 4]
    """
    _positive(chunk_size, "chunk_size")
    if backpressure_size is not None:
        _positive(backpressure_size, "backpressure_size")
        if backpressure_size < chunk_size:
            raise ValueError(f"`backpressure_size` ({backpressure_size}) must be at least `chunk_size` ({chunk_size})")
    call: Callable[[Any], Any] = fn.remote
    source = iter(items)
    waiting = [call(item) for item in islice(source, backpressure_size)]
    while waiting:
        ready, waiting = _take_ready(waiting, chunk_size, kwargs)
        if not ready:
            raise GetTimeoutError(
                f"none of {len(waiting)} calls was ready within timeout={kwargs.get('timeout')} s")
        waiting += [call(item) for item in islice(source, len(ready))]
        yield from ready if yield_obj_refs else raygo.get(ready)
