"""What a handle knows of its actor's class: the methods, how they are called, and the templates of their calls.

It travels as bytes inside handles and with the actor's template, so that a process that never saw the class can call it.
"""

from __future__ import annotations

import types
import weakref
from functools import partial
from typing import Any

from raygo import _binding, _options
from raygo._signature import Signature
from raygo.remote_function import F_STREAMING, returns_of, wrap_of

F_ACTOR_CALL = 32  # RG_F_ACTOR_CALL
ACTORS_RETRIES = -2  # max_task_retries of a method that leaves it to the actor
_GENERATOR = 0x20 | 0x200
_ASYNC = 0x80 | 0x200
_KNOWN_MAX = 512
BUILT_IN = ("__ray_ready__", "__ray_call__", "__ray_terminate__")


class Method:
    """One method of the class."""

    __slots__ = ("generator", "is_async", "name", "options", "signature")

    def __init__(self, name: str, signature: Signature, generator: bool, is_async: bool, options: dict[str, Any]) -> None:
        self.name = name
        self.signature = signature
        self.generator = generator
        self.is_async = is_async
        self.options = options


class Meta:
    """A class as its handles know it."""

    def __init__(self, name: str, qualname: str, module: str, methods: dict[str, Method], is_async: bool, max_pending: int, groups: tuple[str, ...]) -> None:
        self.name, self.qualname, self.module = name, qualname, module
        self.methods = methods
        self.is_async = is_async
        self.max_pending = max_pending
        self.groups = groups  # of concurrency
        self._bytes = b""
        self._calls: dict[Any, Call] = {}
        # Methods whose names every object has, such as __repr__: attribute access alone would not find them.
        self.shadowed = [key for key in methods if key != "__init__" and key in vars(object)]

    @classmethod
    def of_class(cls, target: type, max_pending: int, groups: tuple[str, ...] = ()) -> Meta:
        """Read a class."""
        methods: dict[str, Method] = {}
        for base in reversed(target.__mro__[:-1]):
            for key, attribute in vars(base).items():
                method = _read(key, attribute)
                if method is not None:
                    methods[key] = method
                else:
                    methods.pop(key, None)
        for key in BUILT_IN:
            methods.setdefault(key, Method(key, Signature(_built_in(key), key), False, False, {}))
        return cls(target.__name__, target.__qualname__, target.__module__, methods, any(m.is_async for m in methods.values()), max_pending, groups)

    def to_bytes(self) -> bytes:
        """The form in which it travels."""
        if not self._bytes:
            from raygo import cloudpickle

            methods = [(m.name, m.signature.describe(), m.generator, m.is_async, m.options) for m in self.methods.values()]
            self._bytes = bytes(cloudpickle.dumps((self.name, self.qualname, self.module, methods, self.is_async, self.max_pending, self.groups)))
            _remember(self)
        return self._bytes

    @classmethod
    def from_bytes(cls, data: bytes) -> Meta:
        """Undo `to_bytes`; the same bytes give the same object, and with it the templates made so far."""
        known = _known.get(data)
        if known is not None:
            return known
        import pickle

        name, qualname, module, rows, *others = pickle.loads(data)
        methods = {key: Method(key, Signature.from_description(signature), *rest) for key, signature, *rest in rows}
        made = cls(name, qualname, module, methods, *others)
        made._bytes = data
        _remember(made)
        return made

    def call(self, method: str, options: dict[str, Any] | None = None) -> Call:
        """How `method` is called with these options on top of the class's own."""
        try:
            key: Any = (method, *((name, type(value), value) for name, value in sorted((options or {}).items())))
            known = self._calls.get(key)
        except TypeError:  # an option without a hash
            return Call(self, self.methods[method], {**self.methods[method].options, **(options or {})})
        if known is None:
            known = Call(self, self.methods[method], {**self.methods[method].options, **(options or {})})
            if len(self._calls) < _KNOWN_MAX:
                self._calls[key] = known
        return known


_known: dict[bytes, Meta] = {}


def _remember(meta: Meta) -> None:
    if len(_known) >= _KNOWN_MAX:
        _known.clear()
    _known[meta._bytes] = meta


class _Pending:
    """The unfinished calls of one actor that this process made, by whichever handle and method."""

    __slots__ = ("__weakref__", "counter")

    def __init__(self) -> None:
        self.counter = _binding.counter()


_pending: weakref.WeakValueDictionary[tuple[int, int], _Pending] = weakref.WeakValueDictionary()  # by generation and actor; Submitters keep them


