"""How values of a class travel, where pickle alone cannot send them."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["StandaloneSerializationContext", "deregister_serializer", "register_serializer"]


def register_serializer(cls: type, *, serializer: Callable[[Any], Any], deserializer: Callable[[Any], Any]) -> None:
    """Send values of `cls` as what `serializer` makes of them.

    What is registered travels with each value: a worker that reads one can send others of the class without a registration of its own.
    A worker that makes the first one itself has to register.

    Parameters
    ----------
    cls : type
        The exact class; subclasses are not meant.
    serializer : callable
        Turns a value into something that pickles.
    deserializer : callable
        Turns that back into a value.

    Examples
    --------
    >>> register_serializer(Connection, serializer=lambda c: c.url, deserializer=Connection)   # doctest: +SKIP
    """
    if not isinstance(cls, type):
        raise TypeError(f"register_serializer takes a class, not {cls!r}")
    for name, function in (("serializer", serializer), ("deserializer", deserializer)):
        if not callable(function):
            raise TypeError(f"the {name} for {cls.__name__} is {function!r}: give a callable")
    from raygo import _serialization

    _serialization.register(cls, serializer, deserializer)


def deregister_serializer(cls: type) -> None:
    """Undo `register_serializer`; values that are under way still arrive."""
    from raygo import _serialization

    _serialization.deregister(cls)


class StandaloneSerializationContext:
    """Pickles values outside of tasks by the rules that tasks use."""

    def serialize(self, value: Any) -> bytes:
        """The value as bytes that `deserialize` reads in this or another process."""
        from raygo import _serialization

        return _serialization.dumps(value)

    def deserialize(self, data: bytes) -> Any:
        """The value back."""
        from raygo import _serialization

        return _serialization.loads(data)
