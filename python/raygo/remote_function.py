"""Functions that run as tasks: what ``@raygo.remote`` makes of a function."""

from __future__ import annotations

import types
from typing import Any, NoReturn

from raygo import _binding, _options
from raygo._capture import Export
from raygo._signature import Signature

F_STREAMING = 64  # RG_F_STREAMING
_GENERATOR = 0x20 | 0x200  # CO_GENERATOR, CO_ASYNC_GENERATOR
_COROUTINE = 0x80
_MAX_VARIANTS = 64


class _Task:
    """Everything about a remote function with one set of options, for its Submitter.

    It is apart from `RemoteFunction` so that the Submitter, which holds it, does not close a cycle with what holds the Submitter.
    """

    __slots__ = ("export", "generator", "module", "name", "options", "qualname", "signature")

    def __init__(self, export: Export, options: dict[str, Any], signature: Signature, names: tuple[str, str, str], generator: bool) -> None:
        self.export = export
        self.options = options
        self.signature = signature
        self.name, self.qualname, self.module = names
        self.generator = generator

    def prepare(self) -> tuple[int, int, int, Any]:
        """For the binding: the template of this session, how many values it has, its flags, and what to look at before the next call."""
        from raygo._calls import pack

        returns, streaming, dynamic = returns_of(self.options.get("num_returns"), self.generator)
        retry, kinds = _options.retry_of(self.options.get("retry_exceptions"))
        demand = _options.resources_of(self.options, 1)
        fields: dict[str, Any] = {
            "kind": "function",
            "name": self.options.get("name") or self.name,
            "qualname": self.qualname,
            "module": self.module,
            "resources": demand,
            "num_returns": returns,
            "max_retries": default(self.options, "max_retries", 3),
            **_options.common_map(self.options, demand, self.name),
            **self.export.map(kinds or None),
        }
        if streaming:
            fields["streaming"] = True
            fields["backpressure"] = default(self.options, "_generator_backpressure_num_objects", 0)
        if dynamic:
            fields["dynamic"] = True
        if retry:
            fields["retry_exceptions"] = retry
        # A worker that has used a GPU keeps some of its memory until it ends, so such tasks get a fresh one unless told otherwise.
        calls = default(self.options, "max_calls", 1 if demand.get("GPU") else 0)
        if calls:
            fields["max_calls"] = calls
        return _binding.template(pack(fields)), 0 if streaming else returns, F_STREAMING if streaming else 0, (*self.export.check, *_where())

    def submitter(self) -> _binding.Submitter:
        """The callable behind ``.remote``."""
        return _binding.Submitter(
            self.prepare,
            signature=self.signature.quick,
            bind=self.signature.bind,
            wrap=wrap_of(*returns_of(self.options.get("num_returns"), self.generator)),
        )


def _where() -> tuple[Any, ...]:
    """In a worker: what also makes a template stale, the placement group that captures."""
    return ((_options.CAPTURED, "group", _options.CAPTURED["group"]),) if _binding.is_worker() else ()


def default(options: dict[str, Any], key: str, value: Any) -> Any:
    """An option's value, or `value` where it is absent or None."""
    given = options.get(key)
    return value if given is None else given


def returns_of(num_returns: Any, generator: bool) -> tuple[int, bool, bool]:
    """How many values; whether they stream; whether they are dynamic."""
    if num_returns is None:
        return (0, True, False) if generator else (1, False, False)
    if num_returns == "streaming":
        return 0, True, False
    if num_returns == "dynamic":
        return 1, False, True
    return int(num_returns), False, False


def wrap_of(returns: int, streaming: bool, dynamic: bool) -> Any:
    """What turns the binding's answer into the user's; None when it is right as it is."""
    if streaming:
        from raygo._generator import ObjectRefGenerator

        return ObjectRefGenerator
    return None if returns else _nothing


def _nothing(refs: Any) -> None:
    return None


