"""How a function may be called: checked at ``.remote()``, so that a wrong call fails where it is written.

A plain function's signature is read from its code object, which needs no import of `inspect`; that one is loaded for what wraps
another callable, and to word the error of a call that does not fit.
"""

from __future__ import annotations

import types
from typing import Any

_ANY = (0, -1, True)
_BIND = (1 << 30, 1 << 30, False)  # no call is inside: every one goes to bind()


class Signature:
    """The parameters of a callable, without those already bound.

    Parameters
    ----------
    function
        What is called in the end.
    name
        For errors.
    skip
        Leading parameters that the caller does not give: 1 for ``self``.
    """

    __slots__ = ("_kwonly", "_names", "_posonly", "_required", "_skip", "_target", "_varargs", "_varkw", "name", "text")

    def __init__(self, function: Any, name: str, skip: int = 0) -> None:
        self.name = name
        self._skip = skip
        self._target: Any = None
        plain = function if isinstance(function, types.FunctionType) and not hasattr(function, "__wrapped__") else None
        if plain is not None and not hasattr(plain, "__signature__"):
            self._read_code(plain)
            self._target = plain
        else:
            self._read_inspect(function)

    def _read_code(self, function: types.FunctionType) -> None:
        code = function.__code__
        positional = code.co_varnames[: code.co_argcount][self._skip :]
        optional = len(function.__defaults__ or ())
        self._names: tuple[str, ...] | None = positional
        self._required = max(0, len(positional) - optional)
        self._posonly = max(0, code.co_posonlyargcount - self._skip)
        named = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        self._kwonly = {key: key not in (function.__kwdefaults__ or {}) for key in named}
        self._varargs = bool(code.co_flags & 0x04)
        self._varkw = bool(code.co_flags & 0x08)

    def _read_inspect(self, function: Any) -> None:
        import inspect

        try:
            parameters = list(inspect.signature(function).parameters.values())[self._skip :]
        except (TypeError, ValueError):  # a callable written in C that does not say: the worker will
            self._names = None
            self._required, self._posonly, self._kwonly, self._varargs, self._varkw = 0, 0, {}, True, True
            return
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self._names = tuple(p.name for p in positional)
        self._required = sum(p.default is p.empty for p in positional)
        self._posonly = sum(p.kind is p.POSITIONAL_ONLY for p in positional)
        self._kwonly = {p.name: p.default is p.empty for p in parameters if p.kind is p.KEYWORD_ONLY}
        self._varargs = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        self._varkw = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self._target = function

    @property
    def quick(self) -> tuple[int, int, bool]:
        """For the binding: calls inside it are right, others go to `bind`."""
        if self._names is None:
            return _ANY
        if any(self._kwonly.values()):
            return _BIND
        kwargs_ok = self._varkw and not self._kwonly and self._posonly == len(self._names)
        return self._required, -1 if self._varargs else len(self._names), kwargs_ok

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any] | None]:
        """Check a call; it comes back as it was.

        Raises
        ------
        TypeError
            The arguments do not fit, in the words that Python's `inspect` has for it.
        """
        if self._names is None:
            return args, kwargs
        given = kwargs or {}
        n = len(args)
        names = self._names
        fits = n <= len(names) or self._varargs
        if fits and n < self._required:
            fits = all(name in given for name in names[max(n, self._posonly) : self._required]) and n >= min(self._posonly, self._required)
        if fits and given:
            free = names[max(n, self._posonly) :]
            taken = names[self._posonly : n]
            fits = not any(name in given for name in taken) and (self._varkw or all(key in free or key in self._kwonly for key in given))
        if fits:
            fits = all(key in given for key, needed in self._kwonly.items() if needed)
        if not fits:
            self._refuse(args, given)
        return args, kwargs

    def _refuse(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        import inspect

        parameters = list(inspect.signature(self._target).parameters.values())[self._skip :]
        try:
            inspect.Signature(parameters, __validate_parameters__=False).bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}(): {error}. Its signature is {self.name}{inspect.Signature(parameters)}.") from None

    def describe(self) -> list[Any]:
        """Plain values from which `from_description` makes an equal signature in another process."""
        return [self.name, self._names, self._required, self._posonly, self._kwonly, self._varargs, self._varkw]

    @classmethod
    def from_description(cls, data: list[Any]) -> Signature:
        """Undo `describe`: a handle's methods are checked where the class itself is not known."""
        made = object.__new__(cls)
        made.name, names, made._required, made._posonly, made._kwonly, made._varargs, made._varkw = data
        made._names = None if names is None else tuple(names)
        made._skip = 0
        made._target = None if names is None else _stand_in(made)
        return made


def _stand_in(of: Signature) -> Any:
    """Something that `inspect` reads as having these parameters."""

    class StandIn:
        @property
        def __signature__(self) -> Any:
            import inspect

            p = inspect.Parameter
            names = of._names or ()
            made = [
                p(name, p.POSITIONAL_ONLY if i < of._posonly else p.POSITIONAL_OR_KEYWORD, default=p.empty if i < of._required else ...)
                for i, name in enumerate(names)
            ]
            if of._varargs:
                made.append(p("args", p.VAR_POSITIONAL))
            made += [p(name, p.KEYWORD_ONLY, default=p.empty if needed else ...) for name, needed in of._kwonly.items()]
            if of._varkw:
                made.append(p("kwargs", p.VAR_KEYWORD))
            return inspect.Signature(made)

        def __call__(self) -> None:
            """Only what `inspect` wants a callable to have."""

    return StandIn()
