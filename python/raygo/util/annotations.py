"""Marks that say how stable a public name is.

The decorators record the mark on the object and, where it warns the reader of something, a note in the docstring.
"""
from __future__ import annotations

import enum
import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["AnnotationType", "Deprecated", "DeveloperAPI", "F", "PublicAPI", "RayDeprecationWarning"]


class RayDeprecationWarning(DeprecationWarning):
    """Something in use is going to disappear."""


class AnnotationType(enum.Enum):
    """The kinds of marks."""

    PUBLIC_API = "PublicAPI"
    DEVELOPER_API = "DeveloperAPI"
    DEPRECATED = "Deprecated"
    UNKNOWN = "Unknown"


def _mark(obj: Any, kind: AnnotationType, note: str = "", group: str | None = None) -> None:
    try:
        obj._annotated = obj.__name__
        obj._annotated_type = kind
        if group is not None:
            obj._annotated_api_group = group
        if note:
            obj.__doc__ = f"{inspect.cleandoc(obj.__doc__ or '')}\n\n{note}".strip()
    except (AttributeError, TypeError):
        return  # builtins and slotted objects carry no marks; they work as well without


def PublicAPI(*args: Any, **kwargs: Any) -> Any:
    """Mark a class or function as meant for users.

    Parameters
    ----------
    stability : {"stable", "beta", "alpha"}
        How much it may still change.
    api_group : str
        The chapter of the documentation that it belongs to.

    Examples
    --------
    >>> @PublicAPI(stability="beta")
    ... def f(): "Does f."
    >>> f._annotated_type is AnnotationType.PUBLIC_API
    True
    """
    if len(args) == 1 and not kwargs and callable(args[0]):
        return PublicAPI()(args[0])
    if args:
        raise TypeError("PublicAPI takes keyword arguments only: stability, api_group")
    stability = kwargs.pop("stability", "stable")
    group = kwargs.pop("api_group", "Others")
    if kwargs:
        raise TypeError(f"PublicAPI does not know {', '.join(kwargs)}")
    if stability not in ("stable", "beta", "alpha"):
        raise ValueError(f"stability is {stability!r}: give 'stable', 'beta' or 'alpha'")

    def wrap(obj: Any) -> Any:
        note = "" if stability == "stable" else f"**PublicAPI ({stability}):** this may still change before it is stable."
        _mark(obj, AnnotationType.PUBLIC_API, note, group)
        return obj

    return wrap


def DeveloperAPI(*args: Any, **kwargs: Any) -> Any:
    """Mark a class or function as meant for those who build on raygo's internals."""
    if len(args) == 1 and not kwargs and callable(args[0]):
        return DeveloperAPI()(args[0])
    if args:
        raise TypeError("DeveloperAPI takes no positional arguments but the object it marks")

    def wrap(obj: Any) -> Any:
        _mark(obj, AnnotationType.DEVELOPER_API, "**DeveloperAPI:** this may change between minor releases.")
        return obj

    return wrap


def Deprecated(*args: Any, **kwargs: Any) -> Any:
    """Mark a class or function as going away.

    Parameters
    ----------
    message : str
        What to use in its place.
    warning : bool
        Warn with :class:`RayDeprecationWarning` at each use.
    """
    if len(args) == 1 and not kwargs and callable(args[0]):
        return Deprecated()(args[0])
    if args:
        raise TypeError("Deprecated takes keyword arguments only: message, warning")
    message = kwargs.pop("message", "This may be removed in a future release.")
    warn = bool(kwargs.pop("warning", False))
    if kwargs:
        raise TypeError(f"Deprecated does not know {', '.join(kwargs)}")

    def wrap(obj: Any) -> Any:
        _mark(obj, AnnotationType.DEPRECATED, f"**Deprecated:** {message}")
        if not warn:
            return obj
        target = obj.__init__ if inspect.isclass(obj) else obj

        @functools.wraps(target)
        def wrapper(*a: Any, **k: Any) -> Any:
            warnings.warn(f"{obj.__qualname__} is deprecated. {message}", RayDeprecationWarning, stacklevel=2)
            return target(*a, **k)

        if inspect.isclass(obj):
            cast(Any, obj).__init__ = wrapper
            return obj
        return wrapper

    return wrap
