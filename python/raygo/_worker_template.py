"""Functions, actor classes and methods as a worker runs them: an engine's template, loaded."""

from __future__ import annotations

import importlib
import inspect
import pickle
from typing import Any

from raygo import _binding

BACKPRESSURE = 4096  # items not yet taken, where the template does not say
_BUILT_IN = ("__ray_ready__", "__ray_call__", "__ray_terminate__")


class Template:
    """What runs, and how.

    Attributes
    ----------
    kind : str
        "function", "actor", "method" or "named".
    name : str
        As the user knows the task.
    callable : callable or None
        What the arguments go to; None while it is not loaded, and for actors' own verbs.
    fast : bool
        The C loop may run it alone: synchronous, one value, pickled.
    captor : int or None
        The placement group that what it submits goes to as well.
    asynchronous, generating : bool
        A coroutine function or async generator; a generator of either kind.
    """

    def __init__(self, number: int, fields: dict[str, Any]) -> None:
        self.number = number
        self.fields = fields
        self.kind: str = fields.get("kind") or "function"
        self.method: str = fields.get("method") or ""
        self.name: str = fields.get("name") or fields.get("qualname") or self.method or "task"
        self.codec: str = fields.get("codec") or "pickle"
        self.msgpack = self.codec in ("msgpack", "import")
        self.num_returns: int = fields.get("num_returns", 1)
        self.streaming: bool = bool(fields.get("streaming"))
        self.dynamic: bool = bool(fields.get("dynamic"))
        self.backpressure: int = fields.get("backpressure") or BACKPRESSURE
        self.retry: int = fields.get("retry_exceptions") or 0
        strategy: dict[str, Any] = fields.get("strategy") or {}
        self.captor: int | None = (strategy.get("pg") or None) if strategy.get("capture") else None
        self.retry_types: tuple[type[BaseException], ...] = (Exception,) if self.retry == 1 else ()
        self.callable: Any = None
        self.fast = self.asynchronous = self.generating = False

    @property
    def function(self) -> str:
        """The function's full name."""
        return f"{self.fields.get('module') or ''}.{self.fields.get('qualname') or self.name}".lstrip(".")

    @property
    def resources(self) -> dict[str, float]:
        """What a task of it holds."""
        return {name: amount / 10000 for name, amount in (self.fields.get("resources") or {}).items()}

    def load(self, actor: Any) -> None:
        """Find what is to be called. `actor` is the process's actor, or None."""
        if self.kind == "method":
            self._load_method(actor)
        elif self.msgpack:
            self.callable = self._import()
        else:
            loaded = pickle.loads(self._blob())
            if self.retry == 2:
                loaded, self.retry_types = loaded
            self.callable = getattr(loaded, "_function", loaded) if self.kind == "function" else loaded
        if self.kind == "actor":
            return
        self._look_at(self.callable)
        plain = not (self.asynchronous or self.generating or self.streaming or self.dynamic or self.msgpack or self.captor)
        self.fast = plain and self.num_returns == 1 and self.callable is not None and not (actor is not None and actor.loop is not None)

    def _load_method(self, actor: Any) -> None:
        if actor is None:
            raise RuntimeError(f"a call of {self.name} came to a worker that holds no actor")
        if self.retry == 2:
            self.retry_types = pickle.loads(self._blob())
        if self.method in _BUILT_IN and not hasattr(type(actor.instance), self.method):
            self.callable = actor.built_in(self.method)
        else:
            self.callable = getattr(actor.instance, self.method)

    def _blob(self) -> Any:
        place = self.fields.get("blob_object")
        if not place:
            return self.fields.get("blob") or b""
        return _binding.get_blob(_binding.ref_from(*place), None)[1]

    def _import(self) -> Any:
        where = bytes(self.fields.get("blob") or b"").decode() or self.fields.get("qualname") or ""
        module, _, path = where.partition(":")
        if not path:
            raise ValueError(f"a function is named as module:qualname, not {where!r}")
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
        return getattr(found, "_function", found)

    def _look_at(self, function: Any) -> None:
        while type(function).__name__ == "partial" and hasattr(function, "func"):
            function = function.func
        if not inspect.isroutine(function) and callable(function) and not inspect.isclass(function):
            function = type(function).__call__
        self.asynchronous = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        self.generating = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
