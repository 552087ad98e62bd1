"""Objects that live in a process of their own: what ``@raygo.remote`` makes of a class."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from raygo import _binding, _options, _session
from raygo._actor_meta import BUILT_IN, Call, Meta
from raygo._capture import Export
from raygo._signature import Signature

if TYPE_CHECKING:
    from raygo._ids import ActorID, ObjectRef

T = TypeVar("T")

__all__ = ["ActorClass", "ActorClassInheritanceException", "ActorHandle", "ActorMethod", "T", "exit_actor", "method"]

F_ACTOR_CREATE = 16  # RG_F_ACTOR_CREATE
_RESERVED_S = 5.0  # how long a name may stay reserved by another process without its actor
_METHOD_ARGUMENTS = (
    "num_returns",
    "concurrency_group",
    "max_task_retries",
    "retry_exceptions",
    "_generator_backpressure_num_objects",
    "_num_objects_per_yield",
    "enable_task_events",
    "tensor_transport",
)


class ActorClassInheritanceException(TypeError):
    """A class was derived from an actor class."""


def method(*args: Any, **kwargs: Any) -> Any:
    """Set options of one method of an actor class.

    Parameters
    ----------
    num_returns, concurrency_group, max_task_retries, retry_exceptions, enable_task_events
        As in ``handle.method.options``.

    Examples
    --------
    >>> @raygo.remote  # doctest: +SKIP
    ... class Pair:
    ...     @raygo.method(num_returns=2)
    ...     def get(self):
    ...         return 1, 2
    """
    if args or not kwargs or not set(kwargs) <= set(_METHOD_ARGUMENTS):
        raise ValueError(
            f"The @ray.method decorator must be applied using at least one of the arguments in the list {list(_METHOD_ARGUMENTS)}, "
            f"for example '@ray.method(num_returns=2)'; it got {args or sorted(kwargs)}."
        )
    _options.validate_method(kwargs)

    def annotate(function: Any) -> Any:
        function.__ray_method_options__ = kwargs
        if "num_returns" in kwargs:
            function.__ray_num_returns__ = kwargs["num_returns"]
        if "concurrency_group" in kwargs:
            function.__ray_concurrency_group__ = kwargs["concurrency_group"]
        return function

    return annotate


class ActorMethod:
    """A method of one actor: ``.remote(*args)`` calls it and answers at once with an `ObjectRef`.

    It holds the actor's reference, so a method kept in a variable keeps its actor alive.
    """

    __slots__ = ("_actor_ref", "_call", "remote")

    def __init__(self, actor: Any, method_name: str, num_returns: Any = None, **options: Any) -> None:
        call = actor._raygo_meta.call(method_name, {k: v for k, v in {"num_returns": num_returns, **options}.items() if v is not None})
        self._set(actor._raygo_ref, call)

    @classmethod
    def _of(cls, ref: ObjectRef, call: Call) -> ActorMethod:
        made = object.__new__(cls)
        made._set(ref, call)
        return made

    def _set(self, ref: ObjectRef, call: Call) -> None:
        self._actor_ref = ref
        self._call = call
        self.remote = call.submitter(ref)

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        name = self._call.method.name
        raise TypeError(f"Actor methods cannot be called directly. Instead of running 'object.{name}()', try 'object.{name}.remote()'.")

    def options(self, **options: Any) -> ActorMethod:
        """Give this method with other options.

        Parameters
        ----------
        num_returns, concurrency_group, max_task_retries, retry_exceptions, name, enable_task_events
            Those not named stay as the class has them.
        """
        _options.validate_method(options)
        call = self._call
        _options.check_generator(call.method.generator, options.get("num_returns"))
        group = options.get("concurrency_group")
        if group and group not in call.meta.groups:
            raise ValueError(f"actor {call.meta.name} has no concurrency group '{group}'; its class was given {list(call.meta.groups)} as concurrency_groups")
        return ActorMethod._of(self._actor_ref, call.meta.call(call.method.name, {**call.options, **options}))

    def _remote(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """``.options(**options).remote(*args, **kwargs)``."""
        target = self.options(**options) if options else self
        return target.remote(*(args or ()), **(kwargs or {}))

    def bind(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not there: raygo has no lazy graphs (``ray.dag``)."""
        raise NotImplementedError("ActorMethod.bind: raygo has no lazy graphs (ray.dag); call .remote() and pass the references on")

    bind.__raygo_stub__ = True  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"ActorMethod({self._call.meta.name}.{self._call.method.name})"

    def __reduce__(self) -> tuple[Any, ...]:
        call = self._call
        return _rebuild_method, (self._actor_ref, call.meta.to_bytes(), call.method.name, call.options)


