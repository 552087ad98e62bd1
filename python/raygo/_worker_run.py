"""Running the tasks that are not plain: actors' creation, generators, coroutines, several values, GPUs."""

from __future__ import annotations

import contextvars
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from raygo import _binding, _worker_errors
from raygo._worker_template import Template

#: The call that runs in an asyncio task: an (id, template, context bytes, attempt), as `_binding.running` has for threads.
loop_call: contextvars.ContextVar[tuple[int, Template, bytes, int] | None] = contextvars.ContextVar("raygo_call", default=None)

_LOOP_CALLS = 1000  # max_concurrency of an async actor that does not say


class Actor:
    """The actor that this process holds."""

    def __init__(self, number: int, template: Template, context: dict[str, Any]) -> None:
        self.number = number
        self.template = template
        self.context = context
        self.instance: Any = None
        self.loop: Any = None  # of an async actor
        groups: dict[str, int] = template.fields.get("groups") or {}
        self.groups = {name: i + 1 for i, name in enumerate(groups)}
        limit: int = template.fields.get("max_concurrency") or 0
        self.is_async = bool(template.fields.get("is_async"))
        self.limits = [limit or (_LOOP_CALLS if self.is_async else 1), *groups.values()]

    def built_in(self, name: str) -> Any:
        """The methods that every actor has."""
        if name == "__ray_ready__":
            return lambda: True
        if name == "__ray_call__":
            return lambda function, /, *args, **kwargs: function(self.instance, *args, **kwargs)
        return _terminate

    def text(self) -> str | None:
        """Its own description, where its class gives one."""
        cls = type(self.instance)
        if self.instance is None or cls.__repr__ is object.__repr__:
            return None
        try:
            return repr(self.instance)
        except Exception as error:  # a description that fails must not hide the error it belongs to
            return f"<{cls.__name__}: its repr raised {type(error).__name__}>"

    def hex(self) -> str:
        """Its id."""
        from raygo._ids import actor_hex

        return actor_hex(self.number)


def _terminate() -> None:
    from raygo.exceptions import ActorExit

    raise ActorExit


class State:
    """What the worker knows of itself."""

    def __init__(self) -> None:
        self.actor: Actor | None = None
        self.exits = False  # of its own will

    def group_of(self, template: Template) -> int:
        """The number of the concurrency group that runs it; 0: none named."""
        if self.actor is None:
            return 0
        name = template.fields.get("group")
        if not name:
            method = getattr(type(self.actor.instance), template.method, None)
            name = getattr(method, "__ray_concurrency_group__", None)
        return self.actor.groups.get(name, 0) if name else 0

    def running(self) -> tuple[int, Template, bytes, int] | None:
        """The task of this thread or asyncio task."""
        call = loop_call.get()
        if call is not None:
            return call
        found = _binding.running()
        return None if found is None or found[0] is None else (found[1], found[0], found[3], found[2])

    def current(self) -> int:
        """For the binding: the running call's number on an event loop's thread."""
        call = loop_call.get()
        return call[0] if call is not None else 0

    def info(self) -> dict[str, Any]:
        """`runtime_context.task_info` (PROTOCOL.md)."""
        actor, found = self.actor, self.running()
        out: dict[str, Any] = {}
        if actor is not None:
            out.update(
                actor=actor.number,
                actor_name=actor.template.fields.get("actor_name") or "",
                is_async=actor.is_async,
                instance=actor.instance,
                resources=actor.template.resources,
            )
            out.update(actor.context)  # what this creation was given, where that is more than its template says
        if found is not None:
            number, template, context, attempt = found
            out.update(
                name=template.name,
                function=template.function,
                attempt=attempt,
                canceled=_binding.is_canceled(),
                runtime_env=template.fields.get("runtime_env") or "",
            )
            if actor is None:
                out["resources"] = template.resources
                strategy = template.fields.get("strategy") or {}
                out.update((key, strategy[key]) for key in ("pg", "bundle", "capture") if key in strategy)
                out.update(decode(context))
        return out


def decode(context: bytes) -> dict[str, Any]:
    """An EXEC's context map."""
    if not context:
        return {}
    fields: dict[str, Any] = _binding.unpack(context)
    fields.pop("name", None)
    return fields


def show_gpus(context: dict[str, Any]) -> bool:
    """Let CUDA see the GPUs that were given, unless there are none or the user sees to that."""
    if "gpus" not in context or os.environ.get("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES", "").lower() in ("1", "true"):
        return False
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(_shared or map(str, context["gpus"]))
    return True


_shared: list[str] = []


def share_gpus(gpus: list[str]) -> None:
    """Show this actor GPUs of others too, from now on: those of one group of workers, which exchange memory between them."""
    global _shared
    _shared = list(gpus)
    show_gpus({"gpus": gpus})


@contextmanager
def gpus_visible(context: dict[str, Any]) -> Iterator[None]:
    """Show the task the GPUs that it was given, and no longer than it runs."""
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not show_gpus(context):
        yield
        return
    try:
        yield
    finally:
        if before is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = before


@contextmanager
def captured(group: int | None) -> Iterator[None]:
    """Let what the task submits go to its placement group too, where its strategy says so."""
    if group is None:
        yield
        return
    from raygo._options import CAPTURED

    before, CAPTURED["group"] = CAPTURED["group"], group
    try:
        yield
    finally:
        CAPTURED["group"] = before


# ---- actors


