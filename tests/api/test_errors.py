"""Exceptions: what they are, how they travel, and what the engine's causes become."""

from __future__ import annotations

import builtins
import pickle
import threading
import traceback
from typing import Any

import pytest

import raygo
from raygo import _status, exceptions
from raygo._calls import pack
from raygo.exceptions import RayError, RayTaskError, UnserializableException


def test_memory_error_is_itself() -> None:
    """Its constructor refuses a class that has another base before it."""
    error = RayTaskError("f", "Traceback", MemoryError("no room")).as_instanceof_cause()
    assert isinstance(error, MemoryError) and isinstance(error, RayTaskError)
    assert error.args == ("no room",)


class Coded(Exception):
    """Keeps what its constructor was given; pickle's own way would add the prefix twice."""

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class Keywords(Exception):
    """Cannot be rebuilt by calling its constructor with args."""

    def __init__(self, *, url: str, status: int) -> None:
        super().__init__(f"GET {url} -> {status}")
        self.url, self.status = url, status


class Holder(Exception):
    """Carries something that cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()
        self.note = "kept"


class Reducer(Exception):
    """Has a way of its own to be pickled."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")
        self.a, self.b = a, b

    def __reduce__(self) -> tuple[Any, ...]:
        return Reducer, (self.a, self.b)


def travel(exc: BaseException, name: str = "f") -> BaseException:
    """Raise, pickle, unpickle, and give what get() would raise."""
    try:
        raise exc
    except BaseException as caught:
        error = exceptions.task_error(caught, name)
    return exceptions.make_error(pickle.loads(pickle.dumps(error)))


def test_keeps_type_state_and_text() -> None:
    got = travel(Coded(41), "explode")
    assert isinstance(got, Coded) and isinstance(got, RayTaskError)
    assert got.code == 41 and got.args == ("code 41",)
    assert isinstance(got.cause, Coded) and got.cause.code == 41 and str(got.cause) == "code 41"
    assert type(got).__name__ == "RayTaskError(Coded)"
    assert all(part in str(got) for part in ("explode", "Coded: code 41", "pid="))


@pytest.mark.parametrize(
    "exc",
    [
        Keywords(url="http://x/y", status=503),
        ValueError("plain"),
        KeyError("k"),
        OSError(2, "No such file", "there"),
        FileNotFoundError(2, "No such file", "there"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        ImportError("no module", name="m"),
        StopIteration(7),
        Reducer(1, 2),
        getattr(builtins, "ExceptionGroup", ValueError)("many", [ValueError(1), KeyError(2)]),
    ],
    ids=lambda exc: type(exc).__name__,
)
def test_every_kind_comes_back(exc: Exception) -> None:
    got = travel(exc)
    assert isinstance(got, type(exc)) and isinstance(got, RayTaskError)
    assert type(got.cause) is type(exc)
    assert str(got.cause) == str(exc) and repr(got.cause.args) == repr(exc.args)


def test_native_fields_survive() -> None:
    got = travel(FileNotFoundError(2, "No such file", "there"))
    assert isinstance(got, FileNotFoundError)
    assert (got.errno, got.filename) == (2, "there")


def test_what_does_not_pickle_keeps_its_name_and_text() -> None:
    got = travel(Holder())
    assert isinstance(got, Holder) and got.note == "kept" and "holds a lock" in str(got)
    assert "lock" in got.lock  # its repr stands in for it

    class Unpicklable(type):
        def __reduce_ex__(cls, protocol: Any) -> Any:
            raise TypeError("never")

    class Strange(Exception, metaclass=Unpicklable):
        def __reduce__(self) -> Any:
            raise TypeError("never")

    strange = travel(Strange("odd words"))
    assert isinstance(strange, RayTaskError)
    assert "Strange" in str(strange) and "odd words" in str(strange)


def test_a_class_that_the_reader_lacks() -> None:
    error = exceptions.task_error(Coded(1), "f")
    rebuild, (fields, named, _, dual) = error.__reduce__()
    got = rebuild(fields, named, pickle.dumps(("parts", "not a class", (), {})), dual)
    assert isinstance(got.cause, UnserializableException) and "Coded: code 1" in str(got.cause)


def test_passing_through_a_second_task_keeps_the_cause() -> None:
    inner = travel(Coded(7), "inner")
    outer = travel(inner, "outer")
    assert isinstance(outer, Coded) and outer.code == 7
    assert "inner" in str(outer) and "outer" in str(outer)
    assert type(outer.cause) is Coded


def test_dual_travels_as_it_is() -> None:
    got = pickle.loads(pickle.dumps(travel(Coded(3))))
    assert isinstance(got, Coded) and isinstance(got, RayTaskError) and got.code == 3


def test_own_errors_and_exits_are_not_mixed() -> None:
    late = travel(exceptions.GetTimeoutError("late"))
    assert isinstance(late, RayTaskError) and isinstance(late, exceptions.GetTimeoutError)
    assert type(travel(KeyboardInterrupt())) is RayTaskError
    try:
        raise SystemExit(3)
    except SystemExit as exc:
        error = exceptions.task_exit(exc, "f")
    got = exceptions.make_error(pickle.loads(pickle.dumps(error)))
    assert type(got) is RayTaskError and "sys.exit(3)" in str(got) and "3" in str(got)


def test_as_instanceof_cause_is_stable() -> None:
    got = travel(ZeroDivisionError("division by zero"))
    again = RayTaskError.as_instanceof_cause(got)  # type: ignore[arg-type]
    assert isinstance(again, ZeroDivisionError) and "ZeroDivisionError: division by zero" in str(got)


def test_dual_classes_are_made_once() -> None:
    assert type(travel(Coded(1))) is type(travel(Coded(2)))


def test_every_exception_pickles() -> None:
    made = {
        "ActorUnavailableError": ("away", "ab"),
        "ObjectReconstructionFailedError": ("ff",),
        "RayTaskError": ("f", "Traceback", ValueError(1)),
    }
    for cls in exceptions.RAY_EXCEPTION_TYPES:
        args: Any = made.get(cls.__name__)
        if args is None:
            args = ("ff", None, "") if issubclass(cls, exceptions.ObjectLostError) else ("text",)
        error = cls(*args)
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error), cls
        assert type(RayError.from_bytes(error.to_bytes())) is cls