class ActorHandle:
    """An actor, seen from anywhere: its attributes are the actor's methods.

    Handles are made by ``ActorClass.remote()`` and `raygo.get_actor`, and may be passed to tasks and other actors.  The actor lives until the last
    handle is gone and its calls are done (a detached one: until `raygo.kill`).
    """

    _raygo_ref: ObjectRef
    _raygo_meta: Meta
    __class_getitem__: ClassVar[Any] = classmethod(types.GenericAlias)  # in annotations: ActorHandle[Counter]

    def __init__(self, language: Any, actor_id: Any, *args: Any, **kwargs: Any) -> None:
        raise TypeError("An ActorHandle is not made by hand: call ActorClass.remote(), or raygo.get_actor(name) for a named actor.")

    @classmethod
    def _of(cls, ref: ObjectRef, meta: Meta) -> ActorHandle:
        made = object.__new__(cls)
        made._raygo_ref = ref
        made._raygo_meta = meta
        for name in meta.shadowed:
            made.__dict__[name] = ActorMethod._of(ref, meta.call(name))
        return made

    def __getattr__(self, name: str) -> ActorMethod:
        meta = self.__dict__.get("_raygo_meta")
        if meta is None or name not in meta.methods:
            raise AttributeError(f"'{type(self).__name__}' object of {meta.name if meta else 'an actor'} has no attribute '{name}'")
        made = ActorMethod._of(self._raygo_ref, meta.call(name))
        self.__dict__[name] = made  # the next access does not come here
        return made

    def __dir__(self) -> list[str]:
        return sorted(self._raygo_meta.methods)

    @property
    def _actor_id(self) -> ActorID:
        from raygo._ids import ActorID

        return ActorID._of_number(self._raygo_ref._task)

    @property
    def _ray_actor_id(self) -> ActorID:
        return self._actor_id

    def __repr__(self) -> str:
        return f"Actor({self._raygo_meta.name}, {self._actor_id.hex()})"

    def __hash__(self) -> int:
        return hash(self._raygo_ref)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorHandle) and other._raygo_ref == self._raygo_ref

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild_handle, (self._raygo_ref, self._raygo_meta.to_bytes())


def rebuild_handle(ref: ObjectRef, meta: bytes) -> ActorHandle:
    """Undo pickling: a handle from the actor's reference and what it knows of the class."""
    return ActorHandle._of(ref, Meta.from_bytes(meta))


def _rebuild_method(ref: ObjectRef, meta: bytes, name: str, options: dict[str, Any]) -> ActorMethod:
    return ActorMethod._of(ref, Meta.from_bytes(meta).call(name, options))


def handle_of(record: dict[str, Any]) -> ActorHandle:
    """A handle from the engine's answer to ``actor.lookup``."""
    return rebuild_handle(_binding.ref_from(record["actor"], 0), record["meta"])  # type: ignore[arg-type]


class _Creation:
    """An actor class with one set of options: its template in the present session."""

    __slots__ = ("_made", "export", "meta", "options", "signature", "target")

    def __init__(self, target: type, export: Export, signature: Signature, options: dict[str, Any]) -> None:
        self.target = target
        self.export = export
        self.signature = signature
        self.options = options
        pending = options.get("max_pending_calls")
        self.meta = Meta.of_class(target, -1 if pending is None else pending, tuple(self.groups()))
        self._made: tuple[Any, int] = (None, 0)  # the template for actors without a name: what it was made under, its number
        _check_groups(self.groups(), self.meta)

    def groups(self) -> dict[str, int]:
        """Concurrency groups, from either form."""
        given = self.options.get("concurrency_groups") or {}
        if isinstance(given, list):
            return {str(group["name"]): int(group["max_concurrency"]) for group in given}
        return {str(name): int(limit) for name, limit in given.items()}

    def template(self, name: str | None, namespace: str, detached: bool) -> int:
        """The template's number; named actors have one each."""
        fields = self.export.map()  # also notices a captured global that was bound anew
        plain = name is None and not detached
        under = (_binding.generation(), fields["key"], _options.CAPTURED["group"])
        if plain and self._made[0] == under:
            return self._made[1]
        from raygo._calls import pack

        options, what = self.options, f"actor {self.target.__name__}"
        demand, placement = _demand(options)
        fields |= {
            "kind": "actor",
            "name": self.target.__name__,
            "qualname": self.target.__qualname__,
            "module": self.target.__module__,
            "meta": self.meta.to_bytes(),
            "resources": demand,
            "placement": placement,
            "max_restarts": options.get("max_restarts") or 0,
            "max_task_retries": options.get("max_task_retries") or 0,
            "max_concurrency": options.get("max_concurrency") or 0,
            "max_pending_calls": self.meta.max_pending,
            "is_async": self.meta.is_async,
            **_options.common_map(options, placement, what),
        }
        groups = self.groups()
        if groups:
            fields["groups"] = groups
        if options.get("allow_out_of_order_execution"):
            fields["out_of_order"] = True
        if detached:
            fields["detached"] = True
        if name is not None:
            fields.update(actor_name=name, namespace=namespace)
        number = _binding.template(pack(fields))
        if plain:
            self._made = (under, number)
        return number


