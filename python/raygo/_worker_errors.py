"""Exceptions of tasks as answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raygo import _binding, _session, _status
from raygo._remote_error import exit_code
from raygo.exceptions import ActorExit, AsyncioActorExit, RayTaskError, task_error, task_exit

if TYPE_CHECKING:
    from raygo._worker_run import State

OK, ERROR, RETRY, CANCELED, EXIT_ACTOR = range(5)  # rg_result_status
_EXITS = (ActorExit, AsyncioActorExit)
_ERROR_BLOB = 16  # RG_B_ERROR


def answer(state: State, task: Any, exc: BaseException, canceled: bool | None = None, before: tuple[Any, ...] = ()) -> Any:
    """Answer a task that ended by an exception; what it returns is for the loop (True: the process ends).

    Parameters
    ----------
    state, task
        The worker, and what it ran.
    exc
        What came out of the user's code, or what kept it from beginning.
    canceled
        Whether somebody cancelled it; None: ask the loop.
    before
        The first of its values, where only the others are missing.
    """
    template = task.template
    if isinstance(exc, KeyboardInterrupt) and (_binding.is_canceled() if canceled is None else canceled):
        task.result((), CANCELED)
        return None
    if state.actor is not None and isinstance(exc, _EXITS):
        return exit_actor(state, task)
    if state.actor is not None and isinstance(exc, SystemExit) and template.kind == "method":
        return _system_exit(state, task, exc)
    status = RETRY if _is_retried(task, exc) else ERROR
    error = _error(state, task, exc)
    template = template or exc.__dict__.pop("raygo_template", None)
    if template is not None and template.msgpack and template.kind != "actor":
        task.fault(_as_text(error, exc), status)
    else:
        send(task, error, status, before)
    return None


def _is_retried(task: Any, exc: BaseException) -> bool:
    template = task.template
    return bool(template is not None and template.retry and isinstance(exc, template.retry_types) and task.retries_left)


def final(task: Any, exc: BaseException) -> bool:
    """Whether it is an error of the user's that the task is not run again for."""
    return isinstance(exc, Exception) and not isinstance(exc, _EXITS) and not _is_retried(task, exc)


def put(state: State, task: Any, exc: BaseException) -> Any:
    """Store the error that a task raised; the reference's `get` raises it."""
    from raygo import _serialization

    return _binding.put_blob(_serialization.dumps(_error(state, task, exc)), _ERROR_BLOB)


def _as_text(error: RayTaskError, exc: BaseException) -> bytes:
    """The engine's kind of error map, which callers of other languages read (PROTOCOL.md, SYSERR)."""
    code = _status.ETASKEXIT if isinstance(exc, SystemExit) else _status.ETASK
    fields = {"code": code, "type": type(exc).__qualname__, "message": error.traceback_str.strip(), "task_name": error.function_name, "pid": error.pid}
    return _binding.pack(fields)


def exit_actor(state: State, task: Any) -> bool:
    """The actor wants to end: the last answer of this process."""
    task.result((), EXIT_ACTOR)
    state.exits = True
    return True


def _system_exit(state: State, task: Any, exc: SystemExit) -> bool:
    """End the actor as Ray does: for good after ``sys.exit(0)``, else as a process that ended with that code, which max_restarts may bring back."""
    code = exit_code(exc)
    if code == 0:
        return exit_actor(state, task)
    import os
    import traceback

    from raygo._worker import finish

    traceback.print_exception(exc)  # its last lines become part of what the callers are told
    _binding.worker_flush()
    finish(code)
    os._exit(code)


def send(task: Any, error: RayTaskError, status: int, before: tuple[Any, ...] = ()) -> None:
    """Answer with an error, in a poorer form when the good one cannot be sent."""
    try:
        task.error(error, status, before)
    except Exception as why:
        bare = RayTaskError(
            error.function_name,
            f"{error.traceback_str}\n(The exception itself could not be sent: {type(why).__name__}: {why})",
            None,
            None,
            error.pid,
            error.ip,
        )
        task.error(bare, status)


def _error(state: State, task: Any, exc: BaseException) -> RayTaskError:
    template = task.template
    name = template.name if template is not None else "task"
    if template is not None and template.kind == "actor":
        name += ".__init__"
    ip = _session.current.node_ip if _session.current is not None else None
    if isinstance(exc, SystemExit):
        return task_exit(exc, name, ip=ip)
    actor = state.actor
    if actor is None:
        return task_error(exc, name, ip=ip)
    return task_error(exc, name, ip=ip, actor_repr=actor.text(), actor_id=actor.hex())
