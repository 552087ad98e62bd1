"""The functions of the package: values, waiting, ending, and what the session consists of."""

from __future__ import annotations

import sys
from _thread import get_ident

from raygo import _binding, _session
from raygo._ids import ObjectRef
from raygo._init import ensure

TYPE_CHECKING = False  # not imported: typing would take longer than the rest of the package
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from raygo.actor import ActorHandle

_EXPLAIN_AFTER_S = 10.0  # a wait without a deadline says then, once, what it waits for
_MAIN = get_ident()  # a package is imported by the main thread; if not, only the remark above is missing
_get, _get_one, _get_now, _put = _binding.get, _binding.get_one, _binding.get_now, _binding.put
_LATER = object()

# ---- values


def put(value: Any, *, _owner: Any = None, _tensor_transport: str | None = None) -> ObjectRef:
    """Store a value.

    Parameters
    ----------
    value
        Anything that can be pickled; a copy is stored. NumPy arrays, Arrow tables and tensors come back as views on it.

    Returns
    -------
    ObjectRef
        A handle that keeps the value stored.

    Raises
    ------
    TypeError
        `value` is itself a reference, or cannot be pickled; the text names the part that cannot.

    Examples
    --------
    >>> raygo.get(raygo.put([1, 2]))  # doctest: +SKIP
    [1, 2]
    """
    if isinstance(value, ObjectRef):
        raise TypeError(
            "Calling 'put' on an ray.ObjectRef is not allowed. If you really want to do this, you can wrap the ray.ObjectRef in a list and call 'put' on it."
        )
    if _owner is not None or _tensor_transport is not None:
        _check_put(_owner, _tensor_transport)
    return _put(value)  # type: ignore[return-value]


def _check_put(owner: Any, transport: str | None) -> None:
    from raygo.actor import ActorHandle

    if owner is not None and not isinstance(owner, ActorHandle):
        raise TypeError(f"The type of owner should be either an instance of ray.actor.ActorHandle or None, got {type(owner)}.")
    if transport not in (None, "object_store", "OBJECT_STORE"):
        raise ValueError(f"_tensor_transport is {transport!r}: raygo stores tensors in the object store only")


def get(object_refs: Any, *, timeout: float | None = None, _use_object_store: bool = False) -> Any:
    """Wait for values and give them.

    Parameters
    ----------
    object_refs
        A reference, or a list of them for a list of values.
    timeout
        Seconds; None waits for as long as it takes, and after ten seconds logs what it waits for.

    Raises
    ------
    GetTimeoutError
        `timeout` passed first; the text says what the value waits for.
    Exception
        What the task raised, as its own type and as `raygo.exceptions.RayTaskError`.

    Examples
    --------
    >>> raygo.get(f.remote(), timeout=5)  # doctest: +SKIP
    """
    if type(object_refs) is ObjectRef:
        if timeout is None and (value := _get_now(object_refs, _LATER)) is not _LATER:
            return value
        read: Callable[[Any, float | None], Any] = _get_one
    else:
        object_refs, read = _check_get(object_refs)
        if read is _passed:
            return object_refs
    if timeout is None and get_ident() == _MAIN and not _binding.is_worker():
        try:
            return read(object_refs, _EXPLAIN_AFTER_S)
        except TimeoutError as error:
            if type(error) is not TimeoutError:  # a task's own
                raise
        _say_waiting(object_refs)
        return read(object_refs, None)
    try:
        return read(object_refs, timeout)
    except TimeoutError as error:
        if type(error) is not TimeoutError:
            raise
    raise _timed_out(object_refs, timeout)


def _passed(refs: Any, timeout: float | None) -> Any:
    return refs


def _check_get(refs: Any) -> tuple[Any, Callable[[Any, float | None], Any]]:
    if isinstance(refs, list):
        for ref in refs:
            if not isinstance(ref, ObjectRef):
                raise TypeError(f"Attempting to call `get` on the value {ref!r}, which is not an ray.ObjectRef.")
        return refs, _get
    if isinstance(refs, ObjectRef):
        return refs, _get_one
    from raygo._generator import ObjectRefGenerator

    if isinstance(refs, ObjectRefGenerator):
        return refs, _passed
    raise ValueError(f"Invalid type of object refs, {type(refs)}, is given. 'object_refs' must either be an ObjectRef or a list of ObjectRefs.")


