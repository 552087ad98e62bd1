"""Functions and actors of other languages."""

from __future__ import annotations

from typing import Any, NoReturn


def java_function(class_name: str, function_name: str) -> NoReturn:
    """Not there: raygo has no Java workers."""
    raise NotImplementedError(
        f"cross_language.java_function({class_name!r}, {function_name!r}): raygo has no Java workers; named_function calls what another program serves"
    )


def java_actor_class(class_name: str) -> NoReturn:
    """Not there: raygo has no Java workers."""
    raise NotImplementedError(f"cross_language.java_actor_class({class_name!r}): raygo has no Java workers")


def cpp_actor_class(create_function_name: str, class_name: str) -> NoReturn:
    """Not there: actors in C++ come with a later version."""
    raise NotImplementedError(f"cross_language.cpp_actor_class({create_function_name!r}, {class_name!r}): raygo has no actors in C++")


for _stub in (java_function, java_actor_class, cpp_actor_class):
    vars(_stub)["__raygo_stub__"] = True


class NamedFunction:
    """A function that another program serves under a name (``raygo_serve`` of the C ABI, or a language's binding).

    ``.remote(*args)`` takes and gives plain values: None, bool, int, float, str, bytes, lists and dicts of them.
    """

    def __init__(self, name: str, num_returns: int = 1) -> None:
        from raygo import _binding

        if not isinstance(name, str) or not name:
            raise TypeError(f"a served function is named by a str, not {name!r}")
        self.name = name
        self._num_returns = num_returns
        self.remote = _binding.Submitter(
            _NamedCall(name, num_returns).prepare,
            signature=(0, -1, False),
            bind=_NamedCall.refuse_keywords,
        )

    def options(self, *, num_returns: int = 1) -> NamedFunction:
        """Give the function with another number of values."""
        return NamedFunction(self.name, num_returns)

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"Served functions cannot be called directly. Instead of running '{self.name}()', try '{self.name}.remote()'.")

    def __repr__(self) -> str:
        return f"NamedFunction({self.name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return NamedFunction, (self.name, self._num_returns)


class _NamedCall:
    """The template of a served function, for its Submitter."""

    def __init__(self, name: str, num_returns: int) -> None:
        self.name = name
        self.num_returns = num_returns

    def prepare(self) -> tuple[int, int, int, Any, bool]:
        """For the binding; the last value asks for arguments in msgpack."""
        from raygo import _binding
        from raygo._calls import pack

        fields = {"kind": "named", "name": self.name, "qualname": self.name, "codec": "msgpack", "num_returns": self.num_returns, "resources": {}}
        return _binding.template(pack(fields)), self.num_returns, 0, (), True

    @staticmethod
    def refuse_keywords(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> NoReturn:
        """For the binding: a call with keyword arguments."""
        raise TypeError(f"a served function takes positional arguments only, but got {sorted(kwargs or {})}")


def named_function(name: str, num_returns: int = 1) -> NamedFunction:
    """Give a function that another program serves under this name."""
    return NamedFunction(name, num_returns)


def cpp_function(function_name: str) -> NamedFunction:
    """Give a function that a C++ program serves under this name; as `named_function`."""
    return NamedFunction(function_name)
