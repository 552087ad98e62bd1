"""Calls of async actors: asyncio tasks in one event loop, which reads the engine's socket itself.

Calls start in the order they come, as many at a time as the actor's max_concurrency (and its groups') allows; the rest waits here in order.
Answers of one turn of the loop leave in one write.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from raygo import _binding, _worker_errors
from raygo._worker_run import Items, loop_call, values_of
from raygo.exceptions import AsyncioActorExit

if TYPE_CHECKING:
    from raygo._worker_run import Actor, State

_CANCEL, _RESUME, _EXIT = 1, 2, 3  # RB_N_*


class _Group:
    """A concurrency group: how many may run, how many do, who waits."""

    __slots__ = ("free", "waiting")

    def __init__(self, limit: int) -> None:
        self.free = limit
        self.waiting: deque[Any] = deque()


class _Call:
    """One call under way."""

    __slots__ = ("canceled", "group", "resumed", "task", "work")

    def __init__(self, task: Any, group: _Group) -> None:
        self.task = task
        self.group = group
        self.work: asyncio.Task[None] | None = None
        self.canceled = False
        self.resumed: asyncio.Event | None = None  # of a generator that waits for its consumer


class Loop:
    """The event loop of one async actor."""

    def __init__(self, state: State, actor: Actor) -> None:
        self._state = state
        self._actor = actor
        self._groups = [_Group(limit) for limit in actor.limits]
        self._calls: dict[int, _Call] = {}
        self._over = False
        self._closing = False
        self._flushing = False
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)

    def construct(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make the instance inside the loop, so that its constructor may start tasks of its own."""

        async def make() -> Any:
            return cls(*args, **kwargs)

        return self._loop.run_until_complete(make())

    def run(self) -> None:
        """Serve calls until the worker ends."""
        loop = self._loop
        for fd in _binding.worker_loop_begin():
            loop.add_reader(fd, self._pump)
        loop.call_soon(self._pump)
        loop.run_forever()
        _binding.worker_flush()
        self._close()

    def _close(self) -> None:
        self._closing = True
        left = asyncio.all_tasks(self._loop)
        for work in left:
            work.cancel()
        if left:
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())

    # ---- what comes from the engine

    def _pump(self) -> None:
        tasks, notices, over = _binding.worker_pump()
        for task in tasks:
            self._accept(task)
        for kind, number, value in notices:
            self._notice(kind, number, value)
        if over:
            self._over = True
        self._stop_if_over()

    def _accept(self, task: Any) -> None:
        group = self._groups[self._state.group_of(task.template)]
        if group.free > 0:
            group.free -= 1
            self._start(task, group)
        else:
            group.waiting.append(task)

    def _start(self, task: Any, group: _Group) -> None:
        call = self._calls[task.id] = _Call(task, group)
        call.work = self._loop.create_task(self._serve(call))

    def _notice(self, kind: int, number: int, value: int) -> None:
        call = self._calls.get(number)
        if kind == _CANCEL and call is None:
            for group in self._groups:
                for task in group.waiting:
                    if task.id == number:
                        group.waiting.remove(task)
                        task.result((), _worker_errors.CANCELED)
                        return
        elif kind == _CANCEL and call is not None and call.work is not None:
            call.canceled = True
            call.work.cancel()
        elif kind == _RESUME and call is not None and call.resumed is not None:
            call.resumed.set()
        elif kind == _EXIT:
            self._over = True

    def _stop_if_over(self) -> None:
        if self._over and not self._calls:
            self._loop.stop()

    # ---- one call

    async def _serve(self, call: _Call) -> None:
        task = call.task
        template = task.template
        loop_call.set((task.id, template, b"", task.attempt))
        try:
            args, kwargs = task.args()
            if template.asynchronous and not template.generating:
                value = await template.callable(*args, **kwargs)
            else:
                value = self._synchronous(call, template.callable, args, kwargs)
                if call.canceled:
                    raise asyncio.CancelledError
            if template.streaming:
                await self._stream(call, template, value)
            elif template.dynamic or template.generating:
                await self._collect(call, value)
            elif template.num_returns == 1:
                task.result((value,), 0, True)
            else:
                task.result(values_of(template, task.nreturns, value), 0, True)
        except BaseException as exc:
            self._failed(call, exc)
        del self._calls[task.id]
        self._next(call.group)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)
        self._stop_if_over()

    def _synchronous(self, call: _Call, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call what does not await: a cancel that comes meanwhile counts at its end, as asyncio's do."""
        call.task.begin()
        try:
            return function(*args, **kwargs)
        finally:
            call.canceled |= call.task.end()

    async def _collect(self, call: _Call, value: Any) -> None:
        """A generator with a number of values."""
        items = Items(call.task.template, call.task.nreturns)
        try:
            if not hasattr(value, "__aiter__"):
                value = _as_async(value)
            async for item in value:
                if not items.add(item):
                    await value.aclose()
                    break
        except AsyncioActorExit:
            raise
        except Exception as exc:
            items.failed(exc)
        items.answer(self._state, call.task, True)

    def _failed(self, call: _Call, exc: BaseException) -> None:
        task = call.task
        if task.answered:
            raise exc
        if isinstance(exc, asyncio.CancelledError) and self._closing:
            return  # the actor ends: the engine tells the caller so
        if isinstance(exc, asyncio.CancelledError) and call.canceled:
            task.result((), _worker_errors.CANCELED)
        elif _worker_errors.answer(self._state, task, exc, call.canceled):
            self._calls.clear()
            self._calls[task.id] = call  # taken out by whoever called
            self._over = True

    def _next(self, group: _Group) -> None:
        if group.waiting and not self._state.exits:
            self._start(group.waiting.popleft(), group)
        else:
            group.free += 1

    def _flush(self) -> None:
        self._flushing = False
        _binding.worker_flush()

    async def _stream(self, call: _Call, template: Any, value: Any) -> None:
        task, limit, made = call.task, template.backpressure, 0
        task.generate()
        items = value if hasattr(value, "__aiter__") else _as_async(value)
        try:
            async for item in items:
                task.item(made, item)
                made += 1
                taken = task.taken()
                while 0 <= taken and 0 <= limit <= made - taken:
                    call.resumed = asyncio.Event()
                    if (taken := task.taken()) >= 0 and limit <= made - taken:  # it may have come in between
                        _binding.worker_flush()
                        await call.resumed.wait()
                    taken = task.taken()
                if taken < 0:
                    break
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                await close()
        task.result((made,), 0, True)


async def _as_async(items: Any) -> Any:
    """A plain generator's items, with a breath in between: other calls go on."""
    try:
        for item in items:
            yield item
            await asyncio.sleep(0)
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            close()