def create_actor(state: State, task: Any) -> Any:
    """Make this process's actor; what it returns tells the loop how its calls run."""
    template: Template = task.template
    actor = Actor(task.id, template, decode(task.context))
    show_gpus(actor.context)
    state.actor = actor
    _name_output(template.name)
    if template.captor:
        from raygo._options import CAPTURED

        CAPTURED["group"] = template.captor  # for as long as it lives
    try:
        args, kwargs = task.args()
        if actor.is_async:
            from raygo._worker_async import Loop

            actor.loop = Loop(state, actor)
            actor.instance = actor.loop.construct(template.callable, args, kwargs)
        else:
            actor.instance = template.callable(*args, **kwargs)
    except BaseException as exc:
        return _worker_errors.answer(state, task, exc)
    text = actor.text()
    if text:
        _name_output(text)
    task.result(())
    if actor.loop is not None:
        return "loop", actor.loop.run
    if actor.limits != [1]:
        return "threads", actor.limits
    return None


def _name_output(name: str) -> None:
    """Show what this process prints as the actor's, whichever thread or coroutine prints it."""
    name = name.partition("\n")[0][:200]

    def current() -> str:
        _binding.task_name()  # it notes that there is something to flush
        return name

    streams: tuple[Any, ...] = (sys.__stdout__, sys.__stderr__)
    for stream in streams:
        if hasattr(stream, "belongs_to"):
            stream.belongs_to(current)


# ---- tasks


def run(state: State, task: Any) -> Any:
    """Run a task or a method's call on this thread."""
    template: Template = task.template
    try:
        with gpus_visible(decode(task.context)), captured(template.captor):
            args, kwargs = task.args()
            if template.streaming:
                stream(task, template, template.callable(*args, **kwargs))
                return None
            value = template.callable(*args, **kwargs)
            if template.asynchronous and not template.generating:
                value = _run_coroutine(value)
            del args, kwargs
            if template.generating or template.dynamic:
                items = Items(template, task.nreturns)
                try:
                    for item in _iterate(value):
                        if not items.add(item):
                            break
                except BaseException as exc:
                    items.failed(exc)
                return items.answer(state, task)
            if template.msgpack:
                task.plain(values_of(template, task.nreturns, value))
            else:
                task.result(values_of(template, task.nreturns, value))
    except BaseException as exc:
        if task.answered:
            raise
        return _worker_errors.answer(state, task, exc)
    return None


def _run_coroutine(coroutine: Any) -> Any:
    import asyncio

    return asyncio.run(coroutine)


def values_of(template: Template, n: int, value: Any) -> tuple[Any, ...]:
    """The values that a task answers with.

    Raises
    ------
    ValueError
        They are not as many as the task's options say.
    """
    if n == 1:
        return (value,)
    if n == 0:
        return ()
    values = _several(template, n, value)
    if len(values) != n:
        raise ValueError(f"Task {template.name} returned {len(values)} objects, but num_returns={n}.")
    return values


def _several(template: Template, n: int, value: Any) -> tuple[Any, ...]:
    try:
        return tuple(value)
    except TypeError:
        raise ValueError(f"Task {template.name} returned one {type(value).__name__}, which cannot be taken apart, but num_returns={n}.") from None


class Items:
    """The values of a generator that does not stream. One that raises has its values so far; the error stands for the others."""

    def __init__(self, template: Template, n: int) -> None:
        self._template = template
        self._limit = -1 if template.dynamic else n
        self._values: list[Any] = []
        self._failure: BaseException | None = None

    def add(self, item: Any) -> bool:
        """Keep an item; False: there are enough."""
        if len(self._values) == self._limit:
            print(f"{self._template.name} yields more values than num_returns={self._limit}: it is ended, and they are dropped", file=sys.stderr)
            return False
        self._values.append(_binding.put(item) if self._template.dynamic else item)
        return True

    def failed(self, failure: BaseException) -> None:
        """The generator raised; that is only shown where all values are there."""
        if len(self._values) == self._limit and isinstance(failure, Exception):
            print(f"{self._template.name} raised {failure!r} behind its last value, which nobody gets", file=sys.stderr)
        else:
            self._failure = failure

    def answer(self, state: State, task: Any, more: bool = False) -> Any:
        """Answer the task; as `_worker_errors.answer`."""
        template, values, failure = self._template, tuple(self._values), self._failure
        self._failure = None  # its traceback leads back to here: what the task held would stay until a collection of garbage
        self._values.clear()
        if failure is None and len(values) < self._limit:
            failure = ValueError(f"Task {template.name} returned {len(values)} objects, but num_returns={self._limit}.")
        if failure is not None and not (template.dynamic and _worker_errors.final(task, failure)):
            return _worker_errors.answer(state, task, failure, before=() if template.dynamic or template.msgpack else values)
        if template.dynamic:
            from raygo._generator import DynamicObjectRefGenerator

            if failure is not None:
                values += (_worker_errors.put(state, task, failure),)
            values = (DynamicObjectRefGenerator(list(values)),)
        if template.msgpack:
            task.plain(values)
        else:
            task.result(values, 0, more)
        return None


def _iterate(value: Any) -> Generator[Any, None, None]:
    if not hasattr(value, "__aiter__"):
        yield from value  # closing this closes a generator
        return
    import asyncio

    items, loop = value.__aiter__(), asyncio.new_event_loop()
    try:
        while True:
            try:
                item = loop.run_until_complete(_next(items))
            except StopAsyncIteration:
                return
            yield item
    finally:
        close = getattr(items, "aclose", None)
        if close is not None:
            loop.run_until_complete(close())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _next(items: Any) -> Any:
    return await items.__anext__()


def stream(task: Any, template: Template, value: Any) -> None:
    """Send a generator's items as they are made, no faster than they are taken; its close is called when nobody wants more."""
    limit = template.backpressure
    task.generate()
    made, items = 0, _iterate(value)
    try:
        for item in items:
            task.item(made, item)
            made += 1
            if task.taken(0 if limit < 0 or made < limit else made - limit + 1) < 0:
                break
    finally:
        items.close()
    task.result((made,))