def test_hierarchy() -> None:
    x = exceptions
    assert issubclass(x.GetTimeoutError, TimeoutError) and issubclass(x.OwnerDiedError, x.ObjectLostError)
    assert issubclass(x.ActorDiedError, x.RayActorError) and issubclass(x.ActorAlreadyExistsError, ValueError)
    assert issubclass(x.ReferenceCountingAssertionError, AssertionError)
    drawn = x.__doc__ or ""
    assert all(cls.__name__ in drawn for cls in x.RAY_EXCEPTION_TYPES)


@pytest.mark.parametrize("code", [code for code in _status.CAUSES if code])
def test_every_cause_has_its_exception(code: int) -> None:
    fields = {"code": code, "message": "what happened", "task_name": "f", "actor": 5, "object": [7, 1]}
    error = exceptions.raise_syserr(pack(fields))
    assert type(error).__name__ == _status.CAUSES[code][1]
    assert "what happened" in str(error)


def test_worker_death_shows_stderr() -> None:
    error = exceptions.raise_syserr(pack({"code": _status.EWORKERDIED, "message": "died of signal 11 (SIGSEGV)", "stderr": "last words\nof it"}))
    assert "SIGSEGV" in str(error) and "last words\n  of it" in str(error)


def test_actor_death_carries_its_constructors_error() -> None:
    cause = exceptions.task_error(RuntimeError("cannot start up"), "Bad.__init__")
    died = exceptions.ActorDiedError(cause)
    assert died.actor_init_failed and "cannot start up" in str(died)
    again = pickle.loads(pickle.dumps(died))
    assert again.actor_init_failed and str(again) == str(died)


def test_traceback_has_the_users_frames_only() -> None:
    text = str(travel(ValueError("x")))
    assert "in travel" in text and "_worker" not in text
    assert not text.startswith("Traceback")
    assert "".join(traceback.format_exception_only(ValueError("x"))).strip() in text


def test_forked_and_missing_sessions_say_what_to_do() -> None:
    from raygo import _session

    assert "raygo.init()" in str(_session.not_initialized())
    assert raygo.exceptions is exceptions