class RemoteFunction:
    """A function whose calls run as tasks.

    ``f.remote(*args, **kwargs)`` submits a call and answers at once with an `ObjectRef` (a list of them with ``num_returns`` above 1,
    an `ObjectRefGenerator` for a generator function).

    Examples
    --------
    >>> @raygo.remote  # doctest: +SKIP
    ... def square(n):
    ...     return n * n
    >>> raygo.get([square.remote(n) for n in range(4)])  # doctest: +SKIP
    [0, 1, 4, 9]
    """

    remote: _binding.Submitter

    def __init__(self, language: Any, function: Any, function_descriptor: Any, task_options: dict[str, Any]) -> None:
        name = getattr(function, "__name__", type(function).__name__)
        code = _code_of(function)
        if code is not None and code.co_flags & _COROUTINE:
            raise ValueError(
                f"'async def' should not be used for remote tasks. You can wrap the async function with `asyncio.run({name}())`. "
                "See the asynchronous actors for calls that await."
            )
        generator = bool(code is not None and code.co_flags & _GENERATOR)
        _options.check_generator(generator, task_options.get("num_returns"))
        names = (name, getattr(function, "__qualname__", name), getattr(function, "__module__", None) or "")
        export = Export(function, f"remote function {names[1]}")
        self._fill(_Task(export, dict(task_options), Signature(function, name), names, generator))

    def _fill(self, task: _Task) -> None:
        function = task.export.target
        self._task = task
        self._function = function
        self._function_name = f"{task.module}.{task.qualname}"
        self._default_options = task.options
        self._variants: dict[Any, RemoteFunction] = {}
        self.__name__, self.__qualname__, self.__module__ = task.name, task.qualname, task.module
        self.__doc__ = getattr(function, "__doc__", None)
        self.__wrapped__ = function
        self.remote = task.submitter()

    def _captures(self) -> Any:
        return self._function

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        name = self._task.name
        raise TypeError(f"Remote functions cannot be called directly. Instead of running '{name}()', try '{name}.remote()'.")

    def options(self, **task_options: Any) -> RemoteFunction:
        """Give this function with other options; those not named stay as they are.

        Raises
        ------
        TypeError, ValueError
            An option does not exist, or its value will not do.
        """
        try:
            key: Any = tuple((name, type(value), value) for name, value in sorted(task_options.items()))
            known = self._variants.get(key)
        except TypeError:  # a value that has no hash, such as a dict: made anew each time
            key = known = None
        if known is not None:
            return known
        _options.validate_task(task_options, in_options=True)
        _options.check_environment(task_options)
        task = self._task
        _options.check_generator(task.generator, task_options.get("num_returns"))
        made = object.__new__(RemoteFunction)
        made._fill(_Task(task.export, {**task.options, **task_options}, task.signature, (task.name, task.qualname, task.module), task.generator))
        if key is not None and len(self._variants) < _MAX_VARIANTS:
            self._variants[key] = made
        return made

    def _remote(self, args: Any = None, kwargs: Any = None, **task_options: Any) -> Any:
        """``.options(**task_options).remote(*args, **kwargs)``."""
        target = self.options(**task_options) if task_options else self
        return target.remote(*(args or ()), **(kwargs or {}))

    def bind(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not there: raygo has no lazy graphs (``ray.dag``)."""
        raise NotImplementedError("RemoteFunction.bind: raygo has no lazy graphs (ray.dag); call .remote() and pass the references on")

    bind.__raygo_stub__ = True  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"RemoteFunction({self._function_name})"

    def __reduce__(self) -> tuple[Any, ...]:
        # A function that mentions itself is rebuilt around this object before it has its defaults and globals: nothing may be read from it then.
        task = self._task
        return _rebuild, (self._function, task.options, task.signature.describe(), (task.name, task.qualname, task.module), task.generator, self.__doc__)


def _rebuild(function: Any, options: dict[str, Any], signature: list[Any], names: tuple[str, str, str], generator: bool, doc: str | None) -> RemoteFunction:
    made = object.__new__(RemoteFunction)
    made._fill(_Task(Export(function, f"remote function {names[1]}"), options, Signature.from_description(signature), names, generator))
    made.__doc__ = doc
    return made


def _code_of(function: Any) -> types.CodeType | None:
    """The code behind a function, a method or a partial."""
    while type(function).__name__ == "partial" and hasattr(function, "func"):
        function = function.func
    return getattr(getattr(function, "__func__", function), "__code__", None)
