"""How an exception gets from the process that raised it to the one that asked for the value.

An exception of the user's is pickled so that it always comes back. Its class and its state travel apart from the text, in bytes of
their own: when they cannot be pickled, or the reader lacks the module, the type's name, the message and the traceback still arrive.
Rebuilding does not call the class's ``__init__``: pickle's way does, with ``args``, and fails on every exception whose
constructor takes something else (and adds the same prefix twice on others).
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, cast

from raygo import _status

if TYPE_CHECKING:
    from raygo.exceptions import RayTaskError

_PICKLING = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")


# ---- the side that raised


def task_error(
    exc: BaseException,
    function_name: str,
    *,
    pid: int | None = None,
    ip: str | None = None,
    actor_repr: str | None = None,
    actor_id: str | None = None,
) -> RayTaskError:
    """Make what stands for a task's value when its code raised `exc`.

    Parameters
    ----------
    exc
        What was caught. An error of another task that went through this one keeps that task's cause.
    function_name
        As the user knows the task: ``f``, or ``Counter.add`` for a method.
    pid, ip, actor_repr, actor_id
        Where it happened.
    """
    from raygo.exceptions import RayTaskError

    cause = exc.cause if isinstance(exc, RayTaskError) and exc.cause is not None else exc
    return RayTaskError(function_name, _traceback_text(exc), cause, None, pid or os.getpid(), ip, actor_repr, actor_id)


def task_exit(exc: SystemExit, function_name: str, *, pid: int | None = None, ip: str | None = None) -> RayTaskError:
    """Make the error of a task that called ``sys.exit``: final, with the code it gave."""
    from raygo.exceptions import RayTaskError

    code = exc.code if isinstance(exc.code, int) or exc.code is None else repr(exc.code)
    said = f"SystemExit: the task called sys.exit({'' if code is None else code}); its exit code is {exit_code(exc)}."
    said += " A task that exits by its own choice is not retried."
    return RayTaskError(function_name, f"{_traceback_text(exc).rstrip()}\n{said}", exc, None, pid or os.getpid(), ip)


def exit_code(exc: SystemExit) -> int:
    """What the process would have ended with."""
    if exc.code is None:
        return 0
    return exc.code if isinstance(exc.code, int) else 1


def _traceback_text(exc: BaseException) -> str:
    """The traceback from the user's first frame on."""
    import traceback

    here = os.path.dirname(os.path.abspath(__file__)) + os.sep
    frames = exc.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(here + "_worker"):
        frames = frames.tb_next
    try:
        return "".join(traceback.format_exception(type(exc), exc, frames or exc.__traceback__))
    except Exception as error:  # an exception whose __str__ raises must not hide the one it stands for
        return f"{type(exc).__qualname__}: (its text cannot be had: {type(error).__name__}: {error})\n"


def reduce_task_error(error: RayTaskError) -> tuple[Any, ...]:
    """`RayTaskError.__reduce__`, also of the dual types."""
    from raygo.exceptions import RayTaskError

    cause = error.cause
    named = f"{type(cause).__name__}: {_text(cause)}" if cause is not None else ""
    fields = (error.function_name, error.traceback_str, error.proctitle, error.pid, error.ip, error.actor_repr, error.actor_id)
    return rebuild_task_error, (fields, named, pack_exception(cause) if cause is not None else b"", type(error) is not RayTaskError)


def _text(exc: BaseException | None) -> str:
    try:
        return str(exc)
    except Exception as error:
        return f"(its text cannot be had: {type(error).__name__}: {error})"


def pack_exception(exc: BaseException) -> bytes:
    """Pickle an exception so that `unpack_exception` rebuilds it; empty when its class cannot be pickled."""
    from raygo import cloudpickle

    cls = type(exc)
    custom = any(getattr(cls, name, None) is not getattr(_native(cls), name, None) for name in _PICKLING)
    if custom:
        try:
            data = bytes(cloudpickle.dumps(("pickle", exc)))
            cloudpickle.loads(data)
            return data
        except Exception:  # then by parts, which asks less of the class
            pass
    args, state = _parts(exc)
    try:
        return bytes(cloudpickle.dumps(("parts", cls, args, state)))
    except Exception:  # something in it does not pickle: leave that out
        pass
    try:
        return bytes(cloudpickle.dumps(("parts", cls, tuple(map(_or_repr, args)), {k: _or_repr(v) for k, v in state.items()})))
    except Exception:
        return b""


