"""Values that are made one by one: what a generator task answers with."""

from __future__ import annotations

from types import GenericAlias
from typing import TYPE_CHECKING, Any, ClassVar

from raygo import _binding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raygo._ids import ObjectRef, TaskID


class DynamicObjectRefGenerator:
    """The references of a task with ``num_returns="dynamic"``: all there when the task has ended."""

    def __init__(self, refs: list[ObjectRef]) -> None:
        self._refs = refs

    def __iter__(self) -> Iterator[ObjectRef]:
        while self._refs:
            yield self._refs.pop(0)

    def __len__(self) -> int:
        return len(self._refs)


class ObjectRefGenerator:
    """The references of a streaming task, as it makes them.

    ``next`` and ``async for`` wait for the next item.  A task that raises gives one last reference, whose `raygo.get` raises.
    Dropping the generator stops the task.

    Examples
    --------
    >>> for ref in count.remote(3):  # doctest: +SKIP
    ...     print(raygo.get(ref))
    """

    __class_getitem__: ClassVar[Any] = classmethod(GenericAlias)  # in annotations: ObjectRefGenerator[int]

    def __init__(self, generator_ref: ObjectRef, worker: Any = None) -> None:
        self._generator_ref = generator_ref
        self._task: int = generator_ref._task
        self._session = _binding.generation()
        self._taken = 0
        self._next: ObjectRef | None = None  # of item number _taken
        self._finished = False

    # ---- what is next

    def _candidates(self) -> list[ObjectRef]:
        """The references of which one is ready as soon as `next` has an answer."""
        if self._next is None:
            self._next = _binding.item_ref(self._task, self._taken)  # type: ignore[assignment]
        return [self._next, self._generator_ref]  # type: ignore[list-item]

    def _answer(self) -> ObjectRef | None:
        """The next reference, once one of the candidates is ready; None at the end."""
        item, end = self._candidates()
        failed = False
        if not _binding.is_ready(item):
            # The end is there.  Items were sent before it, but the client keeps only those that were asked for: this one may be on its way.
            try:
                exists = self._taken < _binding.get_one(end, None)
            except Exception:
                failed, exists = True, self._arrives(item)
            if not exists:
                self._finished = True
                self._next = None
                return end if failed else None
            _binding.wait([item], 1, None)
        self._next = None
        self._taken += 1
        _binding.consumed(self._task, self._taken)
        return item

    def _arrives(self, item: ObjectRef) -> bool:
        """Whether the item was made before the task failed: a question to the engine is answered after what was asked for before it."""
        from raygo._calls import call

        _binding.wait([item], 1, 0)
        call("resources.available")
        return _binding.is_ready(item)

    def _wait(self, timeout: float | None) -> bool:
        ready, _ = _binding.wait(self._candidates(), 1, timeout)
        return bool(ready)

    def __iter__(self) -> ObjectRefGenerator:
        return self

    def __next__(self) -> ObjectRef:
        return self._next_sync()

    def _next_sync(self, timeout_s: float | None = None) -> ObjectRef:
        """As ``next``; a nil reference when nothing came within `timeout_s` seconds (None or -1: waits)."""
        if self._finished:
            raise StopIteration
        if not self._wait(None if timeout_s is None or timeout_s < 0 else timeout_s):
            from raygo._ids import ObjectRef

            return ObjectRef.nil()
        ref = self._answer()
        if ref is None:
            raise StopIteration
        return ref

    def __aiter__(self) -> ObjectRefGenerator:
        return self

    async def __anext__(self) -> ObjectRef:
        import asyncio

        from raygo._completions import when_ready

        if self._finished:
            raise StopAsyncIteration
        candidates = self._candidates()
        if not any(map(_binding.is_ready, candidates)):
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()

            def done(error: BaseException | None) -> None:
                if future.done():
                    return
                if error is not None:
                    future.set_exception(error)
                else:
                    future.set_result(None)

            when_ready(candidates, loop, done)
            await future
        ref = self._answer()
        if ref is None:
            raise StopAsyncIteration
        return ref

    # ---- the task

    def completed(self) -> ObjectRef:
        """A reference that is ready when the task has ended; `raygo.get` of it raises what the task raised."""
        return self._generator_ref

    def next_ready(self) -> bool:
        """Whether ``next`` would answer at once with a reference."""
        return not self._finished and self._wait(0)

    def is_finished(self) -> bool:
        """Whether the end was reached."""
        return self._finished

    def task_id(self) -> TaskID:
        """The generator task."""
        return self._generator_ref.task_id()

    # ---- what a plain generator has and a remote one cannot do

    def send(self, value: Any) -> Any:
        """Not possible: the generator runs in another process, ahead of its consumer."""
        raise NotImplementedError("ObjectRefGenerator.send: a remote generator runs ahead of its consumer; nothing can be sent to it")

    def throw(self, value: Any) -> Any:
        """Not possible; see `send`."""
        raise NotImplementedError("ObjectRefGenerator.throw: use raygo.cancel(generator) to end a remote generator")

    def close(self) -> None:
        """Not possible; see `send`."""
        raise NotImplementedError("ObjectRefGenerator.close: drop the generator, or use raygo.cancel(generator)")

    async def asend(self, value: Any) -> Any:
        """Not possible; see `send`."""
        raise NotImplementedError("ObjectRefGenerator.asend: a remote generator runs ahead of its consumer; nothing can be sent to it")

    async def athrow(self, value: Any) -> Any:
        """Not possible; see `send`."""
        raise NotImplementedError("ObjectRefGenerator.athrow: use raygo.cancel(generator) to end a remote generator")

    async def aclose(self) -> None:
        """Not possible; see `send`."""
        raise NotImplementedError("ObjectRefGenerator.aclose: drop the generator, or use raygo.cancel(generator)")

    def __repr__(self) -> str:
        return f"ObjectRefGenerator({self._generator_ref.hex()})"

    def __reduce__(self) -> Any:
        raise TypeError(
            "Serialization of ObjectRefGenerator is not supported: only the process that called the task takes its items. Pass the items' references instead."
        )

    def __del__(self) -> None:
        if not getattr(self, "_finished", True) and self._session == _binding.generation() and _binding.connected():
            _binding.consumed(self._task, -1)