def _pending(refs: Any) -> list[list[int]]:
    return [[ref._task, ref._index] for ref in _listed(refs) if not _binding.is_ready(ref)]


def _listed(refs: Any) -> list[ObjectRef]:
    return refs if isinstance(refs, list) else [refs]


def _explain(refs: Any) -> str:
    """The engine's account of what a wait for these waits for."""
    from raygo._calls import call

    # What is there may still wait for room to be brought back from disk.
    waiting = _pending(refs)[:20] or [[ref._task, ref._index] for ref in _listed(refs)]
    return str(call("explain", {"objects": waiting}, 5.0)) or "the values came in the meantime"


def _timed_out(refs: Any, timeout: float | None) -> BaseException:
    from raygo.exceptions import GetTimeoutError

    count = len(_listed(refs))
    missing = len(_pending(refs))
    text = f"Get timed out: some object(s) not ready. After {timeout} s {missing} of {count} object(s) were not there"
    try:
        return GetTimeoutError(f"{text}: {_explain(refs)}")
    except Exception as error:  # the timeout is what the caller must see; why it cannot be explained comes second
        return GetTimeoutError(f"{text} (what they wait for cannot be told: {error})")


def _say_waiting(refs: Any) -> None:
    import logging

    try:
        reason = _explain(refs)
    except Exception as error:
        reason = f"what for cannot be told: {error}"
    logging.getLogger("raygo").warning("raygo.get has waited for %.0f s: %s", _EXPLAIN_AFTER_S, reason)


def wait(ray_waitables: Any, *, num_returns: int = 1, timeout: float | None = None, fetch_local: bool = True) -> tuple[list[Any], list[Any]]:
    """Wait until some of the references have their value.

    Parameters
    ----------
    ray_waitables
        References and generators; a generator is ready when its next item is.
    num_returns
        How many must be ready; at most as many are given back as ready.
    timeout
        Seconds; None waits for as long as it takes.

    Returns
    -------
    tuple of list
        Those that are ready and the others, both in the order given.
    """
    from raygo._generator import ObjectRefGenerator

    if isinstance(ray_waitables, (ObjectRef, ObjectRefGenerator)):
        raise TypeError(f"wait() expected a list of ray.ObjectRef or ray.ObjectRefGenerator, got a single {type(ray_waitables).__name__}")
    if not isinstance(ray_waitables, list):
        raise TypeError(f"wait() expected a list of ray.ObjectRef or ray.ObjectRefGenerator, got {type(ray_waitables)}")
    if timeout is not None and not hasattr(timeout, "__float__"):
        raise TypeError(f"The 'timeout' argument is a number of seconds. Received {timeout!r}")
    if timeout is not None and timeout < 0:
        raise ValueError(f"The 'timeout' argument must be nonnegative. Received {timeout}")
    if type(num_returns) is not int:
        if not hasattr(num_returns, "__index__"):  # NumPy's integers have it
            raise TypeError(f"num_returns of wait() is an int, not {num_returns!r}")
        num_returns = num_returns.__index__()
    plain = True
    for ref in ray_waitables:
        if not isinstance(ref, ObjectRef):
            plain = False
            if not isinstance(ref, ObjectRefGenerator):
                raise TypeError(f"wait() expected a list of ray.ObjectRef or ray.ObjectRefGenerator, got list containing {type(ref)}")
    if not ray_waitables:
        return [], []
    if len(set(ray_waitables)) != len(ray_waitables):
        raise ValueError("Wait requires a list of unique object refs.")
    if num_returns <= 0:
        raise ValueError(f"Invalid number of objects to return {num_returns}.")
    if num_returns > len(ray_waitables):
        raise ValueError("num_returns cannot be greater than the number of ray waitables provided to ray.wait.")
    if plain:
        return _binding.wait(ray_waitables, num_returns, timeout)  # type: ignore[return-value]
    return _wait_mixed(ray_waitables, num_returns, timeout)