def _native(cls: type) -> type:
    """The nearest class written in C: it knows what the constructor keeps outside ``__dict__``."""
    return next(base for base in cls.__mro__ if base.__module__ == "builtins")


def _parts(exc: BaseException) -> tuple[tuple[Any, ...], dict[str, Any]]:
    native = _native(type(exc))
    reduced: Any = cast(Any, native).__reduce__(exc)
    args = reduced[1] if len(reduced) > 1 else exc.args
    state = reduced[2] if len(reduced) > 2 and isinstance(reduced[2], dict) else dict(exc.__dict__)
    return tuple(args), state


def _or_repr(value: Any) -> Any:
    from raygo import cloudpickle

    try:
        cloudpickle.dumps(value)
    except Exception:
        return repr(value)
    return value


# ---- the side that asked


def unpack_exception(data: bytes) -> BaseException:
    """Rebuild what `pack_exception` wrote; raises whatever keeps it from that."""
    import pickle

    record = pickle.loads(data)
    if record[0] == "pickle":
        return record[1]  # type: ignore[no-any-return]
    _, cls, args, state = record
    error = _allocate(cls, args)
    for key, value in state.items():
        try:
            setattr(error, key, value)
        except AttributeError:  # a property without a setter: it is computed from the rest
            pass
    return error


def _allocate(cls: type[Any], args: tuple[Any, ...]) -> Any:
    """An instance with the fields that the native base keeps, without the class's own constructor."""
    native = _native(cls)
    try:
        error = cls.__new__(cls, *args)
    except Exception:
        try:
            error = native.__new__(cls, *args)
        except TypeError:  # MemoryError's, which Python refuses to a class whose first base has another
            error = BaseException.__new__(cls, *args)
    cast(Any, native).__init__(error, *args)
    return error


def rebuild_task_error(fields: tuple[Any, ...], named: str, cause_bytes: bytes, dual: bool) -> RayTaskError:
    """Undo `reduce_task_error`."""
    from raygo.exceptions import RayTaskError, UnserializableException

    name, trace, proctitle, pid, ip, actor_repr, actor_id = fields
    cause: BaseException | None = None
    if named:
        try:
            if not cause_bytes:
                raise TypeError("it cannot be pickled")
            cause = unpack_exception(cause_bytes)
        except Exception as why:
            cause = UnserializableException(f"{named}\n(The exception itself stayed behind: {why})")
    error = RayTaskError(name, trace, cause, proctitle, pid, ip, actor_repr, actor_id)
    return error.as_instanceof_cause() if dual else error


_duals: dict[int, tuple[Any, type]] = {}  # id of the cause's class -> (weak reference to it, the dual class)


def dual_instance(error: RayTaskError) -> RayTaskError:
    """`RayTaskError.as_instanceof_cause`."""
    from raygo.exceptions import RayTaskError

    cause = error.cause
    if type(error) is not RayTaskError or not isinstance(cause, Exception) or isinstance(cause, RayTaskError) or issubclass(RayTaskError, type(cause)):
        return error
    try:
        cls = _dual_class(type(cause))
        args, _ = _parts(cause)
        dual: Any = _allocate(cls, args)
        dual.args = cause.args
        dual.__dict__.update(error.__dict__)
    except Exception:  # a class that cannot be subclassed, or whose layout does not mix: the plain error says as much
        return error
    return dual  # type: ignore[no-any-return]


def _dual_class(cause_cls: type) -> type:
    import weakref

    from raygo.exceptions import RayTaskError

    known = _duals.get(id(cause_cls))
    if known is not None and known[0]() is cause_cls:
        return known[1]

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        """Nothing: `dual_instance` fills it."""

    def fall_back(self: Any, name: str) -> Any:
        if name == "cause" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        return getattr(self.cause, name)

    name = f"RayTaskError({cause_cls.__name__})"
    body = {
        "__init__": init,
        "__getattr__": fall_back,
        "__module__": "raygo.exceptions",
        "__qualname__": name,
        "__str__": RayTaskError.__str__,
        "__repr__": _dual_repr,
    }
    dual: type = type(cause_cls)(name, (RayTaskError, cause_cls), body)  # the cause's metaclass, as a class statement would choose
    key = id(cause_cls)
    _duals[key] = (weakref.ref(cause_cls, lambda _: _duals.pop(key, None)), dual)
    return dual


