"""Finds what in a value cannot be pickled, and where it sits."""
from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from raygo import cloudpickle

__all__ = ["FailureTuple", "inspect_serializability"]

_MAX_CHILDREN = 1000     # of one container; a culprit among more than that is named by the container


class FailureTuple:
    """One thing that cannot be pickled.

    Attributes
    ----------
    obj : object
        The thing itself.
    path : str
        How one gets to it from the value that was checked, e.g. ``closure f -> self.conn -> _lock``.
    parent : object
        What holds it.
    """

    def __init__(self, obj: Any, path: str, parent: Any) -> None:
        self.obj = obj
        self.path = path
        self.parent = parent

    def __repr__(self) -> str:
        return f"FailTuple({self.path} [obj={_short(self.obj)}, parent={_short(self.parent)}])"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FailureTuple) and self.obj is other.obj and self.path == other.path

    def __hash__(self) -> int:
        return hash((id(self.obj), self.path))


def inspect_serializability(base_obj: Any, name: str | None = None, depth: int = 3,
                            print_file: TextIO | None = None) -> tuple[bool, set[FailureTuple]]:
    """Say whether a value can be sent to a task, and what stands in the way.

    Parameters
    ----------
    base_obj : object
        The value.
    name : str, optional
        What to call it in the report.
    depth : int
        How many steps to follow into it.
    print_file : file, optional
        Where the report goes; standard output by default.

    Returns
    -------
    (bool, set of FailureTuple)
        Whether it pickles, and the innermost things that do not.

    Examples
    --------
    >>> import io, threading
    >>> ok, why = inspect_serializability({"a": threading.Lock()}, name="settings", print_file=io.StringIO())
    >>> ok, [f.path for f in why]
    (False, ["settings['a']"])
    """
    out = print_file if print_file is not None else sys.stdout
    label = name if name is not None else _short(base_obj, 60)
    error = _fails(base_obj)
    line = "=" * 60
    print(f"{line}\nChecking Serializability of {_short(base_obj)}\n{line}", file=out)
    if error is None:
        print("It can be pickled.", file=out)
        return True, set()
    failures = find_failures(base_obj, label, depth)
    print(f"It cannot be pickled: {error}\nWhat stands in the way:", file=out)
    for failure in failures:
        print(f"    {failure.path}: {_short(failure.obj)}", file=out)
    print("Make it inside the task or actor that uses it, leave it out (__getstate__), or say how to\n"
          f"send it with raygo.util.register_serializer.\n{line}", file=out)
    return False, set(failures)


def find_failures(obj: Any, label: str, depth: int = 8) -> list[FailureTuple]:
    """The innermost things in `obj` that do not pickle; `obj` itself when nothing inside it is to blame."""
    found: list[FailureTuple] = []
    _search(obj, label, None, depth, {id(obj)}, found)
    return found


def _search(obj: Any, path: str, parent: Any, depth: int, seen: set[int], found: list[FailureTuple]) -> None:
    before = len(found)
    if depth > 0:
        for step, child in _children(obj, path):
            if id(child) in seen or _fails(child) is None:
                continue
            seen.add(id(child))
            _search(child, step, obj, depth - 1, seen, found)
    if len(found) == before:
        found.append(FailureTuple(obj, path, parent))


def _children(obj: Any, path: str) -> Iterator[tuple[str, Any]]:
    """What `obj` drags along when it is pickled, each with its path."""
    if isinstance(obj, (str, bytes, int, float)):
        return
    if isinstance(obj, dict):
        for key, value in list(obj.items())[:_MAX_CHILDREN]:
            yield f"{path}[{_short(key, 40)}]", value
    elif isinstance(obj, (list, tuple)):
        for index, value in enumerate(obj[:_MAX_CHILDREN]):
            yield f"{path}[{index}]", value
    elif isinstance(obj, (set, frozenset)):
        for value in list(obj)[:_MAX_CHILDREN]:
            yield f"{path}{{{_short(value, 40)}}}", value
    elif inspect.isfunction(obj):
        yield from _of_function(obj, path)
    elif inspect.ismethod(obj):
        yield f"{path}.__self__", obj.__self__
        yield from _of_function(obj.__func__, path)
    elif inspect.isclass(obj):
        for key, value in vars(obj).items():
            if key not in ("__dict__", "__weakref__", "__doc__", "__module__"):
                yield f"{path}.{key}", value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
    else:
        yield from _of_instance(obj, path)


def _of_function(function: Any, path: str) -> Iterator[tuple[str, Any]]:
    where = f"{path}: " if path else ""
    try:
        variables = inspect.getclosurevars(function)
    except (TypeError, ValueError):      # a cell that is still empty
        variables = None
    if variables is not None:
        for key, value in variables.nonlocals.items():
            yield f"{where}variable '{key}' of the enclosing function", value
        for key, value in variables.globals.items():
            yield f"{where}global variable '{key}'", value
    for index, value in enumerate(function.__defaults__ or ()):
        yield f"{where}default argument {index}", value
    for key, value in (function.__kwdefaults__ or {}).items():
        yield f"{where}default of argument '{key}'", value


def _of_instance(obj: Any, path: str) -> Iterator[tuple[str, Any]]:
    if type(obj).__reduce_ex__ is not object.__reduce_ex__ or type(obj).__reduce__ is not object.__reduce__:
        if not hasattr(obj, "__dict__"):
            return
    state = getattr(obj, "__dict__", None)
    if "__getstate__" in dir(type(obj)) and type(obj).__getstate__ is not getattr(object, "__getstate__", None):
        try:
            state = obj.__getstate__()
        except Exception:        # its own __getstate__ is what fails: the object is the culprit
            return
    if isinstance(state, dict):
        for key, value in state.items():
            yield f"{path}.{key}", value
    for slots_of in type(obj).__mro__:
        slots = slots_of.__dict__.get("__slots__", ())
        for key in (slots,) if isinstance(slots, str) else slots:
            if hasattr(obj, key) and key not in ("__dict__", "__weakref__"):
                yield f"{path}.{key}", getattr(obj, key)


def _fails(obj: Any) -> Exception | None:
    try:
        cloudpickle.dumps(obj)
    except Exception as e:       # whatever a reducer raises is the answer
        return e
    return None


def _short(obj: Any, most: int = 120) -> str:
    try:
        text = repr(obj)
    except Exception as e:       # a repr that raises must not hide the report
        text = f"<{type(obj).__name__}, its repr raises {type(e).__name__}>"
    return text if len(text) <= most else text[:most - 3] + "..."
