"""Types for annotations."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class ObjectRef(Generic[T]):
    """A reference to a value of type ``T``: for annotations, as in ``def f(x: ObjectRef[int])``.

    References themselves are `raygo.ObjectRef`.
    """


__all__ = ["ObjectRef", "T"]