def _demand(options: dict[str, Any]) -> tuple[dict[str, int], dict[str, int]]:
    """What an actor holds while it lives, and what it needs to be placed.

    An actor that names no resource is placed where a CPU is free and then holds none, so that more actors than CPUs can live.
    One that names any holds what it names for life, and one CPU unless it says otherwise.
    """
    names_any = options.get("num_cpus") is not None or options.get("num_gpus") is not None or options.get("resources") or options.get("accelerator_type")
    held = _options.resources_of(options, 1 if names_any else 0)
    return held, held if names_any else {**held, "CPU": _options.UNITS}


def _check_groups(groups: dict[str, int], meta: Meta) -> None:
    for name, limit in groups.items():
        if limit < 1:
            raise ValueError(f"concurrency group '{name}' of {meta.name} runs {limit} calls at a time; it must be at least 1")
    for m in meta.methods.values():
        group = m.options.get("concurrency_group")
        if group and group not in groups:
            raise ValueError(f"{meta.name}.{m.name} is in concurrency group '{group}', which concurrency_groups does not define; it has {sorted(groups)}")


class ActorClass:
    """A class whose instances are actors: ``C.remote(*args)`` makes one and answers at once with an `ActorHandle`.

    Examples
    --------
    >>> @raygo.remote  # doctest: +SKIP
    ... class Counter:
    ...     def __init__(self):
    ...         self.n = 0
    ...     def add(self):
    ...         self.n += 1
    ...         return self.n
    >>> counter = Counter.remote()  # doctest: +SKIP
    >>> raygo.get(counter.add.remote())  # doctest: +SKIP
    1
    """

    __class_getitem__: ClassVar[Any] = classmethod(types.GenericAlias)

    def __init__(self, name: str, bases: tuple[Any, ...], attr: dict[str, Any]) -> None:
        # `class B(A)` where A is an actor class comes here: Python calls the type of the base with these three.
        of = next((base for base in bases if isinstance(base, ActorClass)), None)
        raise ActorClassInheritanceException(
            f"Attempted to define subclass '{name}' of actor class '{of.__name__ if of else bases}'. Inheriting from actor classes is not currently supported. "
            "You can inherit from a non-actor base class and then derive an actor class from it (with @ray.remote)."
        )

    @classmethod
    def _make(cls, target: type, options: dict[str, Any]) -> ActorClass:
        for base in target.__mro__[1:]:
            if isinstance(base, ActorClass):
                raise ActorClassInheritanceException(f"'{target.__name__}' inherits from actor class '{base.__name__}'")
        made = object.__new__(cls)
        made._fill(_Creation(target, Export(target, f"actor class {target.__qualname__}"), _constructor(target), dict(options)))
        return made

    def _fill(self, creation: _Creation) -> None:
        target = creation.target
        self._creation = creation
        self._default_options = creation.options
        self.__name__, self.__qualname__, self.__module__ = target.__name__, target.__qualname__, target.__module__
        self.__doc__ = target.__doc__
        self.__ray_actor_class__ = target

    def _captures(self) -> Any:
        return self._creation.target

    def __getattr__(self, name: str) -> Any:
        creation = self.__dict__.get("_creation")
        if creation is None or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        try:
            return getattr(creation.target, name)
        except AttributeError:
            raise AttributeError(f"actor class '{creation.target.__name__}' has no attribute '{name}'") from None

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"Actors cannot be instantiated directly. Instead of '{self.__name__}()', use '{self.__name__}.remote()'.")

    def remote(self, *args: Any, **kwargs: Any) -> ActorHandle:
        """Make an actor of this class.

        Raises
        ------
        TypeError
            The arguments do not fit the constructor, or cannot be pickled.
        ValueError
            Its name is taken.
        """
        return self._remote(args, kwargs)

    def options(self, **actor_options: Any) -> ActorClass:
        """Give this class with other options; those not named stay as they are."""
        _options.validate_actor(actor_options, in_options=True)
        _options.check_environment(actor_options)
        creation = self._creation
        merged = {**creation.options, **actor_options}
        if merged.get("get_if_exists") and not merged.get("name"):
            raise ValueError("The actor name must be specified to use `get_if_exists`.")
        made = object.__new__(ActorClass)
        made._fill(_Creation(creation.target, creation.export, creation.signature, merged))
        return made

    def _remote(self, args: Any = None, kwargs: Any = None, **actor_options: Any) -> ActorHandle:
        """``.options(**actor_options).remote(*args, **kwargs)``."""
        if actor_options:
            return self.options(**actor_options)._remote(args, kwargs)
        from raygo._calls import call
        from raygo._init import ensure

        creation, options = self._creation, self._creation.options
        args, kwargs = creation.signature.bind(tuple(args or ()), dict(kwargs or {}))
        ensure()
        session = _session.get()
        name, namespace = options.get("name"), options.get("namespace") or session.namespace
        lifetime = options.get("lifetime") or session.arguments.get("default_actor_lifetime")
        template = creation.template(name, namespace, lifetime == "detached")
        number = _binding.next_number()
        if name is not None:
            existing = _reserve(name, namespace, number, bool(options.get("get_if_exists")))
            if existing is not None:
                return existing
        try:
            (ref,) = _binding.submit(template, F_ACTOR_CREATE, 0, args, kwargs or None, number=number)
        except BaseException:
            if name is not None and _binding.connected():
                call("actor.unreserve", {"name": name, "namespace": namespace, "actor": number})
            raise
        return ActorHandle._of(ref, creation.meta)  # type: ignore[arg-type]

    def bind(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not there: raygo has no lazy graphs (``ray.dag``)."""
        raise NotImplementedError("ActorClass.bind: raygo has no lazy graphs (ray.dag); call .remote()")

    bind.__raygo_stub__ = True  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"ActorClass({self.__name__})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_class, (_Later(self._creation.target), self._default_options)


class _Later:
    """Holds a class while it is being rebuilt: a method that mentions its own actor class closes a cycle through it."""

    def __init__(self, target: type) -> None:
        self.target = target


def _rebuild_class(later: _Later, options: dict[str, Any]) -> ActorClass:
    made = object.__new__(_LazyClass)
    made.__dict__["_pending"] = (later, options)
    return made


class _LazyClass(ActorClass):
    """An actor class that reads its class at first use, when unpickling is over and the class is whole."""

    def __getattribute__(self, name: str) -> Any:
        fields = object.__getattribute__(self, "__dict__")
        if "_pending" in fields and name not in ("__class__", "__dict__", "__reduce__", "__reduce_ex__"):
            later, options = fields.pop("_pending")
            object.__setattr__(self, "__class__", ActorClass)
            self._fill(_Creation(later.target, Export(later.target, f"actor class {later.target.__qualname__}"), _constructor(later.target), options))
        return object.__getattribute__(self, name)

    def __reduce__(self) -> tuple[Any, ...]:
        pending = self.__dict__.get("_pending")
        return (_rebuild_class, pending) if pending else ActorClass.__reduce__(self)


def _constructor(target: type) -> Signature:
    init: Any = target.__init__  # type: ignore[misc]
    if init is object.__init__ and target.__new__ is object.__new__:
        return Signature(lambda: None, target.__name__)
    if init is not object.__init__ and target.__new__ is object.__new__:
        return Signature(init, target.__name__, 1)
    return Signature(target, target.__name__)


def _reserve(name: str, namespace: str, number: int, get_if_exists: bool) -> ActorHandle | None:
    """Take the name for the actor; the handle of the actor that has it where that is wanted."""
    import time

    from raygo._calls import call

    deadline = time.monotonic() + _RESERVED_S
    while True:
        answer = call("actor.reserve", {"name": name, "namespace": namespace, "actor": number})
        if not answer["exists"]:
            return None
        if not get_if_exists:
            raise _taken(name, namespace)
        try:
            record = call("actor.lookup", {"actor": answer["actor"]})
        except ValueError:
            # Another process reserved the name and submits the actor in its next frame: ask again, each time a whole round trip later.
            if time.monotonic() > deadline:
                raise
            continue
        if record["state"] != "DEAD":  # else it died in between, and the name is free again
            return handle_of(record)


def _taken(name: str, namespace: str) -> ValueError:
    from raygo.exceptions import ActorAlreadyExistsError

    return ActorAlreadyExistsError(
        f"The name {name} (namespace={namespace}) is already taken. Please use a different name or get the existing actor using "
        f"ray.get_actor('{name}', namespace='{namespace}')"
    )


def exit_actor() -> NoReturn:
    """End the actor whose method is running; it is not restarted.

    Calls that wait, and this one, fail with `raygo.exceptions.ActorDiedError`.

    Raises
    ------
    TypeError
        No actor's method is running here.
    """
    from raygo import runtime_context
    from raygo.exceptions import ActorExit

    if not runtime_context.task_info().get("actor"):
        raise TypeError("exit_actor called on a non-actor worker.")
    raise ActorExit()


def built_in_methods() -> tuple[str, ...]:
    """The methods that every actor has without defining them."""
    return BUILT_IN
