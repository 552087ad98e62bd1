"""Futures of references.

The binding has one completion queue per process: an eventfd that is readable while tokens of finished references wait.  Every event loop
that awaits a reference watches the descriptor itself, so an await costs no thread; whoever wakes first takes all tokens and passes on those
of other loops.  Only ``future()``, which has no loop, starts a thread, at its first use; it ends with the session.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any

from raygo import _binding, _session

if TYPE_CHECKING:
    import asyncio
    import concurrent.futures
    from collections.abc import Callable

    from raygo._ids import ObjectRef

_tokens = itertools.count(1)
_waiting: dict[int, tuple[Any, Callable[..., None]]] = {}  # token -> (loop or None, what to do)
_loops: dict[int, Any] = {}  # id -> loop that watches the descriptor
_watched = -1  # the descriptor
_thread: threading.Thread | None = None
_stop: int = -1  # write end of the thread's pipe
_lock = threading.Lock()  # guards _loops, _thread, _watched; held for no longer than their change


def when_ready(refs: list[ObjectRef], loop: Any, done: Callable[[BaseException | None], None]) -> None:
    """Run `done` once, as soon as one of the references has its value: in the loop, or in the thread where loop is None.

    Its argument is None; or, when the session ended first, the error that says so.
    """
    fired = False

    def once(error: BaseException | None = None) -> None:
        nonlocal fired
        if not fired:
            fired = True
            for token in mine:
                _waiting.pop(token, None)
            done(error)

    mine: list[int] = []
    _watch(loop)
    for ref in refs:
        token = next(_tokens)
        mine.append(token)
        _waiting[token] = (loop, once)
        if _binding.cq_watch(ref, token):
            once()
            return


def loop_future(ref: ObjectRef) -> asyncio.Future[Any]:
    """`ObjectRef.as_future`."""
    import asyncio

    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def done(error: BaseException | None) -> None:
        if not future.done():
            _fill(future, ref, error)

    when_ready([ref], loop, done)
    return future


def thread_future(ref: ObjectRef) -> concurrent.futures.Future[Any]:
    """`ObjectRef.future`."""
    import concurrent.futures

    future: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def done(error: BaseException | None) -> None:
        if future.set_running_or_notify_cancel():
            _fill(future, ref, error)

    future.object_ref = ref  # type: ignore[attr-defined]
    when_ready([ref], None, done)
    return future


def _fill(future: Any, ref: ObjectRef, ended: BaseException | None) -> None:
    try:
        if ended is not None:
            raise ended
        value = _binding.get_one(ref, None)
    except StopIteration as error:  # asyncio refuses it in a future
        future.set_exception(RuntimeError(f"the task raised StopIteration: {error}"))
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(value)


def _watch(loop: Any) -> None:
    global _watched, _thread, _stop
    if loop is not None and id(loop) in _loops and _loops[id(loop)] is loop:
        return
    with _lock:
        if _watched < 0:
            _watched = _binding.cq_fd()
            if _close not in _session.on_end:
                _session.on_end.append(_close)
        if loop is not None:
            for key in [k for k, other in _loops.items() if other.is_closed()]:
                del _loops[key]
            loop.add_reader(_watched, _take)
            _loops[id(loop)] = loop
        elif _thread is None:
            import os

            stop, _stop = os.pipe()
            _thread = threading.Thread(target=_serve, args=(_watched, stop), name="raygo-futures", daemon=True)
            _thread.start()


def _serve(fd: int, stop: int) -> None:
    import os
    import select

    poll = select.poll()
    poll.register(fd, select.POLLIN)
    poll.register(stop, select.POLLIN)
    while all(ready != stop for ready, _ in poll.poll()):
        _take()
    os.close(stop)


def _take() -> None:
    """Take all finished tokens and see to each where it belongs."""
    here = _running_loop()
    for token in _binding.cq_poll():
        entry = _waiting.pop(token, None)
        if entry is None:
            continue
        loop, done = entry
        if loop is None or loop is here:
            done()
        elif not loop.is_closed():
            try:
                loop.call_soon_threadsafe(done)
            except RuntimeError:  # it was closed in the meantime: nobody awaits there any more
                pass


def _running_loop() -> Any:
    import asyncio

    return asyncio._get_running_loop()


def _close() -> None:
    """The session is about to end: take the descriptor out of all loops and fail what still waits."""
    global _watched, _thread, _stop
    with _lock:
        loops, thread, stop, fd = list(_loops.values()), _thread, _stop, _watched
        _loops.clear()
        _thread, _stop, _watched = None, -1, -1
    left = list(_waiting.values())
    from raygo.exceptions import RaySystemError

    ended = RaySystemError("raygo was shut down while this future waited for its value")
    _waiting.clear()
    here = _running_loop()
    for loop in loops:
        if loop.is_closed():
            continue
        if loop is here or not loop.is_running():
            loop.remove_reader(fd)
        else:
            loop.call_soon_threadsafe(loop.remove_reader, fd)
    for loop, done in left:
        if loop is None or loop is here:
            done(ended)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(done, ended)
    if thread is not None:
        import os

        os.close(stop)
        if thread is not threading.current_thread():
            thread.join(5)