class Call:
    """One method with one set of options, shared by all handles of the class: what their Submitters ask."""

    __slots__ = ("_number", "_of", "meta", "method", "options")

    def __init__(self, meta: Meta, method: Method, options: dict[str, Any]) -> None:
        self.meta = meta
        self.method = method
        self.options = options
        self._number = 0
        self._of = -1  # the generation that _number belongs to

    def prepare(self) -> tuple[int, int, int, Any]:
        """For the binding: template, values, flags, nothing to look at before later calls."""
        returns, streaming, dynamic = returns_of(self.options.get("num_returns"), self.method.generator)
        if self._of != _binding.generation():
            self._number = _binding.template(self._template(returns, streaming, dynamic))
            self._of = _binding.generation()
        return self._number, 0 if streaming else returns, F_ACTOR_CALL | (F_STREAMING if streaming else 0), ()

    def _template(self, returns: int, streaming: bool, dynamic: bool) -> bytes:
        from raygo._calls import pack

        options = self.options
        fields: dict[str, Any] = {
            "kind": "method",
            "name": options.get("name") or f"{self.meta.name}.{self.method.name}",
            "method": self.method.name,
            "qualname": f"{self.meta.qualname}.{self.method.name}",
            "module": self.meta.module,
            "num_returns": returns,
            "max_task_retries": ACTORS_RETRIES if options.get("max_task_retries") is None else options["max_task_retries"],
        }
        if options.get("concurrency_group"):
            fields["group"] = options["concurrency_group"]
        if streaming:
            fields["streaming"] = True
            fields["backpressure"] = options.get("_generator_backpressure_num_objects") or 0
        if dynamic:
            fields["dynamic"] = True
        if options.get("enable_task_events") is False:
            fields["enable_task_events"] = False
        retry, kinds = _options.retry_of(options.get("retry_exceptions"))
        if retry:
            fields["retry_exceptions"] = retry
        if kinds:
            import hashlib

            from raygo import cloudpickle

            blob = bytes(cloudpickle.dumps(kinds))
            fields.update(codec="pickle", blob=blob, key=hashlib.blake2b(blob, digest_size=16).digest())
        return pack(fields)

    def submitter(self, actor: Any) -> _binding.Submitter:
        """The callable behind ``.remote`` of one handle.  It holds the actor's reference, not the handle: no cycle keeps an actor alive."""
        limit, counter, raise_pending = self.meta.max_pending, None, None
        if limit > 0:
            pending = _pending.setdefault((_binding.generation(), actor._task), _Pending())
            counter, raise_pending = pending.counter, partial(self.raise_pending, pending)
        return _binding.Submitter(
            self.prepare,
            signature=self.method.signature.quick,
            bind=self.method.signature.bind,
            wrap=wrap_of(*returns_of(self.options.get("num_returns"), self.method.generator)),
            actor=actor,
            max_pending=limit,
            counter=counter,
            raise_pending=raise_pending,
        )

    def raise_pending(self, pending: _Pending) -> None:
        """For the binding: the actor has as many unfinished calls of this process as it may."""
        from raygo.exceptions import PendingCallsLimitExceeded

        raise PendingCallsLimitExceeded(
            f"The call of {self.meta.name}.{self.method.name} was not submitted: {self.meta.max_pending} calls that this process made of the actor "
            "have not ended, which is as many as the actor's option max_pending_calls allows. Wait for some of them, or raise the option."
        )


def _read(key: str, attribute: Any) -> Method | None:
    skip = 1
    if isinstance(attribute, (staticmethod, classmethod)):
        skip = 1 if isinstance(attribute, classmethod) else 0
        attribute = attribute.__func__
    if not isinstance(attribute, types.FunctionType) and not (callable(attribute) and hasattr(attribute, "__wrapped__") and not isinstance(attribute, type)):
        return None
    options = dict(getattr(attribute, "__ray_method_options__", {}))
    inner = attribute
    while hasattr(inner, "__wrapped__") and not isinstance(inner, types.FunctionType):
        inner = inner.__wrapped__
    flags = getattr(getattr(inner, "__code__", None), "co_flags", 0)
    generator = bool(flags & _GENERATOR)
    _options.check_generator(generator, options.get("num_returns"))
    return Method(key, Signature(attribute, key, skip), generator, bool(flags & _ASYNC), options)


def _built_in(key: str) -> Any:
    def ready() -> None: ...

    def call(fn: Any, /, *args: Any, **kwargs: Any) -> None: ...

    return call if key == "__ray_call__" else ready
