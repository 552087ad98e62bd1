"""What a function takes along when it is sent to a worker, and how it is sent.

A function that a worker can import goes by name; any other goes by value, with the globals and closure cells it mentions.  Two things
follow.  The binding must notice when such a global is bound anew (the notebook habit of redefining a helper), so `captured` lists them all,
transitively.  And what cannot travel, or weighs too much, must be named: users see ``f``, not what hangs on it.
"""

from __future__ import annotations

import builtins
import os
import sys
import types
import warnings
from typing import TYPE_CHECKING, Any

from raygo import _binding

if TYPE_CHECKING:
    from collections.abc import Iterator

INLINE_BLOB = 64 << 10  # larger blobs go through the store
WARN_BYTES = 10 << 20
FORMAT_BYTES = 2  # RG_B_BYTES
_UNBOUND = object()  # never the value of a global: a name that is not bound yet differs from it in every check
_LIMIT = 10_000  # objects looked at; beyond, redefinitions go unnoticed


class Export:
    """One function or class on its way to workers: its pickled form, as long as that is what pickling would give now."""

    def __init__(self, target: Any, what: str) -> None:
        self.target = target
        self.what = what  # "remote function f", "actor class C": for messages
        self.check: tuple[tuple[dict[str, Any], str, Any], ...] = ()
        self.key = b""
        self._blob = b""
        self._extra: Any = None
        self._stored: tuple[int, Any] | None = None  # generation and reference of a blob in the store

    def map(self, extra: Any = None) -> dict[str, Any]:
        """The template's ``key``, ``codec`` and ``blob`` or ``blob_object``.

        Parameters
        ----------
        extra
            Pickled along with the target, as a pair.
        """
        if not self._current(extra):
            self._pickle(extra)
        fields: dict[str, Any] = {"key": self.key, "codec": "pickle"}
        if self._stored is not None:
            if self._stored[0] != _binding.generation():
                self._pickle(extra)
            if self._stored is not None:
                ref = self._stored[1]
                fields["blob_object"] = [ref._task, ref._index]
                return fields
        fields["blob"] = self._blob
        return fields

    def _current(self, extra: Any) -> bool:
        return bool(self.key) and extra == self._extra and all(space.get(name, _UNBOUND) is value for space, name, value in self.check)

    def _pickle(self, extra: Any) -> None:
        import hashlib

        self.check = captured(self.target)
        data = dumps(self.target if extra is None else (self.target, extra), self.what, self.target)
        self.key = hashlib.blake2b(data, digest_size=16).digest()
        self._extra = extra
        self._stored = None
        self._blob = data
        if len(data) > WARN_BYTES:
            warn_of_size(self.target, self.what, len(data))
        if len(data) > INLINE_BLOB:
            self._stored = (_binding.generation(), _binding.put_blob(data, FORMAT_BYTES))
            self._blob = b""


def dumps(value: Any, what: str, target: Any) -> bytes:
    """Cloudpickle `value`; a TypeError names what in `target` cannot travel."""
    from raygo import _serialization

    try:
        return _serialization.dumps(value)
    except Exception as refusal:
        error = refusal.__cause__ or refusal
        path = blame(target)
        where = f" It is reached through {path}." if path else ""
        raise TypeError(
            f"Could not serialize the {what}: {type(error).__name__}: {error}.{where} "
            "Make it inside the function, or pass what it is made from; raygo.util.inspect_serializability shows the whole way."
        ) from error


# ---- what is captured


def captured(target: Any) -> tuple[tuple[dict[str, Any], str, Any], ...]:
    """The globals that `target` carries by value, as (namespace, name, value), those of the functions among them included."""
    found: dict[tuple[int, str], tuple[dict[str, Any], str, Any]] = {}
    seen: set[int] = set()
    stack = [target]
    while stack and len(seen) < _LIMIT:
        value = stack.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, types.FunctionType) and (value is target or not by_name(value)):
            space = value.__globals__
            for name in sorted(global_names(value.__code__)):
                if name in space:
                    found[id(space), name] = (space, name, space[name])
                elif not hasattr(builtins, name):
                    found[id(space), name] = (space, name, _UNBOUND)
        stack.extend(child for _, child in _children(value, value is target) if _may_capture(child))
    return tuple(found.values())


def _may_capture(value: Any) -> bool:
    return isinstance(value, (types.FunctionType, types.MethodType, type)) or hasattr(type(value), "_captures") or type(value).__name__ == "partial"


