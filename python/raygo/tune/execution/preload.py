"""Which modules a trial's process should have from its start.

Importing torch takes seconds, forking a process that has imported it milliseconds.  So what a trainable needs is imported once, in the process
that trials are forked from.  It is read off the trainable's code: what the code imports, and what of its module's globals it names.  Only installed
packages count; a user's own modules are looked into, not imported, since importing them may do anything.
"""
from __future__ import annotations

import dis
import functools
import importlib.util
import sys
import types
from collections.abc import Iterator
from typing import Any

__all__ = ["modules_of"]

# A user's modules that are looked into; more than these take longer than they gain.
_MOST_LOOKED_INTO = 50


def modules_of(trainable: Any) -> list[str]:
    """The installed modules that a trainable needs.

    Parameters
    ----------
    trainable : class
        A Trainable; of a `FunctionTrainable`, what its function needs.
    """
    found: dict[str, None] = dict.fromkeys(getattr(trainable, "preload", ()))
    looked: set[Any] = set()
    todo: list[Any] = [getattr(trainable, "function", trainable)]
    while todo and len(looked) < _MOST_LOOKED_INTO:
        thing = todo.pop()
        key = getattr(thing, "__name__", None) if isinstance(thing, types.ModuleType) else id(thing)
        if key in looked:
            continue
        looked.add(key)
        for needed in _needs(thing):
            if isinstance(needed, str):
                if _is_installed(needed):
                    found[needed] = None
            elif isinstance(needed, types.ModuleType):
                if _is_installed(needed.__name__):
                    found[needed.__name__] = None
                elif _is_own(needed.__name__):
                    todo.append(needed)
            else:
                module = getattr(needed, "__module__", None)          # None: a module that has gone
                if isinstance(module, str) and _is_installed(module):
                    found[module.split(".")[0]] = None
                elif isinstance(module, str) and (module == "__main__" or _is_own(module)):
                    todo.append(needed)
    return list(found)


def _needs(thing: Any) -> Iterator[Any]:
    """What a function, class or module names: modules, functions and classes, or names of modules."""
    while isinstance(thing, functools.partial):
        thing = thing.func
    if isinstance(thing, types.ModuleType):
        for value in vars(thing).values():
            if isinstance(value, types.ModuleType):
                yield value
            elif isinstance(value, (types.FunctionType, type)) and value.__module__ != thing.__name__:
                yield sys.modules.get(value.__module__)       # not what its functions would import if they were called
    elif isinstance(thing, type):
        yield from thing.__mro__[1:-1]
        for value in vars(thing).values():
            value = getattr(value, "__func__", value)            # static and class methods
            if isinstance(value, types.FunctionType):
                yield from _needs_of_code(value)
    elif isinstance(thing, types.FunctionType):
        yield from _needs_of_code(thing)
        for cell in thing.__closure__ or ():
            try:
                inner = cell.cell_contents
            except ValueError:           # not filled yet
                continue
            if isinstance(inner, (types.ModuleType, types.FunctionType, type)):
                yield inner
    # What can be found by its name is pickled by it, so that its process imports its module whole.
    if isinstance(thing, (types.FunctionType, type)) and "<locals>" not in thing.__qualname__ and _is_own(thing.__module__):
        yield sys.modules.get(thing.__module__)


def _needs_of_code(function: types.FunctionType) -> Iterator[Any]:
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes.extend(const for const in code.co_consts if isinstance(const, types.CodeType))
        for instruction in dis.get_instructions(code):
            if instruction.opname == "IMPORT_NAME":
                yield instruction.argval
            elif instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                value = function.__globals__.get(instruction.argval)
                if isinstance(value, (types.ModuleType, types.FunctionType, type)):
                    yield value


@functools.lru_cache(maxsize=1024)
def _where(package: str) -> str:
    """Where a top-level package is: "installed", "own" or nothing."""
    if package in sys.stdlib_module_names or package in ("__main__", "raygo", "ray"):
        return ""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return ""
    origin = (spec.origin or "") if spec is not None else ""
    return "installed" if "site-packages" in origin or "dist-packages" in origin else "own" if origin else ""


def _is_installed(module: str) -> bool:
    return _where(module.split(".")[0]) == "installed"


def _is_own(module: str) -> bool:
    return _where(module.split(".")[0]) == "own"
