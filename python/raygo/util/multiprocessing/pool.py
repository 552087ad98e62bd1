"""A pool of processes with the interface of `multiprocessing.Pool`.

Each process is an actor.  A call goes to the actor with the least in flight; a map is cut into chunks, and its function is stored
once and not with each chunk.  An item that fails does not fail its chunk: its error travels as a `PoolTaskError` in its place.
"""
from __future__ import annotations

import collections
import itertools
import os
import queue
import threading
import traceback
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from multiprocessing import TimeoutError
from typing import Any

import raygo
from raygo import cloudpickle

RAY_ADDRESS_ENV = "RAY_ADDRESS"

__all__ = ["AsyncResult", "IMapIterator", "OrderedIMapIterator", "Pool", "PoolActor", "PoolTaskError", "RAY_ADDRESS_ENV", "ResultThread",
           "TimeoutError", "UnorderedIMapIterator", "div_round_up", "ray_get_if_needed", "ray_put_if_needed"]

_CHUNKS_PER_PROCESS = 4      # as multiprocessing: small enough to even out, large enough to be cheap
_AHEAD = 2                   # chunks per process that an imap keeps in flight


class RemoteTraceback(Exception):
    """The traceback of an error in a worker, as text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


class PoolTaskError(Exception):
    """The error of one item."""

    def __init__(self, underlying: BaseException, text: str = "") -> None:
        super().__init__(underlying)
        self.underlying = underlying
        self.text = text

    def __reduce__(self) -> tuple[Any, ...]:
        return PoolTaskError, (self.underlying, self.text)

    def reraise(self) -> Any:
        """Raise the error as the worker did, with its traceback as the cause."""
        raise self.underlying from (RemoteTraceback(self.text) if self.text else None)


def _caught(error: Exception) -> PoolTaskError:
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        cloudpickle.loads(cloudpickle.dumps(error))
    except Exception:        # it does not travel: its type and text do
        return PoolTaskError(RuntimeError(f"{type(error).__name__}: {error}"), text)
    return PoolTaskError(error, text)


class _PoolActor:
    """One process of the pool."""

    def __init__(self, initializer: Callable[..., Any] | None = None, initargs: Iterable[Any] = ()) -> None:
        if initializer is not None:
            initializer(*initargs)

    def ping(self) -> int:
        return os.getpid()

    def run_batch(self, func: Callable[..., Any], batch: Sequence[tuple[tuple[Any, ...], dict[str, Any]]]) -> list[Any]:
        results = []
        for args, kwargs in batch:
            try:
                results.append(func(*[ray_get_if_needed(a) for a in args], **{k: ray_get_if_needed(v) for k, v in kwargs.items()}))
            except Exception as error:
                results.append(_caught(error))
        return results


def PoolActor(*args: Any, **kwargs: Any) -> Any:
    """Refuses a direct call; `PoolActor.remote` makes a process of a pool."""
    raise TypeError("Actors cannot be instantiated directly. Instead of 'PoolActor()', use 'PoolActor.remote()'.")


PoolActor.remote = lambda *a, **k: raygo.remote(num_cpus=0)(_PoolActor).remote(*a, **k)  # type: ignore[attr-defined]


def ray_put_if_needed(obj: Any, registry: list[tuple[Any, Any]] | None = None, registry_hashable: dict[Hashable, Any] | None = None) -> Any:
    """The object stored, once for each registry; references stay what they are."""
    if isinstance(obj, raygo.ObjectRef):
        return obj
    if registry is not None:
        for seen, ref in registry:
            if seen is obj:
                return ref
    ref = raygo.put(obj)
    if registry is not None:
        registry.append((obj, ref))
    return ref


def ray_get_if_needed(obj: Any) -> Any:
    """The value of a reference; anything else as it is."""
    return raygo.get(obj) if isinstance(obj, raygo.ObjectRef) else obj


def div_round_up(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


class ResultThread(threading.Thread):
    """Gathers the results of chunks as they come, and calls back.

    Parameters
    ----------
    object_refs : list
        The chunks so far.
    single_result : bool
        One call and not a map: its only item is the result.
    callback, error_callback : callable, optional
        Called once, in this thread, with the result or the first error.
    total_object_refs : int, optional
        How many chunks there will be, where more are added later.
    """

    END_SENTINEL = None

    def __init__(self, object_refs: Sequence[Any], single_result: bool = False, callback: Callable[[Any], Any] | None = None,
                 error_callback: Callable[[BaseException], Any] | None = None, total_object_refs: int | None = None) -> None:
        super().__init__(name="raygo-pool-result", daemon=True)
        self._single = single_result
        self._callback = callback
        self._error_callback = error_callback
        self._total = len(object_refs) if total_object_refs is None else total_object_refs
        self._results: list[Any] = [None] * self._total
        self._error: BaseException | None = None
        self._new: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._places: dict[Any, int] = {}
        for ref in object_refs:
            self.add_object_ref(ref)

    def add_object_ref(self, object_ref: Any) -> None:
        """One more chunk; END_SENTINEL says that there will be no more."""
        self._new.put(object_ref)

    def run(self) -> None:
        waiting: list[Any] = []
        while len(waiting) < self._total:
            ref = self._new.get()
            if ref is self.END_SENTINEL:
                self._total = len(waiting)
            else:
                self._places[ref] = len(waiting)
                waiting.append(ref)
        while waiting:
            ready, waiting = raygo.wait(waiting, num_returns=1)
            for ref in ready:
                self._take(ref)
        self._call_back()

    def _take(self, ref: Any) -> None:
        try:
            batch = raygo.get(ref)
        except Exception as error:            # the process died, or the chunk could not be read
            batch = [PoolTaskError(error)]
        for item in batch:
            if isinstance(item, PoolTaskError) and self._error is None:
                self._error = item.underlying
        place = self._places.pop(ref)
        self._results[place] = batch
        self._ready.put(place)

    def _call_back(self) -> None:
        if self._error is not None:
            if self._error_callback is not None:
                self._error_callback(self._error)
        elif self._callback is not None:
            results = list(itertools.chain.from_iterable(self._results[:self._total]))
            self._callback(results[0] if self._single else results)

    def got_error(self) -> bool:
        """Whether an item failed so far."""
        return self._error is not None

    def result(self, index: int) -> Any:
        """The items of one chunk."""
        return self._results[index]

    def results(self) -> list[Any]:
        """The items of all chunks, by chunk."""
        return self._results

    def next_ready_index(self, timeout: float | None = None) -> int:
        """The chunk that became ready next."""
        try:
            return self._ready.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"no chunk was ready within {timeout} s") from None


class AsyncResult:
    """What will come of a call or a map.

    Parameters
    ----------
    chunk_object_refs : list
        References of the chunks' results.
    callback, error_callback : callable, optional
        Called with the result, or with the first error.
    single_result : bool
        One call and not a map.
    """

    def __init__(self, chunk_object_refs: Sequence[Any], callback: Callable[[Any], Any] | None = None,
                 error_callback: Callable[[BaseException], Any] | None = None, single_result: bool = False) -> None:
        self._refs = list(chunk_object_refs)
        self._single = single_result
        self._thread: ResultThread | None = None
        if callback is not None or error_callback is not None:
            self._thread = ResultThread(self._refs, single_result, callback, error_callback)
            self._thread.start()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until it is there, or the time is up."""
        if self._thread is not None:         # so that the callback has run too
            self._thread.join(timeout)
        elif self._refs:
            raygo.wait(self._refs, num_returns=len(self._refs), timeout=timeout)

    def ready(self) -> bool:
        """Whether it is there."""
        if self._thread is not None:
            return not self._thread.is_alive()
        return not self._refs or len(raygo.wait(self._refs, num_returns=len(self._refs), timeout=0)[0]) == len(self._refs)

    def successful(self) -> bool:
        """Whether it came without an error; a ValueError while it is not there."""
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        try:
            return not any(isinstance(item, PoolTaskError) for item in self._items())
        except Exception:        # a chunk as a whole failed
            return False

    def get(self, timeout: float | None = None) -> Any:
        """The result, or the first error raised.

        Raises
        ------
        multiprocessing.TimeoutError
            It did not come within `timeout` seconds.
        """
        self.wait(timeout)
        if timeout is not None and not self.ready():
            raise TimeoutError(f"the result did not come within {timeout} s")
        items = self._items()
        for item in items:
            if isinstance(item, PoolTaskError):
                item.reraise()
        return items[0] if self._single else items

    def _items(self) -> list[Any]:
        return list(itertools.chain.from_iterable(raygo.get(self._refs)))