def _children(value: Any, root: bool = False) -> Iterator[tuple[str, Any]]:
    """What travels inside `value`, with the words for it."""
    if isinstance(value, types.FunctionType):
        if not root and by_name(value):
            return
        for name in sorted(global_names(value.__code__)):
            if name in value.__globals__:
                yield f"global variable '{name}'", value.__globals__[name]
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
            try:
                yield f"captured variable '{name}'", cell.cell_contents
            except ValueError:  # a cell that is filled later
                pass
        for default in (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()):
            yield "a default value", default
        for name, attribute in value.__dict__.items():
            yield f"attribute '{name}'", attribute
    elif isinstance(value, type):
        if not root and by_name(value):
            return
        for name, attribute in list(vars(value).items()):
            if name in ("__dict__", "__weakref__", "__doc__", "__module__"):
                continue
            if isinstance(attribute, (staticmethod, classmethod)):
                yield f"method '{name}'", attribute.__func__
            elif isinstance(attribute, property):
                for part in (attribute.fget, attribute.fset, attribute.fdel):
                    if part is not None:
                        yield f"property '{name}'", part
            else:
                yield f"{'method' if isinstance(attribute, types.FunctionType) else 'class attribute'} '{name}'", attribute
        for base in value.__bases__:
            yield f"base class {base.__name__}", base
    elif isinstance(value, types.MethodType):
        yield "its function", value.__func__
        yield "its object", value.__self__
    elif hasattr(type(value), "_captures"):  # a remote function or an actor class
        yield "its definition", value._captures()
    elif type(value).__name__ == "partial" and hasattr(value, "func"):
        yield "its function", value.func
        for i, argument in enumerate(value.args):
            yield f"argument {i}", argument
        for name, argument in value.keywords.items():
            yield f"argument '{name}'", argument


def by_name(value: Any) -> bool:
    """Whether a worker can import it; cloudpickle then sends the name only."""
    module = getattr(value, "__module__", None)
    if module is None or module == "__main__" or module not in sys.modules:
        return False
    if _registered_by_value(module):
        return False
    found: Any = sys.modules[module]
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None) if part != "<locals>" else None
        if found is None:
            return False
    return found is value


def _registered_by_value(module: str) -> bool:
    # Nobody has registered anything before it is imported, or while another thread imports it.
    registered = getattr(sys.modules.get("cloudpickle.cloudpickle"), "list_registry_pickle_by_value", set)
    return any(module == name or module.startswith(name + ".") for name in registered())


_names: dict[types.CodeType, frozenset[str]] = {}


def global_names(code: types.CodeType) -> frozenset[str]:
    """The globals that the code mentions, inner functions' included."""
    known = _names.get(code)
    if known is not None:
        return known
    import dis

    names: set[str] = set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "DELETE_GLOBAL"):
            names.add(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= global_names(constant)
    if len(_names) > 4096:  # a notebook makes new code with every cell
        _names.clear()
    _names[code] = frozenset(names)
    return _names[code]


# ---- naming the culprit


def blame(target: Any, depth: int = 6) -> str:
    """The way from `target` to what cannot be pickled, in words; empty when it cannot be told."""
    steps: list[str] = []
    value, root, seen = target, True, {id(target)}
    for _ in range(depth):
        for words, child in _parts(value, root):
            if id(child) not in seen and not travels(child):
                seen.add(id(child))
                steps.append(f"{words} ({type(child).__module__}.{type(child).__qualname__})")
                value, root = child, False
                break
        else:
            break
    return ", then ".join(steps)


def _parts(value: Any, root: bool) -> Iterator[tuple[str, Any]]:
    yield from _children(value, root)
    if isinstance(value, dict):
        for key, item in list(value.items())[:1000]:
            yield f"[{key!r}]", item
    elif isinstance(value, (list, tuple, set, frozenset)):
        for i, item in enumerate(list(value)[:1000]):
            yield f"[{i}]", item
    elif not isinstance(value, (type, types.FunctionType)):
        for name, item in list(getattr(value, "__dict__", {}).items()):
            yield f"attribute '{name}'", item


def travels(value: Any) -> bool:
    """Whether a value can be pickled."""
    from raygo import cloudpickle

    try:
        cloudpickle.dumps(value)
    except Exception:
        return False
    return True


def warn_of_size(target: Any, what: str, size: int) -> None:
    """Tell of a function that weighs much, and what in it does."""
    part, value, weight = "", target, 0
    for _ in range(6):  # through helpers to what they mention
        found = max(((_weight(child), words, child) for words, child in _children(value, value is target)), key=lambda entry: entry[0], default=None)
        if found is None or found[0] <= size // 10:
            break
        weight, value = found[0], found[2]
        part = f"{found[1]} of {part}" if part else found[1]
    part = f" {part[0].upper()}{part[1:]} alone takes {_mib(weight)}." if part else ""
    warnings.warn(
        f"The {what} is very large ({_mib(size)}).{part} It is sent once and kept in the object store; "
        "raygo.put() the big value and pass the reference as an argument to share it between functions.",
        stacklevel=_user_level(),
    )


def _user_level() -> int:
    """The `stacklevel` by which the caller of this function's caller warns about the user's line."""
    here, level = os.path.dirname(__file__) + os.sep, 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        frame, level = frame.f_back, level + 1
    return level


def _weight(value: Any) -> int:
    size = getattr(value, "nbytes", None)
    if isinstance(size, int):
        return size
    from raygo import cloudpickle

    try:
        return len(cloudpickle.dumps(value))
    except Exception:  # what does not pickle is not what made the pickle big
        return 0


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