def _wait_mixed(items: list[Any], num_returns: int, timeout: float | None) -> tuple[list[Any], list[Any]]:
    """`wait` with generators: one is ready as soon as either its next item or its end is."""
    import time

    deadline = None if timeout is None else time.monotonic() + timeout
    watched = [[item] if isinstance(item, ObjectRef) else item._candidates() for item in items]
    while True:
        ready = [any(map(_binding.is_ready, refs)) for refs in watched]
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if sum(ready) >= num_returns or left == 0.0:
            break
        missing = [ref for refs, there in zip(watched, ready, strict=True) if not there for ref in refs]
        _binding.wait(missing, 1, left)
    chosen: list[Any] = []
    others: list[Any] = []
    for item, there in zip(items, ready, strict=True):
        (chosen if there and len(chosen) < num_returns else others).append(item)
    return chosen, others


# ---- ending


def cancel(ray_waitable: Any, *, force: bool = False, recursive: bool = True) -> None:
    """End a task.

    One that has not begun never does; one that runs gets a KeyboardInterrupt. An actor's call is not interrupted, as that would leave the actor half changed:
    it can look at ``raygo.get_runtime_context().is_canceled()``, and a generator ends after its item; an asynchronous one gets an ``asyncio.CancelledError``.
    In any case `raygo.get` raises `raygo.exceptions.TaskCancelledError`.

    Parameters
    ----------
    ray_waitable
        What its call answered with.
    force
        End the worker process if it runs. An actor's call cannot be cancelled so.
    recursive
        Also the tasks that it called.
    """
    from raygo._generator import ObjectRefGenerator

    if isinstance(ray_waitable, ObjectRefGenerator):
        ray_waitable = ray_waitable._generator_ref
    if not isinstance(ray_waitable, ObjectRef):
        raise TypeError(f"ray.cancel() only supported for object refs. For actors, try ray.kill(). Got: {type(ray_waitable)}.")
    if force:
        from raygo._calls import call

        if call("task.is_call", {"task": ray_waitable._task}):
            raise ValueError("force=True is not supported for actor tasks. Cancel it without force, or end the actor with ray.kill().")
    _binding.cancel(ray_waitable, force, recursive)


def kill(actor: ActorHandle, *, no_restart: bool = True) -> None:
    """End an actor at once, whatever it does.

    Parameters
    ----------
    actor
        Its handle.
    no_restart
        False lets ``max_restarts`` bring it back.
    """
    from raygo.actor import ActorHandle

    if not isinstance(actor, ActorHandle):
        raise ValueError(f"ray.kill() only supported for actors. For tasks, try ray.cancel(). Got: {type(actor)}.")
    _binding.kill(actor._raygo_ref, no_restart)


# ---- actors


def get_actor(name: str, namespace: str | None = None) -> ActorHandle:
    """Give a handle on a named actor.

    Parameters
    ----------
    name
        As in ``options(name=…)``.
    namespace
        None: the session's own.

    Raises
    ------
    ValueError
        No live actor has the name.
    """
    from raygo._calls import call
    from raygo.actor import handle_of

    if not name:
        raise ValueError("Please supply a non-empty value to get_actor")
    if namespace == "":
        raise ValueError('"" is not a valid namespace. Pass None to not specify a namespace.')
    ensure()
    space = namespace or _session.get().namespace
    try:
        record = call("actor.lookup", {"name": name, "namespace": space})
    except ValueError:
        record = None
    if record is None:
        raise ValueError(
            f"Failed to look up actor with name '{name}' in namespace '{space}'. This could because 1. You are trying to look up a named actor "
            "you didn't create. 2. The named actor died. 3. You did not use a namespace matching the namespace of the actor."
        )
    return handle_of(record)