class IMapIterator:
    """Results of an imap: chunks are sent as results are taken, so that the input may be endless."""

    def __init__(self, pool: Pool, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None = None) -> None:
        self._pool = pool
        self._func = ray_put_if_needed(func)
        self._input = iter(iterable)
        self._size = chunksize or 1
        if self._size < 1:
            raise ValueError(f"Chunksize must be 1+, not {chunksize}")
        self._chunks: list[Any] = []            # in flight, oldest first
        self._items: collections.deque[Any] = collections.deque()
        self._input_error: BaseException | None = None
        self._ended = False
        self._fill()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.next()

    def next(self, timeout: float | None = None) -> Any:
        """The next result; `multiprocessing.TimeoutError` when it does not come within `timeout` seconds."""
        while not self._items:
            if not self._chunks:
                if self._input_error is not None:
                    error, self._input_error = self._input_error, None
                    raise error
                raise StopIteration
            ref = self._ready_chunk(timeout)
            self._chunks.remove(ref)
            self._fill()
            self._items.extend(raygo.get(ref))
        item = self._items.popleft()
        return item.reraise() if isinstance(item, PoolTaskError) else item

    def _ready_chunk(self, timeout: float | None) -> Any:
        raise NotImplementedError("IMapIterator is the common part: use OrderedIMapIterator or UnorderedIMapIterator")

    def _fill(self) -> None:
        while not self._ended and len(self._chunks) < _AHEAD * self._pool._processes:
            try:
                batch: list[Any] = [((item,), {}) for item in itertools.islice(self._input, self._size)]
            except Exception as error:      # the input itself failed: raised after the results of what came before
                self._input_error, self._ended = error, True
                return
            if not batch:
                self._ended = True
                return
            self._chunks.append(self._pool._submit(self._func, batch))

    def _wait(self, refs: list[Any], timeout: float | None) -> Any:
        ready, _ = raygo.wait(refs, num_returns=1, timeout=timeout)
        if not ready:
            raise TimeoutError(f"no result within {timeout} s")
        return ready[0]