def _dual_repr(self: RayTaskError) -> str:
    return f"{type(self).__name__}({self.cause!r})"


def make_error(value: Any) -> BaseException:
    """Turn the value of an error blob into what is raised: called by the binding."""
    from raygo.exceptions import RaySystemError, RayTaskError

    if isinstance(value, RayTaskError):
        return value.as_instanceof_cause()
    if isinstance(value, BaseException):
        return value
    return RaySystemError(f"an error value held a {type(value).__name__} in place of an exception: {value!r}")


# ---- the engine's own errors


def raise_syserr(data: bytes) -> BaseException:
    """Make the exception of an engine's error map (PROTOCOL.md, SYSERR): called by the binding, which raises it."""
    from raygo._calls import unpack

    return from_syserr(unpack(data))


def from_syserr(err: dict[str, Any]) -> BaseException:
    """As `raise_syserr`, from the decoded map."""
    from raygo import exceptions as x
    from raygo._ids import object_hex

    code = err.get("code", _status.EINTERNAL)
    text = _with_stderr(str(err.get("message") or ""), err.get("stderr"))
    if code in (_status.EACTORDIED, _status.EACTORUNAVAILABLE):
        return _actor_error(code, text, err)
    if code in (_status.EOBJECTLOST, _status.EOWNERDIED, _status.EREFFREED, _status.EOBJECTFREED):
        task, index = err.get("object") or (0, 0)
        lost: type[x.ObjectLostError] = getattr(x, _status.CAUSES[code][1])
        return lost(object_hex(task, index), None, "", text or None)
    if code == _status.EREBUILD:
        task, index = err.get("object") or (0, 0)
        return x.ObjectReconstructionFailedError(object_hex(task, index), err.get("reason"), text or None)
    if code == _status.ECANCELED:
        return x.TaskCancelledError(None, text or None)
    if code in (_status.ETASKEXIT, _status.ETASK):
        return x.RayTaskError(str(err.get("task_name") or "task"), text, _cause(err), None, err.get("pid") or None)
    return by_code(code, text)


def by_code(code: int, text: str) -> BaseException:
    """The exception of a status code with this text."""
    import builtins

    from raygo import exceptions as x

    name = _status.CAUSES.get(code, ("", "RaySystemError", ""))[1]
    cls: Any = getattr(x, name, None) or getattr(builtins, name, RuntimeError)
    made: BaseException = cls(text)
    return made


def _actor_error(code: int, text: str, err: dict[str, Any]) -> BaseException:
    from raygo import exceptions as x
    from raygo._ids import actor_hex

    actor_id = actor_hex(err["actor"]) if err.get("actor") else None
    if code == _status.EACTORUNAVAILABLE:
        return x.ActorUnavailableError(text, actor_id)
    cause = _cause(err)
    if isinstance(cause, x.RayTaskError):
        died = x.ActorDiedError(cause)
    else:
        died = x.ActorDiedError(text or None)
        died._preempted = bool(err.get("preempted"))
    died.actor_id = actor_id
    return died


def _cause(err: dict[str, Any]) -> BaseException | None:
    from raygo import _binding
    from raygo.exceptions import RayTaskError

    blob = err.get("cause_blob")
    if not blob:
        return None
    try:
        _binding.loads(blob)
    except RayTaskError as cause:  # loading an error raises it
        return cause
    except Exception as why:
        return RayTaskError(str(err.get("task_name") or "task"), f"(the error itself cannot be read here: {type(why).__name__}: {why})", None)
    return None


def _with_stderr(text: str, stderr: str | None) -> str:
    tail = (stderr or "").strip("\n")
    if not tail or "".join(tail.split()) in "".join(text.split()):  # the engine's message has it already, indented
        return text
    return f"{text}\nThe last lines that it wrote to stderr:\n  " + tail.replace("\n", "\n  ")


def refuse_fork() -> RuntimeError:
    """What every call raises in a forked child."""
    return RuntimeError(
        f"raygo was called in process {os.getpid()}, a fork of the process that started it ({sys.argv[0] or 'python'}). "
        "A forked child cannot use its parent's session: start the child with the 'spawn' method, or call raygo in the parent."
    )