def remote(*args: Any, **kwargs: Any) -> Any:
    """Make a function run as tasks, or a class as actors.

    Without arguments it is the decorator; with options it gives one.

    Parameters
    ----------
    num_cpus, num_gpus, memory, resources, accelerator_type, label_selector
        What a task needs while it runs; an actor while it lives.
    num_returns
        Number of values of a task; ``"streaming"`` or ``"dynamic"`` for generators.
    max_retries, retry_exceptions, max_calls
        Of tasks.
    name, namespace, lifetime, get_if_exists, max_restarts, max_task_retries, max_concurrency, concurrency_groups, max_pending_calls
        Of actors.
    scheduling_strategy, runtime_env
        Where, and in what surroundings.

    Examples
    --------
    >>> @raygo.remote(num_cpus=2)  # doctest: +SKIP
    ... def f(x):
    ...     return x
    """
    if len(args) == 1 and not kwargs and callable(args[0]):
        return _make_remote(args[0], {})
    if args or not kwargs:
        from raygo._options import DECORATOR_ERROR

        if args and not callable(args[0]):
            raise TypeError("The @ray.remote decorator must be applied to either a function or a class.")
        raise TypeError(DECORATOR_ERROR)

    def decorate(target: Any) -> Any:
        return _make_remote(target, kwargs)

    return decorate


def _make_remote(target: Any, options: dict[str, Any]) -> Any:
    from raygo import _options

    if isinstance(target, type):
        from raygo.actor import ActorClass

        _options.validate_actor(options, in_options=False)
        return ActorClass._make(target, options)
    from raygo.actor import ActorClass
    from raygo.remote_function import RemoteFunction

    if not callable(target) or isinstance(target, (RemoteFunction, ActorClass)):
        raise TypeError("The @ray.remote decorator must be applied to either a function or a class.")
    from raygo._ids import Language

    _options.validate_task(options, in_options=False)
    return RemoteFunction(Language.PYTHON, target, None, options)


# ---- the session


def nodes() -> list[dict[str, Any]]:
    """The nodes of the session: ``NodeID``, ``Alive``, ``NodeManagerAddress``, ``Resources``, ``Labels`` and more of each."""
    return list(_ask("nodes"))


def cluster_resources() -> dict[str, float]:
    """What all nodes offer, by resource."""
    return dict(_ask("resources.total"))


def available_resources() -> dict[str, float]:
    """What of it is free now."""
    return dict(_ask("resources.available"))


def timeline(filename: str | None = None) -> list[Any] | None:
    """Give what ran when, as events that ``chrome://tracing`` and Perfetto show.

    Parameters
    ----------
    filename
        Write them there as JSON instead, and give None.
    """
    events = list(_ask("timeline"))
    if filename is None:
        return events
    import json

    with open(filename, "w", encoding="utf-8") as out:
        json.dump(events, out)
    return None


def _ask(method: str) -> Any:
    from raygo._calls import call

    ensure()
    return call(method)


def get_gpu_ids() -> list[Any]:
    """The GPUs assigned to the running task or actor: ints, or UUIDs where the node has those."""
    from raygo import runtime_context

    return [int(gpu) if str(gpu).isdigit() else gpu for gpu in runtime_context.task_info().get("gpus") or []]


def get_runtime_context() -> Any:
    """What is known of the job, node, task and actor here; see `raygo.runtime_context.RuntimeContext`."""
    from raygo.runtime_context import get_runtime_context as context

    return context()


def client(address: str | None = None, _deprecation_warn_enabled: bool = True) -> Any:
    """Give a builder for a connection; `init` does the same with less."""
    from raygo.client_builder import ClientBuilder

    return ClientBuilder(address)


def not_initialized() -> BaseException:
    """For the binding: there is no session and none was started."""
    return _session.not_initialized()


def lacks(name: str) -> NoReturn:
    """Raise for a name of Ray's that raygo does not have."""
    raise AttributeError(f"module 'raygo' has no attribute {name!r}: it is not part of raygo, or not yet", name=name, obj=sys.modules["raygo"])