class OrderedIMapIterator(IMapIterator):
    """Results in the order of the input."""

    def _ready_chunk(self, timeout: float | None) -> Any:
        return self._wait(self._chunks[:1], timeout)


class UnorderedIMapIterator(IMapIterator):
    """Results as they come."""

    def _ready_chunk(self, timeout: float | None) -> Any:
        return self._wait(self._chunks, timeout)


class Pool:
    """A pool of processes.

    Parameters
    ----------
    processes : int, optional
        How many; the CPUs of the session by default.
    initializer, initargs
        Called in each process as it starts.
    maxtasksperchild : int, optional
        A process is replaced after so many chunks.
    context : object
        Taken for compatibility; processes are the session's workers.
    ray_address : str, optional
        Where to connect when no session is running.
    ray_remote_args : dict, optional
        Options of the actors, such as ``{"num_cpus": 1}``.

    Examples
    --------
    >>> with Pool(2) as pool:                  # doctest: +SKIP
    ...     pool.map(abs, [-1, -2])
    [1, 2]
    """

    def __init__(self, processes: int | None = None, initializer: Callable[..., Any] | None = None, initargs: Iterable[Any] | None = None,
                 maxtasksperchild: int | None = None, context: Any = None, ray_address: str | None = None,
                 ray_remote_args: dict[str, Any] | None = None) -> None:
        if processes is not None and processes < 1:
            raise ValueError(f"Processes in the pool must be >0, not {processes}")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if maxtasksperchild is not None and maxtasksperchild < 1:
            raise ValueError(f"maxtasksperchild must be >0, not {maxtasksperchild}")
        if not raygo.is_initialized():
            raygo.init(address=ray_address or os.environ.get(RAY_ADDRESS_ENV))
        cpus = int(raygo.cluster_resources().get("CPU", 0))
        self._processes = processes or max(1, cpus)
        if processes is not None and cpus and processes > cpus and not (ray_remote_args or {}).get("num_cpus", 0) == 0:
            raise ValueError(f"Tried to start a pool with {processes} processes on an existing session with only {cpus} CPUs.")
        self._initializer = initializer
        self._initargs = tuple(initargs or ())
        self._limit = maxtasksperchild
        self._make = raygo.remote(**{"num_cpus": 0, **(ray_remote_args or {})})(_PoolActor)
        self._lock = threading.Lock()
        self._closed = False
        self._actors = [self._start() for _ in range(self._processes)]
        # A failing initializer shows here and not at the first map.
        raygo.get([slot.actor.ping.remote() for slot in self._actors])

    def _start(self) -> _Slot:
        return _Slot(self._make.remote(self._initializer, self._initargs))

    def _submit(self, func: Any, batch: Sequence[tuple[tuple[Any, ...], dict[str, Any]]]) -> Any:
        """Sends a chunk to the process with the least to do."""
        with self._lock:
            for slot in self._actors:
                slot.refresh()
            slot = min(self._actors, key=lambda s: (len(s.flying), s.sent))
            if self._limit is not None and slot.sent >= self._limit:
                slot.retire()
                fresh = self._start()
                self._actors[self._actors.index(slot)] = fresh
                slot = fresh
            ref = slot.actor.run_batch.remote(func, batch)
            slot.flying.append(ref)
            slot.sent += 1
            return ref

    def _check_running(self) -> None:
        if self._closed:
            raise ValueError("Pool not running")

    def apply(self, func: Callable[..., Any], args: tuple[Any, ...] | None = None, kwargs: dict[str, Any] | None = None) -> Any:
        """Call `func(*args, **kwargs)` in the pool and wait for its result."""
        return self.apply_async(func, args, kwargs).get()

    def apply_async(self, func: Callable[..., Any], args: tuple[Any, ...] | None = None, kwargs: dict[str, Any] | None = None,
                    callback: Callable[[Any], Any] | None = None,
                    error_callback: Callable[[BaseException], Any] | None = None) -> AsyncResult:
        """Call `func(*args, **kwargs)` in the pool; the result comes later."""
        self._check_running()
        ref = self._submit(func, [(tuple(args or ()), dict(kwargs or {}))])
        return AsyncResult([ref], callback, error_callback, single_result=True)

    def map(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None = None) -> list[Any]:
        """`[func(item) for item in iterable]`, in parallel."""
        return list(self.map_async(func, iterable, chunksize).get())

    def map_async(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None = None,
                  callback: Callable[[Any], Any] | None = None,
                  error_callback: Callable[[BaseException], Any] | None = None) -> AsyncResult:
        """`map` whose result comes later."""
        return self._map(func, [((item,), {}) for item in iterable], chunksize, callback, error_callback)

    def starmap(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None = None) -> list[Any]:
        """`[func(*item) for item in iterable]`, in parallel."""
        return list(self._map(func, [(tuple(item), {}) for item in iterable], chunksize, None, None).get())

    def starmap_async(self, func: Callable[..., Any], iterable: Iterable[Any], callback: Callable[[Any], Any] | None = None,
                      error_callback: Callable[[BaseException], Any] | None = None) -> AsyncResult:
        """`starmap` whose result comes later."""
        return self._map(func, [(tuple(item), {}) for item in iterable], None, callback, error_callback)

    def imap(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None = 1) -> OrderedIMapIterator:
        """Results one by one, in order; the input is read as results are taken."""
        self._check_running()
        return OrderedIMapIterator(self, func, iterable, chunksize)

    def imap_unordered(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None = 1) -> UnorderedIMapIterator:
        """Results one by one, as they come."""
        self._check_running()
        return UnorderedIMapIterator(self, func, iterable, chunksize)

    def _map(self, func: Callable[..., Any], calls: list[tuple[tuple[Any, ...], dict[str, Any]]], chunksize: int | None,
             callback: Callable[[Any], Any] | None, error_callback: Callable[[BaseException], Any] | None) -> AsyncResult:
        self._check_running()
        if chunksize is not None and chunksize < 1:
            raise ValueError(f"Chunksize must be 1+, not {chunksize}")
        size = chunksize or max(1, div_round_up(len(calls), self._processes * _CHUNKS_PER_PROCESS))
        stored = ray_put_if_needed(func)
        refs = [self._submit(stored, calls[i:i + size]) for i in range(0, len(calls), size)]
        return AsyncResult(refs, callback, error_callback)

    def close(self) -> None:
        """Take no more work; what was sent is done, then the processes end."""
        if not self._closed:
            self._closed = True
            for slot in self._actors:
                slot.retire()

    def terminate(self) -> None:
        """End the processes at once."""
        self._closed = True
        for slot in self._actors:
            raygo.kill(slot.actor)

    def join(self) -> None:
        """Wait until the processes have ended, after `close` or `terminate`."""
        if not self._closed:
            raise ValueError("Pool is still running")
        for slot in self._actors:
            if slot.ending is not None:
                raygo.wait([slot.ending])
            if slot.flying:
                raygo.wait(slot.flying, num_returns=len(slot.flying))

    def __enter__(self) -> Pool:
        self._check_running()
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        self.terminate()

    def __reduce__(self) -> Any:
        raise NotImplementedError("pool objects cannot be passed between processes or pickled")


class _Slot:
    """One process and what it was sent."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.flying: list[Any] = []
        self.sent = 0
        self.ending: Any = None

    def refresh(self) -> None:
        if self.flying:
            _, self.flying = raygo.wait(self.flying, num_returns=len(self.flying), timeout=0)

    def retire(self) -> None:
        """It ends by itself when it has done what it was sent."""
        if self.ending is None:
            self.ending = self.actor.__ray_terminate__.remote()
